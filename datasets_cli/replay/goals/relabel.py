"""Relabelling: where rows have goals, new ones put there, and what follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import NestedKey, Numbers, as_tensor, key_of
from datasets_cli.replay.goals.rules import GoalRule
from datasets_cli.replay.storages.collate import make_batch
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.storages.sequences import dataset_of_rows
from datasets_cli.replay.transforms.transform import Transform, required_entry
from datasets_cli.schema.bits import to_tensor
from datasets_cli.schema.columns import DONE, REWARD, TERMINATED, TRUNCATED, Key, show_key
from datasets_cli.schema.tree import Tree, entry, put

RELABELLED = ("relabelled",)
"""Where batches say which rows have a new goal."""

SUCCESS = ("next", "info", "success")
"""Where Minari's rows say whether a step was a success."""


@dataclass(frozen=True)
class GoalKeys:
    """Where goals and what follows from them are."""

    achieved: Key
    desired: Key
    reward: Key
    success: Key = SUCCESS
    needs_success: bool = False

    @property
    def reached(self) -> Key:
        """What the step achieved."""
        return ("next", *self.achieved)

    def check(self, storage: Storage, rule: GoalRule) -> None:
        """Check that rows have what is read and changed."""
        if self.achieved == self.desired:
            raise UsageError(
                f"achieved_goal_key and desired_goal_key are both {show_key(self.achieved)}; what "
                "was achieved would be written over by goals. Name two entries."
            )
        if storage.row_batch_size:
            raise UsageError(
                f"Each row has its own batch size, {list(storage.row_batch_size)}, and a goal "
                "is that of a single step. Write steps as rows."
            )
        ends = () if rule.terminated is None else (TERMINATED, DONE)
        success = (self.success,) if self.needs_success else ()
        if success and rule.success is None:
            raise UsageError(
                f"success_key names {show_key(self.success)}, and the rule does not say what is a "
                "success. Give GoalRule a success, or leave out success_key."
            )
        if self.reward == REWARD and (dataset := dataset_of_rows(storage)):
            dataset.manifest.check_rewards("a goal in hindsight")
        needed = (self.reached, self.desired, self.reward, *ends, *success)
        if missing := [show_key(key) for key in needed if not storage.has(key)]:
            raise UsageError(
                f"Goals need {', '.join(map(show_key, needed))}, and the rows do not have "
                f"{', '.join(missing)} as one tensor. Name the keys that they have, with "
                "achieved_goal_key, desired_goal_key, reward_key and success_key."
            )
        if storage.has(RELABELLED):
            raise UsageError(
                f"The rows have {show_key(RELABELLED)}, where batches say which goals are new. "
                "Rename it."
            )

    def goals(self, storage: Storage, rows: torch.Tensor) -> torch.Tensor:
        """Return what the steps of the rows int64 ``[M]`` achieved, ``[M, ...]``."""
        goals = storage.entry(self.reached, rows)
        if goals is None:
            raise UsageError(f"Some rows do not have {show_key(self.reached)}. Write it with each.")
        return goals


def relabel(
    rows: Tree | TensorDictBase,
    is_new: torch.Tensor,
    goals: torch.Tensor,
    keys: GoalKeys,
    rule: GoalRule,
) -> None:
    """Put goals into gathered rows, and what follows from them."""
    # rows: the batch, or the nested dict of its leaves `[B, ...]`; other leaves are put in place of
    # those that change.
    # is_new: which rows get a goal, bool `[B]`.
    # goals: of these rows, `[M, ...]`.
    stored = _leaf(rows, keys.desired)
    is_new = is_new.to(stored.device)  # goals are drawn on the CPU
    desired = _with_goals(stored, is_new, goals.to(stored.device), keys)
    put(rows, keys.desired, desired)
    if entry(rows, ("next", *keys.desired)) is not None:
        put(rows, ("next", *keys.desired), desired.clone())  # no memory that another leaf has
    follow(rows, is_new, _leaf(rows, keys.reached), desired, keys, rule)


def follow(
    rows: Tree | TensorDictBase,
    is_new: torch.Tensor,
    achieved: torch.Tensor,
    desired: torch.Tensor,
    keys: GoalKeys,
    rule: GoalRule,
) -> None:
    """Put what follows from goals into gathered rows, of which some are new."""
    # A trajectory still ends where it did: where its last step terminated and does not with the new
    # goal, it is truncated. One that now terminates earlier is done there.
    batch = _batch(rows, is_new)
    before = None if rule.terminated is None else _flags(rows, TERMINATED)
    for key, function, name in (
        (keys.reward, rule.reward, "reward"),
        (keys.success, rule.success if entry(rows, keys.success) is not None else None, "success"),
        (TERMINATED, rule.terminated, "terminated"),
    ):
        if function is not None:
            _replace(rows, key, is_new, function(achieved, desired, batch), name)
    if before is not None:
        _mend_ends(rows, is_new, before)


def _replace(
    rows: Tree | TensorDictBase, key: Key, is_new: torch.Tensor, result: Numbers, name: str
) -> None:
    """Put what a function of the rule returned in place of an entry, in rows with new goals."""
    stored, values = _leaf(rows, key), as_tensor(result)
    if values.shape not in (stored.shape, stored.shape[:1]) or (
        not torch.can_cast(values.dtype, stored.dtype)
    ):
        raise UsageError(
            f"The rule's {name} must be {stored.dtype} {list(stored.shape)}, as {show_key(key)} "
            f"is, or {list(stored.shape[:1])}; it returned {values.dtype} {list(values.shape)}. "
            "Return one number a row."
        )
    fresh = values.to(stored).reshape(stored.shape)
    put(rows, key, torch.where(_beside(is_new, stored), fresh, stored))


