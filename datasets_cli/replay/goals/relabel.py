"""Relabelling: rows with new goals, and the rewards and flags that a rule computes from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from datasets_cli.errors import UnknownKey, UsageError, WrongRows, wrong_value
from datasets_cli.replay.arguments import NestedKey, Numbers, as_tensor, key_of
from datasets_cli.replay.storages.collate import make_batch
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.storages.sequences import dataset_of_rows
from datasets_cli.replay.transforms.transform import Transform, required_entry
from datasets_cli.schema.bits import to_tensor
from datasets_cli.schema.columns import (
    DONE,
    REWARD,
    TERMINATED,
    TRUNCATED,
    Key,
    show_key,
    wrong_column,
)
from datasets_cli.schema.shapes import Mask, RowNumbers
from datasets_cli.schema.tree import Tree, entry, put

RELABELLED = ("relabelled",)
"""The flag of rows with a new goal in a batch."""

SUCCESS = ("next", "info", "success")
"""The flag of successful steps in Minari's rows."""

GoalFunction = Callable[[torch.Tensor, torch.Tensor, TensorDictBase], Numbers]
"""A function of the achieved goals and the desired goals ``[B, ...]``, and of the batch ``[B]``."""


@dataclass(frozen=True)
class GoalRule:
    """The functions that compute rewards and flags from goals, each once for a whole batch.

    Each takes the achieved goals ``[B, ...]``, the desired goals ``[B, ...]``, and the batch, a
    TensorDict ``[B]`` with the desired goals, which it must not modify.

    Args:
        reward: returns rewards, ``[B]`` or in the shape of the stored rewards.
        terminated: returns whether a step ends its trajectory, bool ``[B]``. None keeps the stored
            flags, for goals that do not end a trajectory.
        success: returns whether a step is a success, bool ``[B]``; None keeps the stored flags.
    """

    reward: GoalFunction
    terminated: GoalFunction | None = None
    success: GoalFunction | None = None

    @classmethod
    def sparse(
        cls,
        threshold: float,
        *,
        reached: float = 1.0,
        missed: float = 0.0,
        terminates: bool = False,
    ) -> GoalRule:
        """Return a rule with one reward near the goal, and another one elsewhere.

        Args:
            threshold: the distance up to which the goal is reached.
            reached: the reward there.
            missed: the reward elsewhere.
            terminates: whether exactly the steps that reach the goal end their trajectories;
                otherwise the stored flags stay.

        Raises:
            UsageError: the threshold is negative or not finite.
        """
        is_number = isinstance(threshold, int | float)
        if not is_number or not 0 <= threshold < math.inf:
            raise wrong_value("threshold", "a finite distance, not negative", threshold)
        near = Near(threshold)
        return cls(_Either(near, reached, missed), near if terminates else None, near)


@dataclass(frozen=True)
class Near:
    """A function that returns whether goals are within a Euclidean distance, bool ``[B]``."""

    threshold: float

    def __call__(
        self, achieved: torch.Tensor, desired: torch.Tensor, batch: TensorDictBase
    ) -> torch.Tensor:
        """Return whether each goal ``[B, n]`` was reached."""
        return distance(achieved, desired) <= self.threshold


@dataclass(frozen=True)
class _Either:
    """A function that returns one reward near the goal, and another one elsewhere."""

    near: Near
    reached: float
    missed: float

    def __call__(
        self, achieved: torch.Tensor, desired: torch.Tensor, batch: TensorDictBase
    ) -> torch.Tensor:
        """Return the rewards float64 ``[B]``."""
        near = self.near(achieved, desired, batch).double()
        return near * self.reached + (1 - near) * self.missed


def distance(achieved: torch.Tensor, desired: torch.Tensor) -> torch.Tensor:
    """Return the Euclidean distances ``[B]`` of goals ``[B, n]`` or ``[B]``."""
    apart = (achieved - desired).reshape(len(achieved), -1)
    if not apart.is_floating_point():
        apart = apart.double()
    # Not vector_norm: environments sum squares with numpy, whose rewards are equal bit for bit.
    return apart.square().sum(-1).sqrt()


