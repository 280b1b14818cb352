"""Which trajectories a view has, as what users ask for says it: places in the table."""

from __future__ import annotations

import hashlib
import reprlib
from collections.abc import Callable, Iterable

import numpy as np
import torch

from datasets_cli.errors import OutOfRange, UsageError
from datasets_cli.quantities import counted
from datasets_cli.replay.arguments import whole_number
from datasets_cli.replay.draws.orders import permutation, random_words
from datasets_cli.replay.nested_keys import NestedKey
from datasets_cli.replay.queries.conditions import TrajectoryPredicate
from datasets_cli.replay.queries.expressions import Expression
from datasets_cli.replay.queries.presets import NAMED, preset_of
from datasets_cli.replay.queries.text import TextCondition
from datasets_cli.replay.queries.trajectory import leaves_below
from datasets_cli.replay.trajectories.table import Trajectories
from datasets_cli.schema.bits import to_array
from datasets_cli.schema.columns import Key
from datasets_cli.schema.tree import entry
from datasets_cli.store.dataset import Dataset
from datasets_cli.store.layouts.protocol import LayoutRows
from datasets_cli.store.selection import PRESET, Selection

TrajectoryNumbers = Iterable[int] | np.ndarray | torch.Tensor
"""Whole numbers, those below 0 counted from the end; or a mask, bool ``[K]``."""

Where = str | TrajectoryPredicate | Callable[[Trajectories], TrajectoryNumbers]
"""A condition as text or of ``traj``; or a function of the table: a mask ``[K]``, or numbers."""


def selected(where: Where, dataset: Dataset, rows: Selection, table: Trajectories) -> Selection:
    """Return what a condition, or a preset, leaves of a dataset or a view."""
    if isinstance(where, str):
        if NAMED.match(where):
            name, preset = preset_of(where)
            return rows.runs(*preset.runs(dataset, rows), f"{PRESET}{name!r})")
        places = np.flatnonzero(TextCondition(where, table).mask())
    elif isinstance(where, TrajectoryPredicate):
        places = np.flatnonzero(where.tree.values(table))
    elif isinstance(where, Expression):
        raise where.unfinished
    elif not callable(where):
        raise UsageError(
            "Trajectories are filtered by a text such as 'return > 300', by a condition such as "
            f"traj.length >= 50, or by a function of the table, not by {reprlib.repr(where)}; "
            "episodes_at() takes numbers and masks."
        )
    elif (chosen := where(table)) is None:  # which elsewhere stands for all trajectories
        raise UsageError(
            "The function that trajectories are filtered by gave None, not a mask or numbers. Does "
            "it lack a return?"
        )
    else:
        places = trajectory_numbers(chosen, len(table))
    name = where if isinstance(where, str) else getattr(where, "__qualname__", str(where))
    return rows.at(places, f"filter({name!r})")


def trajectory_numbers(numbers: TrajectoryNumbers | None, num_trajectories: int) -> np.ndarray:
    """Return which of K trajectories are meant, int64 ``[n]``, in the order given."""
    if numbers is None:
        return np.arange(num_trajectories)
    array = _array(numbers)
    if array.dtype == np.bool_ and array.shape == (num_trajectories,):
        return np.flatnonzero(array)
    if not array.size and array.ndim == 1 and array.dtype != np.bool_:
        return np.zeros(0, np.int64)  # numpy takes an empty list for floats
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise UsageError(
            f"Trajectories are chosen by a list of whole numbers, or by a mask of "
            f"{counted(num_trajectories, 'bool')}, not by {array.dtype} {list(array.shape)}: "
            f"{reprlib.repr(numbers)}."
        )
    outside = array[(array < -num_trajectories) | (array >= num_trajectories)]
    if len(outside):
        raise OutOfRange(
            f"There is no trajectory {outside[0]} among {counted(num_trajectories, 'trajectory')}. "
            f"Expected a number from 0 to {num_trajectories - 1}, or from {-num_trajectories} to "
            "-1, counted from the end."
        )
    array = array.astype(np.int64)
    return np.where(array < 0, array + num_trajectories, array)


def _array(numbers: TrajectoryNumbers) -> np.ndarray:
    if isinstance(numbers, torch.Tensor):
        numbers = numbers.tolist()
    try:
        if isinstance(numbers, Iterable) and not isinstance(numbers, str):
            # Lists of several lengths are a ValueError.
            return numbers if isinstance(numbers, np.ndarray) else np.array([*numbers])
    except ValueError:
        pass
    raise UsageError(
        f"Trajectories are chosen by a list of whole numbers, not by {reprlib.repr(numbers)}; "
        "episode(number) returns one."
    )


def split_places(fractions: tuple[float, ...], num_places: int, seed: int) -> list[np.ndarray]:
    """Return disjoint parts of K trajectories, drawn at random, each in the trajectories' order."""
    is_number = all(
        isinstance(part, int | float) and not isinstance(part, bool) and part >= 0
        for part in fractions
    )
    if not fractions or not is_number or sum(fractions) > 1 + 1e-9:
        raise UsageError(
            "split() takes fractions from 0 on that sum up to at most 1, such as split(0.9) or "
            f"split(0.8, 0.1); found {', '.join(map(reprlib.repr, fractions)) or 'none'}."
        )
    order = permutation(num_places, whole_number("seed", seed, 0)).at(np.arange(num_places))
    # Rounded sums, so that the parts of 0.1 ten times differ by one trajectory at most.
    ends = np.rint(np.cumsum(fractions) * num_places).astype(np.int64).clip(max=num_places)
    has_rest = sum(fractions) < 1 - 1e-9
    return [np.sort(part) for part in np.split(order, ends if has_rest else ends[:-1])]