def _batch(rows: Tree | TensorDictBase, is_new: torch.Tensor) -> TensorDictBase:
    """Return rows as a batch ``[B]`` of the same tensors."""
    if isinstance(rows, TensorDictBase):
        return rows.copy()
    return make_batch(_tensors(rows), is_new.shape, is_new.device)


def _with_goals(
    stored: torch.Tensor, is_new: torch.Tensor, goals: torch.Tensor, keys: GoalKeys
) -> torch.Tensor:
    """Return the desired goals ``[B, ...]`` with new ones in their places."""
    if goals.dtype != stored.dtype or goals.shape[1:] != stored.shape[1:]:
        raise UsageError(
            f"{show_key(keys.reached)} is {goals.dtype} {list(goals.shape[1:])} a row, and cannot "
            f"be a goal: {show_key(keys.desired)} is {stored.dtype} {list(stored.shape[1:])}. "
            "Write rows in which both have the same form."
        )
    desired = stored.clone()
    desired[is_new] = goals
    return desired


def _mend_ends(rows: Tree | TensorDictBase, is_new: torch.Tensor, before: torch.Tensor) -> None:
    """Let the other flags be what they must beside other terminations."""
    # is_new: which rows have a new goal, bool `[B]`.
    # before: the stored `terminated` `[B, ...]`.
    terminated, done = _flags(rows, TERMINATED), _flags(rows, DONE)
    put(rows, DONE, done | terminated & _beside(is_new, done))
    if entry(rows, TRUNCATED) is not None:
        put(rows, TRUNCATED, _flags(rows, TRUNCATED) | before & ~terminated)


def _beside(is_new: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
    """Return a mask of rows ``[B]`` in as many dimensions as a leaf ``[B, ...]``."""
    return is_new.view(-1, *(1,) * (leaf.ndim - 1))


def _leaf(rows: Tree | TensorDictBase, key: Key) -> torch.Tensor:
    """Return a leaf as a tensor, where it is an array of numpy too."""
    leaf = _tensor(entry(rows, key))
    if not isinstance(leaf, torch.Tensor):
        kind = "missing from some rows" if leaf is None else type(leaf).__name__
        raise UsageError(f"{show_key(key)} is {kind}; goals need one tensor of all rows.")
    return leaf


def _flags(rows: Tree | TensorDictBase, key: Key) -> torch.Tensor:
    flags = _leaf(rows, key)
    if flags.dtype != torch.bool:
        raise UsageError(f"{show_key(key)} is {flags.dtype}, not a flag. Write it as bool.")
    return flags


def _tensors(rows: Tree) -> Tree:
    """Return the nested dict with tensors of the same memory in place of arrays."""
    return {
        name: _tensors(leaf) if type(leaf) is dict else _tensor(leaf) for name, leaf in rows.items()
    }


def _tensor(leaf: Any) -> Any:
    return to_tensor(leaf) if isinstance(leaf, np.ndarray) else leaf


class RelabelGoal(Transform):
    """Makes the reward of each step anew, from what it achieved.

    A transform of batches, or the function of ``preprocess``. What the rule says of ``terminated``,
    as ``terminates=True`` does, changes ``done`` and ``truncated``, too; and
    ``("next", "info", "success")`` is made anew where rows have it. A step that terminated and
    whose next state is not recorded, but zeros, keeps what is stored.

    Args:
        rule: what follows from a goal: ``GoalRule.sparse(0.5, terminates=True)``.
        achieved: where rows have what their step achieved: as many numbers of it, the first ones,
            as a goal has.
        goal: where they have their goal; or the numbers of one goal of all.
    """

    def __init__(
        self,
        rule: GoalRule,
        *,
        achieved: NestedKey = ("next", "observation", "achieved_goal"),
        goal: NestedKey | Sequence[float] = ("next", "observation", "desired_goal"),
    ) -> None:
        self.rule, self.achieved, self.goal = rule, key_of(achieved), goal

    def __call__(self, batch: TensorDict) -> TensorDict:
        rows = batch.reshape(-1)
        reached = required_entry(rows, self.achieved, "RelabelGoal").reshape(len(rows), -1)
        if isinstance(self.goal[0], str):
            key = key_of(cast(NestedKey, self.goal))
            desired = required_entry(rows, key, "RelabelGoal").reshape(len(rows), -1)
        else:
            dtype = reached.dtype if reached.is_floating_point() else torch.float64
            desired = torch.as_tensor(self.goal, dtype=dtype, device=reached.device)
            desired = desired.expand(len(rows), -1)  # a rule is given a goal for each row
        if (size := desired.shape[1]) > reached.shape[1]:
            name = show_key(self.achieved)
            raise UsageError(f"A goal is {size} numbers, and {name} is fewer. Name another.")
        ended = required_entry(rows, TERMINATED, "RelabelGoal").reshape(-1)
        is_known = ~(ended & (reached == 0).all(1))
        required_entry(rows, REWARD, "RelabelGoal")
        keys = GoalKeys(self.achieved, self.achieved, REWARD)
        follow(rows, is_known, reached[:, :size], desired, keys, self.rule)
        return rows.reshape(batch.batch_size)
