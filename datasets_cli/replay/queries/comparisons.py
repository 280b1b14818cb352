"""Comparisons: numbers of trajectories, or of their rows, against others."""

from __future__ import annotations

import math
import operator
import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import NestedKey
from datasets_cli.replay.episodes.reductions import Reduction, reduce_blocks
from datasets_cli.replay.queries.criteria import Keys, leaves_of
from datasets_cli.replay.queries.leaves import Leaves, find_leaf
from datasets_cli.replay.queries.trajectory import Trajectory
from datasets_cli.store.schema.columns import Key, show_key

Sign = Literal["<", "<=", ">", ">=", "==", "!="]
OPERATORS: dict[Sign, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
OVER_ENTRIES: dict[str, Callable[..., np.ndarray]] = {
    "sum": np.sum,
    "mean": np.mean,
    "max": np.max,
    "min": np.min,
    "any": np.any,
    "all": np.all,
}
"""How the numbers of one row become one, after the rows of a trajectory did."""

Value = bool | int | float
Values = Value | np.ndarray


@dataclass(frozen=True)
class Length:
    """The number of rows of each trajectory."""

    keys: Keys = frozenset()

    def values(self, leaves: Leaves) -> np.ndarray:
        """Return it of each trajectory, int64 ``[K]``."""
        return leaves.lengths


@dataclass(frozen=True)
class Reduced:
    """All numbers of an entry in all rows of each trajectory, reduced to one."""

    key: Key
    reduction: Reduction

    @property
    def keys(self) -> Keys:
        """The entry, as it is named."""
        return frozenset({nested(self.key)})

    def values(self, leaves: Leaves) -> np.ndarray:
        """Return it of each trajectory, ``[K]``."""
        key = find_leaf(leaves, self.key)
        found = leaves.reduce(key, self.reduction)
        shape = found.shape[1:]
        if math.prod(shape) == 1:
            return found.reshape(len(found))
        over_entries = OVER_ENTRIES.get(self.reduction)
        if over_entries is None or not math.prod(shape):
            raise UsageError(
                f"{show_key(key)} is {list(shape)} numbers a row, of which {self.reduction}() "
                "makes no single one. Give query() a function of a trajectory, such as "
                "lambda found: found.observation[0, 2] > 1."
            )
        with np.errstate(invalid="ignore", over="ignore"):  # NaN and infinity are results
            return over_entries(found, axis=tuple(range(1, found.ndim)))


Measure = Length | Reduced


@dataclass(frozen=True)
class Compared:
    """A number of each trajectory against another one, or against one for all."""

    one: Measure
    sign: Sign
    other: Measure | Value
    reads_leaves: bool = True

    @property
    def keys(self) -> Keys:
        """What both read."""
        return self.one.keys | (self.other.keys if isinstance(self.other, Measure) else frozenset())

    def mask(self, leaves: Leaves) -> np.ndarray:
        """Return which trajectories it is true of, bool ``[K]``."""
        other = self.other.values(leaves) if isinstance(self.other, Measure) else self.other
        return _compare(self.one.values(leaves), self.sign, other)

    def holds(self, trajectory: Trajectory) -> bool:
        """Tell whether it is true of one trajectory."""
        return bool(self.mask(leaves_of(trajectory))[0])


@dataclass(frozen=True, eq=False)
class RowsCompared:
    """The numbers of each row against others: whether that is true of any, or of all."""

    key: Key
    sign: Sign
    other: Values
    reduction: Literal["any", "all"]
    reads_leaves: bool = True

    @property
    def keys(self) -> Keys:
        """The entry, as it is named."""
        return frozenset({nested(self.key)})

    def mask(self, leaves: Leaves) -> np.ndarray:
        """Return which trajectories it is true of, bool ``[K]``."""
        key = find_leaf(leaves, self.key)
        found = np.empty(len(leaves.lengths), np.bool_)
        offsets = np.concatenate(([0], leaves.lengths.cumsum()))
        blocks = (self._rows(key, block) for block in leaves.blocks(key))
        reduce_blocks(self.reduction, blocks, offsets, found)
        return found

    def holds(self, trajectory: Trajectory) -> bool:
        """Tell whether it is true of one trajectory."""
        return bool(self.mask(leaves_of(trajectory))[0])

    def _rows(self, key: Key, block: np.ndarray) -> np.ndarray:
        """Return which rows of a block ``[n, ...]`` it is true of, bool ``[n]``."""
        if not _broadcasts(np.shape(self.other), block.shape[1:]):
            raise UsageError(
                f"{show_key(key)} is {list(block.shape[1:])} numbers a row, which cannot be "
                f"compared with {list(np.shape(self.other))}."
            )
        is_true = _compare(block, self.sign, self.other)
        return OVER_ENTRIES[self.reduction](is_true, axis=tuple(range(1, is_true.ndim)))


def nested(key: Key) -> NestedKey:
    """Return a key as TorchRL writes it: a name, or a tuple of several."""
    return key[0] if len(key) == 1 else key


def values_of(other: Any) -> Values:
    """Return what a user compares with: a number, or an array of several."""
    if isinstance(other, torch.Tensor):
        other = other.detach().cpu().numpy()
    if isinstance(other, np.ndarray | np.generic) and other.dtype.kind in "biuf":
        # One number takes the precision of the rows, as it does in torch.
        return other.item() if other.size == 1 else np.array(other)
    if isinstance(other, bool | int | float):
        return other
    raise UsageError(
        f"Trajectories are compared with numbers, not with {type(other).__name__} "
        f"{reprlib.repr(other)}. Give query() a function of a trajectory for anything else."
    )


def _compare(one: np.ndarray, sign: Sign, other: Any) -> np.ndarray:
    """Return what is true of each number of an array, bool of its shape."""
    with np.errstate(all="ignore"):  # a number above the rows' type is infinite there, as in torch
        found: np.ndarray = OPERATORS[sign](one, other)
    return found


def _broadcasts(shape: tuple[int, ...], rows: tuple[int, ...]) -> bool:
    """Tell whether numbers of a shape are compared with those of a row without adding any."""
    try:
        return np.broadcast_shapes(shape, rows) == rows
    except ValueError:
        return False
