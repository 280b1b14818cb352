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

TRIED = (256, 4096)
"""Values of a run that are looked at first: most columns have too many distinct ones."""

LANE_NUMBERS = 1024
"""Numbers that are reduced side by side: of short rows, one after the other, numpy makes a call
each, which takes ten times as long."""


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
        values = rows.view(np.uint8) if rows.dtype == np.bool_ else rows
        num_nan, num_infinite = np.zeros((2, rows.shape[1]), np.int64)
        if rows.dtype.kind in "cV":
            low, high = np.full((2, rows.shape[1]), [[np.inf], [-np.inf]])
        else:
            low, high = reduced(np.minimum, values), reduced(np.maximum, values)
            if np.isfinite([low, high]).all():  # of NaN neither is
                ranges = num_nan, num_infinite, low, high
                return cls(len(rows), rows[0].copy(), low == high, *ranges)
            low = reduced(np.minimum, np.where(np.isfinite(rows), rows, np.inf))
            high = reduced(np.maximum, np.where(np.isfinite(rows), rows, -np.inf))
        if rows.dtype.kind in "fc":
            num_nan, num_infinite = np.isnan(rows).sum(0), np.isinf(rows).sum(0)
        is_constant = np.logical_and.reduce(_are_same(rows, rows[0]))
        return cls(len(rows), rows[0].copy(), is_constant, num_nan, num_infinite, low, high)

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
        rows = np.ascontiguousarray(rows)
        self.range = ColumnRange.of(rows)
        count, numbers = self.range.count, rows.astype(np.float64)
        is_finite = None if (count == len(rows)).all() else np.isfinite(numbers)
        with np.errstate(all="ignore"):  # sums of the largest numbers may be infinite
            # Of no finite number the mean is 0, which counts for nothing when runs are joined.
            if is_finite is not None:
                numbers[~is_finite] = 0.0
            mean = reduced(np.add, numbers) / np.maximum(count, 1)
            for wide in _side_by_side(numbers):
                np.subtract(wide, np.tile(mean, wide.shape[1] // max(1, len(mean))), out=wide)
                np.square(wide, out=wide)
            if is_finite is not None:
                numbers[~is_finite] = 0.0
            squares = reduced(np.add, numbers)
        self._moments = RunningMoments(mean, squares, count)
        self._distinct = _distinct(rows if is_finite is None else rows[is_finite])
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
    if len(rows) and np.isfinite(rows).all():
        return _quantiles_of_finite(rows)
    numbers = rows.astype(np.float64)
    finite = np.where(np.isfinite(numbers), numbers, np.nan)
    quantiles = np.full((len(QUANTILES), rows.shape[1]), np.nan)
    known = ~np.isnan(finite).all(0)
    if known.any():
        quantiles[:, known] = np.nanquantile(finite[:, known], QUANTILES, axis=0)
    return quantiles


def _quantiles_of_finite(rows: np.ndarray) -> np.ndarray:
    """Return what ``np.quantile`` does; numbers are partitioned in their own, shorter type."""
    places = np.array(QUANTILES)[:, None] * (len(rows) - 1)
    below = places.astype(np.int64)
    above, weights = np.minimum(below + 1, len(rows) - 1), places - below
    columns = np.array(rows.T, order="C")
    columns.partition(np.unique([below, above]), axis=1)
    low, high = (columns[:, each[:, 0]].T.astype(np.float64) for each in (below, above))
    with np.errstate(all="ignore"):  # two of the largest numbers are infinitely far apart
        step = high - low
        return np.where(weights < 0.5, low + step * weights, high - step * (1 - weights))


def reduced(function: np.ufunc, rows: np.ndarray) -> np.ndarray:
    """Return all rows ``[n, size]`` as one, ``[size]``; n is 1 or more."""
    wide, rest = _side_by_side(rows)
    parts = [function.reduce(wide, 0).reshape(-1, rows.shape[1])] if len(wide) else []
    return function.reduce(np.concatenate([*parts, rest]), 0)  # type: ignore[no-any-return]


def _side_by_side(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return views of rows, several in each, and of the rest: ``[m, k * size]``, ``[r, size]``."""
    size = rows.shape[1]
    num_lanes = max(1, LANE_NUMBERS // max(1, size))
    end = len(rows) // num_lanes * num_lanes
    return rows[:end].reshape(end // num_lanes, num_lanes * size), rows[end:]


def _are_same(rows: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Return which numbers are those of one row; NaN is the same as NaN, though not equal to it."""
    are_same: np.ndarray = rows == first
    if rows.dtype.kind in "fc":
        are_same |= np.isnan(rows) & np.isnan(first)
    return are_same


def _distinct(values: np.ndarray) -> Counter[float] | None:
    """Return how often each of finite values occurs; None where there are more than 64."""
    values = values.reshape(-1)
    if values.dtype == np.bool_:
        num_true = int(np.count_nonzero(values))
        counts_of = {False: len(values) - num_true, True: num_true}
        return Counter({value: count for value, count in counts_of.items() if count})
    for size in TRIED:
        if len(np.unique(values[:size])) > MOST_DISTINCT:
            return None
    values, counts = np.unique(values, return_counts=True)
    if len(values) > MOST_DISTINCT:
        return None
    return Counter(dict(zip(values.tolist(), counts.tolist(), strict=True)))
