"""Reductions: one value of each trajectory, made of all its rows of a column.

The rows come in blocks that know nothing of trajectories, so that memory does not grow with them:

    trajectory   0 0 0 0 0 1 1 2 2 2 2
    block        |a a a a|b b b b|c c c|     1 begins in block b and ends there; 0 has a part in a
                                             and one in b, which are joined
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal, get_args

import numpy as np

from datasets_cli.schema.trajectories import lengths_of, runs_within

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