@dataclass(frozen=True)
class GoalKeys:
    """The keys of goals, and of the entries that a rule computes from them."""

    achieved: Key
    desired: Key
    reward: Key
    success: Key = SUCCESS
    needs_success: bool = False

    @property
    def reached(self) -> Key:
        """The key of the goal that the step achieved."""
        return ("next", *self.achieved)

    def check(self, storage: Storage, rule: GoalRule) -> None:
        """Raise if rows do not have the entries that are read and replaced."""
        self._check_rule(rule)
        if storage.row_batch_size:
            raise WrongRows(
                f"Rows have the batch size {list(storage.row_batch_size)}; goals need single steps "
                "as rows.",
                expected=[],
                found=list(storage.row_batch_size),
                advice="Write steps as rows.",
            )
        if self.reward == REWARD and (dataset := dataset_of_rows(storage)):
            dataset.manifest.check_rewards("a goal in hindsight")
        ends = () if rule.terminated is None else (TERMINATED, DONE)
        success = (self.success,) if self.needs_success else ()
        needed = (self.reached, self.desired, self.reward, *ends, *success)
        if missing := [show_key(key) for key in needed if not storage.has(key)]:
            raise UnknownKey(
                f"Goals need {', '.join(map(show_key, needed))}, and the rows do not have "
                f"{', '.join(missing)} as one tensor.",
                expected=[show_key(key) for key in needed],
                found=missing,
                advice="Name the keys of the rows with achieved_goal_key, desired_goal_key, "
                "reward_key and success_key.",
            )
        if storage.has(RELABELLED):
            raise WrongRows(
                f"The rows already have {show_key(RELABELLED)}, the key of the flags of new goals.",
                key=RELABELLED,
                advice="Rename it.",
            )

    def _check_rule(self, rule: GoalRule) -> None:
        """Raise if the keys contradict each other or the rule."""
        if self.achieved == self.desired:
            raise UsageError(
                f"achieved_goal_key and desired_goal_key are both {show_key(self.achieved)}; "
                "new goals would overwrite the achieved ones.",
                argument="desired_goal_key",
                key=self.desired,
                found=self.desired,
                advice="Name two entries.",
            )
        if self.needs_success and rule.success is None:
            raise UsageError(
                f"success_key={show_key(self.success)!r} needs a rule with a success function.",
                argument="success_key",
                found=self.success,
                advice="Pass success to GoalRule, or leave out success_key.",
            )

    def goals(self, storage: Storage, rows: RowNumbers) -> torch.Tensor:
        """Return the goals that the steps of rows achieved, ``[M, ...]``."""
        goals = storage.entry(self.reached, rows)
        if goals is None:
            raise WrongRows(
                f"Some rows do not have {show_key(self.reached)}.",
                key=self.reached,
                advice="Write it with every row.",
            )
        return goals


def relabel(
    rows: Tree | TensorDictBase,
    is_new: Mask,
    goals: torch.Tensor,
    keys: GoalKeys,
    rule: GoalRule,
) -> None:
    """Write new goals ``[M, ...]`` into gathered rows, and the rewards and flags of these goals.

    Leaves are replaced, not modified. ``is_new`` flags the rows that get a goal.
    """
    stored = _leaf(rows, keys.desired)
    is_new = is_new.to(stored.device)  # goals are drawn on the CPU
    desired = _with_goals(stored, is_new, goals.to(stored.device), keys)
    put(rows, keys.desired, desired)
    if entry(rows, ("next", *keys.desired)) is not None:
        put(rows, ("next", *keys.desired), desired.clone())  # leaves do not share memory
    follow(rows, is_new, _leaf(rows, keys.reached), desired, keys, rule)


def follow(
    rows: Tree | TensorDictBase,
    is_new: Mask,
    achieved: torch.Tensor,
    desired: torch.Tensor,
    keys: GoalKeys,
    rule: GoalRule,
) -> None:
    """Write the rewards and flags of goals into the gathered rows with new goals."""
    # A trajectory still ends at its last step: if the step terminated, but does not with the new
    # goal, it becomes truncated. A step that terminates with the new goal becomes done.
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
        _update_ends(rows, is_new, before)


def _replace(
    rows: Tree | TensorDictBase, key: Key, is_new: Mask, result: Numbers, name: str
) -> None:
    """Replace an entry of rows with new goals by the result of a function of the rule."""
    stored, values = _leaf(rows, key), as_tensor(result)
    if values.shape not in (stored.shape, stored.shape[:1]) or (
        not torch.can_cast(values.dtype, stored.dtype)
    ):
        raise WrongRows(
            f"The rule's {name} must return {stored.dtype} {list(stored.shape)} or "
            f"{list(stored.shape[:1])}, like {show_key(key)}; found {values.dtype} "
            f"{list(values.shape)}.",
            argument="rule",
            key=key,
            expected=f"{stored.dtype} {list(stored.shape)}",
            found=f"{values.dtype} {list(values.shape)}",
            advice="Return one number per row.",
        )
    fresh = values.to(stored).reshape(stored.shape)
    put(rows, key, torch.where(_beside(is_new, stored), fresh, stored))


