"""Reductions: one value of each trajectory, made of all its rows of a column.

The rows come in blocks that know nothing of trajectories, so that memory does not grow with them:

    trajectory   0 0 0 0 0 1 1 2 2 2 2
    block        |a a a a|b b b b|c c c|     1 begins in block b and ends there; 0 has a part in a
                                             and one in b, which are joined
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Iterable, Iterator
from typing import Literal, get_args

import numpy as np

from datasets_cli.replay.trajectories.kept import kept_array, values_of_view
from datasets_cli.schema.columns import Column, rows_per_block
from datasets_cli.schema.element_types import NUMPY_TYPES
from datasets_cli.schema.trajectories import lengths_of, runs_within
from datasets_cli.store.arrays import ArraySource, plain_numbers
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.content import canonical_json
from datasets_cli.system_errors import check_memory

Reduction = Literal["max", "min", "sum", "mean", "first", "last", "any", "all"]
REDUCTIONS: tuple[str, ...] = get_args(Reduction)

UFUNCS = {
    "max": np.maximum,
    "min": np.minimum,
    "sum": np.add,
    "mean": np.add,
    "any": np.logical_or,
    "all": np.logical_and,
}
"""Reductions of several numbers; the first and the last are of rows alone."""

AS_FLOAT32 = frozenset(
    {"bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"}
)
"""Element types that numpy does not have, whose every number float32 has."""

BLOCK_ROWS = 16_384
"""At most; records of 11 leaves take a third less time so than with four times as many rows."""


def reduced_leaf(
    dataset: ArraySource, column: Column, reduction: str, root: CacheRoot | None
) -> np.ndarray:
    """Return a reduction of a leaf ``[K, *shape]`` of a dataset or a view, kept of a dataset."""
    of_rows = block_dtype(column)
    assert of_rows is not None, "a leaf of numbers"
    dtype = reduced_dtype(reduction, of_rows)
    # A name of a file without an ending; a key may have names that no file can have.
    digest = hashlib.sha256(canonical_json(list(column.key))).hexdigest()[:32]

    def values_of(part: ArraySource) -> np.ndarray:
        form = dtype, (part.num_trajectories, *column.shape)
        # Worked out once, also where it cannot be kept.
        work_out = functools.cache(lambda: [(0, _reduced(part, column, reduction, *form))])
        return kept_array(part, root, f"trajectories-{reduction}-{digest}", form, work_out)

    return values_of_view(dataset, values_of, by_row=False).astype(dtype, copy=False)


def _reduced(
    dataset: ArraySource, column: Column, reduction: str, dtype: np.dtype, shape: tuple[int, ...]
) -> np.ndarray:
    check_memory(math.prod(shape) * dtype.itemsize, dataset.id)
    reduced = np.empty(shape, dtype)
    offsets = dataset.starts
    if reduction in UFUNCS:
        reduce_blocks(reduction, leaf_blocks(dataset, column), offsets, reduced)
        return reduced
    number = 0
    for block in leaf_blocks(
        dataset, column, offsets[:-1] if reduction == "first" else offsets[1:] - 1
    ):
        reduced[number : number + len(block)] = block
        number += len(block)
    return reduced


def reduced_dtype(reduction: str, dtype: np.dtype) -> np.dtype:
    """Return the element type of a reduction of a column of another one."""
    if reduction in ("sum", "mean"):
        return np.dtype(np.float64)
    return np.dtype(np.bool_) if reduction in ("any", "all") else dtype


def reduce_entries(reduction: str, values: np.ndarray) -> np.ndarray:
    """Return a reduction of the numbers of each row of ``[n, ...]``, ``[n]``."""
    with np.errstate(invalid="ignore", over="ignore"):  # NaN and infinity are results
        reduced: np.ndarray = UFUNCS[reduction].reduce(values, axis=tuple(range(1, values.ndim)))
    return reduced / math.prod(values.shape[1:]) if reduction == "mean" else reduced


def reduce_blocks(
    reduction: str, blocks: Iterable[np.ndarray], offsets: np.ndarray, reduced: np.ndarray
) -> None:
    """Put a reduction of the rows of each trajectory into an array."""
    # blocks: all rows in order, each `[n, *shape]`.
    # offsets: of trajectories, int64 `[K + 1]`.
    # reduced: `[K, *shape]`, of the type that `reduced_dtype` gives; it is written.
    ufunc = UFUNCS[reduction]
    row = 0
    for block in blocks:
        # To the type of the result first: sums of float32 in float64, truth of numbers.
        values = block.astype(reduced.dtype, copy=False)
        trajectories, starts = runs_within(offsets, row, row + len(values))
        with np.errstate(invalid="ignore", over="ignore"):  # NaN and infinity are results
            parts = ufunc.reduceat(values, starts, axis=0)
            if offsets[trajectories.start] < row:  # this one began in an earlier block
                parts[0] = ufunc(reduced[trajectories.start], parts[0])
        reduced[trajectories] = parts
        row += len(values)
    if reduction == "mean":
        reduced /= lengths_of(offsets).reshape(-1, *(1,) * (reduced.ndim - 1))


def block_dtype(column: Column) -> np.dtype | None:
    """Return the element type of a leaf's blocks; None where numpy has none for its numbers."""
    if column.dtype in AS_FLOAT32:
        return np.dtype(np.float32)
    return np.dtype(column.dtype) if column.dtype in NUMPY_TYPES else None


def leaf_blocks(
    dataset: ArraySource, column: Column, rows: np.ndarray | None = None
) -> Iterator[np.ndarray]:
    """Yield the rows of a leaf in blocks ``[n, *shape]`` of a few megabytes."""
    # rows: which rows, int64 `[B]`; all in order where None.
    reader = dataset.arrays_of(frozenset({column.key}))
    num_rows = len(dataset) if rows is None else len(rows)
    # By the size of whole rows, which is the same in every layout: sums are, to the last bit.
    step = min(BLOCK_ROWS, rows_per_block(dataset.row_bytes))
    for start in range(0, num_rows, step):
        stop = min(start + step, num_rows)
        read = reader.run(start, stop) if rows is None else reader.gather(rows[start:stop])
        numbers = plain_numbers(read[column.key])
        assert numbers is not None, "a leaf of numbers"
        yield numbers
