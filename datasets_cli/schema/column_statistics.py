"""Statistics of one column, number by number of a row: of runs of its rows, which are joined."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from datasets_cli.schema.summary import RunningMoments

QUANTILES = (0.01, 0.1, 0.5, 0.9, 0.99)
MEASURES = (
    *("count", "mean", "std", "min", "max", "nan", "infinite", "constant"),
    *("q01", "q10", "q50", "q90", "q99"),
)
"""What there is of each number, in the order of the kept array."""

MOST_DISTINCT = 64
MOST_PIECES = 16
"""Of a sample: many small arrays that stay between large ones that go would hold their memory."""

TRIED = 4096
"""Values of a run that are looked at first: most columns have too many distinct ones."""


@dataclass
class ColumnRange:
    """What each number of a row was: the smallest and largest finite one, NaN, always the same.

    Where none was finite, or they have no order, the smallest is above the largest.
    """

    num_rows: int
    first: np.ndarray
    is_constant: np.ndarray
    num_nan: np.ndarray
    num_infinite: np.ndarray
    smallest: np.ndarray
    largest: np.ndarray

    @classmethod
    def of(cls, rows: np.ndarray) -> ColumnRange:
        """Return that of rows ``[n, size]`` of any type of numpy's; n is 1 or more."""
        low, high = (rows.view(np.uint8),) * 2 if rows.dtype == np.bool_ else (rows, rows)
        num_nan, num_infinite = np.zeros((2, rows.shape[1]), np.int64)
        if rows.dtype.kind in "fc":
            num_nan, num_infinite = np.isnan(rows).sum(0), np.isinf(rows).sum(0)
        if rows.dtype.kind in "cV":
            low, high = np.full((1, rows.shape[1]), np.inf), np.full((1, rows.shape[1]), -np.inf)
        elif (num_nan + num_infinite).any():
            is_finite = np.isfinite(rows)
            low, high = np.where(is_finite, rows, np.inf), np.where(is_finite, rows, -np.inf)
        is_constant = np.logical_and.reduce(_are_same(rows, rows[0]))
        limits = low.min(0), high.max(0)
        return cls(len(rows), rows[0].copy(), is_constant, num_nan, num_infinite, *limits)

    @property
    def count(self) -> np.ndarray:
        """How many are finite, ``[size]``."""
        count: np.ndarray = self.num_rows - self.num_nan - self.num_infinite
        return count

    @property
    def whole(self) -> tuple[float | None, float | None]:
        """The smallest and the largest of all numbers of a row; None where none is finite."""
        known = self.smallest <= self.largest
        if not known.any():
            return None, None
        return self.smallest[known].min().item(), self.largest[known].max().item()

    def join(self, other: ColumnRange) -> None:
        """Add that of other rows."""
        self.num_rows += other.num_rows
        self.is_constant &= other.is_constant & _are_same(other.first, self.first)
        self.num_nan += other.num_nan
        self.num_infinite += other.num_infinite
        self.smallest = np.minimum(self.smallest, other.smallest)
        self.largest = np.maximum(self.largest, other.largest)


class ColumnStatistics:
    """Statistics of each number of a row, of rows ``[n, size]`` of bool, integers or floats.

    Mean, deviation and range are those of finite numbers; NaN and infinities are counted.
    """

    # sampled: the numbers of rows that quantiles are taken of, int64 `[m]`.

    def __init__(self, rows: np.ndarray, sampled: np.ndarray) -> None:
        self.range = ColumnRange.of(rows)
        count, numbers = self.range.count, rows.astype(np.float64)
        is_finite = np.isfinite(numbers)
        with np.errstate(all="ignore"):  # sums of the largest numbers may be infinite
            # Of no finite number the mean is 0, which counts for nothing when runs are joined.
            mean = np.where(is_finite, numbers, 0.0).sum(0) / np.maximum(count, 1)
            squares = (np.where(is_finite, numbers - mean, 0.0) ** 2).sum(0)
        self._moments = RunningMoments(mean, squares, count)
        self._distinct = _distinct(rows)
        self._sampled = [rows[sampled]]

    def join(self, following: ColumnStatistics) -> None:
        """Add those of rows that follow."""
        self.range.join(following.range)
        moments = following._moments
        with np.errstate(all="ignore"):
            self._moments.merge(moments.mean, moments.squares, moments.count)
        if self._distinct is not None and following._distinct is not None:
            self._distinct.update(following._distinct)
        if following._distinct is None or len(self._distinct or ()) > MOST_DISTINCT:
            self._distinct = None
        self._sampled += following._sampled
        if len(self._sampled) > MOST_PIECES:
            self._sampled = [np.concatenate(self._sampled)]

    @property
    def distinct(self) -> dict[float, int] | None:
        """How often each value occurs among all finite numbers; None for more than 64 values."""
        return None if self._distinct is None else dict(sorted(self._distinct.items()))

    def measures(self) -> np.ndarray:
        """Return ``MEASURES`` of each number, float64 ``[13, size]``; NaN where nothing has one."""
        moments, count = self._moments, self.range.count
        deviation = np.sqrt(moments.squares / np.maximum(count, 1))
        finite = np.stack([moments.mean, deviation, self.range.smallest, self.range.largest])
        finite[:, count == 0] = np.nan
        counts = self.range.num_nan, self.range.num_infinite, self.range.is_constant
        return np.vstack([count, finite, *counts, quantiles_of(np.concatenate(self._sampled))])

    def quantiles(self) -> np.ndarray:
        """Return quantiles of all sampled numbers together, float64 ``[5]``."""
        return quantiles_of(np.concatenate(self._sampled).reshape(-1, 1))[:, 0]


def quantiles_of(rows: np.ndarray) -> np.ndarray:
    """Return quantiles of the finite numbers of each column of ``[n, size]``, ``[5, size]``."""
    numbers = rows.astype(np.float64)
    finite = np.where(np.isfinite(numbers), numbers, np.nan)
    quantiles = np.full((len(QUANTILES), rows.shape[1]), np.nan)
    known = ~np.isnan(finite).all(0)
    if known.any():
        quantiles[:, known] = np.nanquantile(finite[:, known], QUANTILES, axis=0)
    return quantiles


def _are_same(rows: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Return which numbers are those of one row; NaN is the same as NaN, though not equal to it."""
    are_same: np.ndarray = rows == first
    if rows.dtype.kind in "fc":
        are_same |= np.isnan(rows) & np.isnan(first)
    return are_same


def _distinct(rows: np.ndarray) -> Counter[float] | None:
    """Return how often each finite value occurs; None where there are more than 64."""
    values = rows[np.isfinite(rows)]
    if len(np.unique(values[:TRIED])) > MOST_DISTINCT:
        return None
    values, counts = np.unique(values, return_counts=True)
    if len(values) > MOST_DISTINCT:
        return None
    return Counter(dict(zip(values.tolist(), counts.tolist(), strict=True)))