def best_places(
    count: int | float, by: str | None, table: Trajectories, *, smallest: bool
) -> np.ndarray:
    """Return the first trajectories, or those where a column is the largest, int64 ``[n]``."""
    # They are in the order of the column, best first; of equal ones the earlier is better. Where
    # the column is NaN a trajectory is the last.
    num_best = _count(count, len(table))
    if by is None:
        if smallest:
            raise UsageError("take(smallest=True) needs a column to compare: by='return'.")
        return np.arange(num_best)
    values = table[by]
    if values.ndim > 1:
        raise UsageError(
            f"{by} is {list(values.shape[1:])} numbers of a trajectory, which have no order. "
            "Compare one of them: episodes_at(np.argsort(-trajectories[...][:, 0])[:k])."
        )
    keys = values.astype(np.float64)
    return np.argsort(keys if smallest else -keys, kind="stable")[:num_best]


def _count(count: int | float, num_places: int) -> int:
    there = counted(num_places, "trajectory")
    if not isinstance(count, float):
        if (num_taken := whole_number("count", count, 0)) > num_places:
            raise UsageError(f"take({count}) finds only {there}. Take {num_places} at most.")
        return num_taken
    if not 0 <= count <= 1:
        raise UsageError(
            "take() takes a number of trajectories, such as take(10), or a fraction of them from "
            f"0.0 to 1.0, such as take(0.1); found {count}."
        )
    num_taken = round(count * num_places)
    if count and num_places and not num_taken:
        raise UsageError(
            f"take({count}) of {there} would leave none. Take a fraction of at least "
            f"{1 / num_places:.2g}, or a number: take(1)."
        )
    return num_taken


BLOCK_ROWS = 1024
"""Rows that are read at once."""


def compared_keys(keys: Iterable[NestedKey]) -> list[NestedKey]:
    """Return the keys that a user asks to compare, as a list."""
    is_list = isinstance(keys, Iterable) and not isinstance(keys, str)
    compared = [*keys] if is_list else []
    if not compared or not all(isinstance(key, str | tuple) for key in compared):
        raise UsageError(
            "drop_duplicates() compares a list of leaves, such as ['observation', 'action'], or "
            f"all of them where none is given; not {keys!r}."
        )
    return compared


def distinct_places(dataset: Dataset, keys: Iterable[NestedKey] | None) -> np.ndarray:
    """Return the first of each group of equal trajectories, int64 ``[n]``, in their order."""
    leaves = leaves_below(dataset, keys)
    rows = dataset.rows_of(frozenset(leaves))
    offsets = dataset.offsets.numpy()
    # Few trajectories have the length and the first row of another one, and only those are read.
    marks = _marks(rows, leaves, offsets)
    _, groups, sizes = np.unique(marks, axis=0, return_inverse=True, return_counts=True)
    kept = np.ones(len(marks), np.bool_)
    seen: set[bytes] = set()
    alike = np.flatnonzero(sizes[groups.reshape(-1)] > 1)
    for place in alike.tolist():
        digest = _digest(rows, leaves, int(offsets[place]), int(offsets[place + 1]))
        kept[place] = digest not in seen
        seen.add(digest)
    return np.flatnonzero(kept)


def _marks(rows: LayoutRows, leaves: list[Key], offsets: np.ndarray) -> np.ndarray:
    """Return what equal trajectories have in common, uint64 ``[K, 2]``: length, first row's sum."""
    marks = np.empty((len(offsets) - 1, 2), np.uint64)
    marks[:, 0] = np.diff(offsets)
    for begin in range(0, len(marks), BLOCK_ROWS):
        data = _bytes_of(rows, leaves, offsets[begin : begin + BLOCK_ROWS][: len(marks) - begin])
        weights = random_words(0, data.shape[1])
        marks[begin : begin + len(data), 1] = data.astype(np.uint64) @ weights  # of 64 bits
    return marks


def _digest(rows: LayoutRows, leaves: list[Key], start: int, stop: int) -> bytes:
    """Return a digest of the rows ``start`` to ``stop - 1``, read in blocks."""
    hashed = hashlib.blake2b(digest_size=32)
    for begin in range(start, stop, BLOCK_ROWS):
        hashed.update(_bytes_of(rows, leaves, np.arange(begin, min(begin + BLOCK_ROWS, stop))).data)
    return hashed.digest()


def _bytes_of(rows: LayoutRows, leaves: list[Key], index: np.ndarray) -> np.ndarray:
    """Return the bytes of rows int64 ``[B]``, uint8 ``[B, n]``."""
    tree = rows.gather(torch.from_numpy(np.ascontiguousarray(index)))
    parts = (np.ascontiguousarray(to_array(entry(tree, key).cpu())) for key in leaves)
    return np.concatenate([_as_bytes(part) for part in parts], axis=1)


def _as_bytes(values: np.ndarray) -> np.ndarray:
    return values.reshape(len(values), -1).view(np.uint8).reshape(len(values), -1)
