"""Relabelling: new goals put into gathered rows, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import as_tensor
from datasets_cli.replay.goals.keys import GoalKeys
from datasets_cli.replay.goals.rules import GoalFunction, GoalRule
from datasets_cli.replay.storages.batches import make_batch
from datasets_cli.schema.bits import to_tensor
from datasets_cli.schema.columns import DONE, TERMINATED, TRUNCATED, Key, show_key
from datasets_cli.schema.tree import Tree, entry, put


def relabel(
    rows: Tree | TensorDictBase,
    is_new: torch.Tensor,
    goals: torch.Tensor,
    keys: GoalKeys,
    rule: GoalRule,
) -> None:
    """Put goals into gathered rows, and what follows from them."""
    # A trajectory still ends where it did: where its last step terminated and does not with the new
    # goal, it is truncated. One that now terminates earlier is done there.
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
    achieved, batch = _leaf(rows, keys.reached), _batch(rows, is_new)
    consequences = _Consequences(rows, is_new, achieved, desired, batch)
    consequences.replace(keys.reward, rule.reward, "reward")
    if rule.success is not None and entry(rows, keys.success) is not None:
        consequences.replace(keys.success, rule.success, "success")
    if rule.terminated is not None:
        before = _flags(rows, TERMINATED)
        consequences.replace(TERMINATED, rule.terminated, "terminated")
        _mend_ends(rows, is_new, before)


@dataclass(frozen=True)
class _Consequences:
    """Entries of rows that follow from goals."""

    # is_new: which rows have one, bool `[B]`.
    # achieved: what their steps achieved, `[B, ...]`.
    # desired: their goals `[B, ...]`.
    # batch: the rows with these goals, `[B]`, which share their memory.

    rows: Tree | TensorDictBase
    is_new: torch.Tensor
    achieved: torch.Tensor
    desired: torch.Tensor
    batch: TensorDictBase

    def replace(self, key: Key, function: GoalFunction, name: str) -> None:
        """Put what a function of the rule returns for rows with new goals in place of an entry."""
        stored = _leaf(self.rows, key)
        found = as_tensor(function(self.achieved, self.desired, self.batch))
        if found.shape not in (stored.shape, stored.shape[:1]) or (
            not torch.can_cast(found.dtype, stored.dtype)
        ):
            raise UsageError(
                f"The rule's {name} must be {stored.dtype} {list(stored.shape)}, as "
                f"{show_key(key)} is, or {list(stored.shape[:1])}; it returned {found.dtype} "
                f"{list(found.shape)}. Return one number a row."
            )
        fresh = found.to(stored).reshape(stored.shape)
        put(self.rows, key, torch.where(_beside(self.is_new, stored), fresh, stored))


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
    found = _tensor(entry(rows, key))
    if not isinstance(found, torch.Tensor):
        kind = "missing from some rows" if found is None else type(found).__name__
        raise UsageError(f"{show_key(key)} is {kind}; goals need one tensor of all rows.")
    return found


def _flags(rows: Tree | TensorDictBase, key: Key) -> torch.Tensor:
    found = _leaf(rows, key)
    if found.dtype != torch.bool:
        raise UsageError(f"{show_key(key)} is {found.dtype}, which is no flag. Write it as bool.")
    return found


def _tensors(rows: Tree) -> Tree:
    """Return the nested dict with tensors of the same memory in place of arrays."""
    return {
        name: _tensors(leaf) if type(leaf) is dict else _tensor(leaf) for name, leaf in rows.items()
    }


def _tensor(leaf: Any) -> Any:
    return to_tensor(leaf) if isinstance(leaf, np.ndarray) else leaf