def _batch(rows: Tree | TensorDictBase, is_new: Mask) -> TensorDictBase:
    """Return rows as a batch ``[B]`` of the same tensors."""
    if isinstance(rows, TensorDictBase):
        return rows.copy()
    return make_batch(_tensors(rows), is_new.shape, is_new.device)


def _with_goals(
    stored: torch.Tensor, is_new: Mask, goals: torch.Tensor, keys: GoalKeys
) -> torch.Tensor:
    """Return the desired goals ``[B, ...]``, replaced by new goals in flagged rows."""
    if goals.dtype != stored.dtype or goals.shape[1:] != stored.shape[1:]:
        expected = f"{stored.dtype} {list(stored.shape[1:])}"
        found = f"{goals.dtype} {list(goals.shape[1:])}"
        raise WrongRows(
            f"{show_key(keys.reached)} is {found} a row, and cannot become a goal: "
            f"{show_key(keys.desired)} is {expected}.",
            key=keys.reached,
            expected=expected,
            found=found,
            advice="Write both with the same dtype and shape.",
        )
    desired = stored.clone()
    desired[is_new] = goals
    return desired


def _update_ends(rows: Tree | TensorDictBase, is_new: Mask, before: torch.Tensor) -> None:
    """Update ``done`` and ``truncated`` after ``terminated`` changed from ``before``."""
    terminated, done = _flags(rows, TERMINATED), _flags(rows, DONE)
    put(rows, DONE, done | terminated & _beside(is_new, done))
    if entry(rows, TRUNCATED) is not None:
        put(rows, TRUNCATED, _flags(rows, TRUNCATED) | before & ~terminated)


def _beside(is_new: Mask, leaf: torch.Tensor) -> torch.Tensor:
    """Return a mask of rows ``[B]`` in as many dimensions as a leaf ``[B, ...]``."""
    return is_new.view(-1, *(1,) * (leaf.ndim - 1))


def _leaf(rows: Tree | TensorDictBase, key: Key) -> torch.Tensor:
    """Return a tensor or numpy array of rows as a tensor."""
    leaf = _tensor(entry(rows, key))
    if not isinstance(leaf, torch.Tensor):
        kind = "missing from some rows" if leaf is None else type(leaf).__name__
        raise wrong_column(key, "one tensor of all rows", kind)
    return leaf


def _flags(rows: Tree | TensorDictBase, key: Key) -> torch.Tensor:
    flags = _leaf(rows, key)
    if flags.dtype != torch.bool:
        raise wrong_column(key, torch.bool, flags.dtype, "Write it as bool.")
    return flags


def _tensors(rows: Tree) -> Tree:
    """Return the nested dict with tensors of the same memory in place of arrays."""
    return {
        name: _tensors(leaf) if type(leaf) is dict else _tensor(leaf) for name, leaf in rows.items()
    }


def _tensor(leaf: Any) -> Any:
    return to_tensor(leaf) if isinstance(leaf, np.ndarray) else leaf


class RelabelGoal(Transform):
    """Recomputes the reward of each step from the goal that it achieved.

    Use it as a transform of batches, or as the function of ``preprocess``. If the rule has
    ``terminated``, as with ``terminates=True``, then ``done`` and ``truncated`` change too;
    ``("next", "info", "success")`` is recomputed if rows have it. A terminated step whose next
    state is not recorded, but zeros, is not changed.

    Args:
        rule: computes rewards from goals: ``GoalRule.sparse(0.5, terminates=True)``.
        achieved: the key of the achieved goal; its first numbers are used, as many as a goal has.
        goal: the key of the goal; or the numbers of one goal for all rows.
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
            desired = desired.expand(len(rows), -1)  # a rule takes a goal for each row
        if (size := desired.shape[1]) > reached.shape[1]:
            name = show_key(self.achieved)
            raise WrongRows(
                f"A goal has {size} numbers; {name} has only {reached.shape[1]}.",
                argument="achieved",
                key=self.achieved,
                expected=f"at least {size} numbers",
                found=reached.shape[1],
                advice="Pass the key of another entry as achieved.",
            )
        ended = required_entry(rows, TERMINATED, "RelabelGoal").reshape(-1)
        is_known = ~(ended & (reached == 0).all(1))
        required_entry(rows, REWARD, "RelabelGoal")
        keys = GoalKeys(self.achieved, self.achieved, REWARD)
        follow(rows, is_known, reached[:, :size], desired, keys, self.rule)
        return rows.reshape(batch.batch_size)
