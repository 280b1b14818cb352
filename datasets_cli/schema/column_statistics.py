"""Statistics of a column for each number of a row, computed for runs of rows and then joined."""

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
"""The statistics of each number, in the order of the stored array."""

MOST_DISTINCT = 64
MOST_PIECES = 16
"""Maximum arrays of a sample; small arrays between freed large ones would fragment memory."""

TRIED = (256, 4096)
"""Values of a run that are checked first: most columns have too many distinct values."""

LANE_NUMBERS = 1024
"""Numbers that are reduced together; numpy takes ten times as long for single short rows."""


@dataclass
class ColumnRange:
    """The range of each number of a row: smallest and largest finite value, NaN, constant.

    Without finite values, or without an order, the smallest is above the largest.
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
        """Return the range of rows ``[n, size]`` of any numpy dtype; n is 1 or more."""
        values = rows.view(np.uint8) if rows.dtype == np.bool_ else rows
        num_nan, num_infinite = np.zeros((2, rows.shape[1]), np.int64)
        if rows.dtype.kind in "cV":
            low, high = np.full((2, rows.shape[1]), [[np.inf], [-np.inf]])
        else:
            low, high = reduced(np.minimum, values), reduced(np.maximum, values)
            if np.isfinite([low, high]).all():  # not with NaN
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
        """The number of finite values, ``[size]``."""
        count: np.ndarray = self.num_rows - self.num_nan - self.num_infinite
        return count

    @property
    def whole(self) -> tuple[float | None, float | None]:
        """The smallest and the largest of all numbers of a row; None without finite values."""
        known = self.smallest <= self.largest
        if not known.any():
            return None, None
        return self.smallest[known].min().item(), self.largest[known].max().item()

    def join(self, other: ColumnRange) -> None:
        """Add the range of other rows."""
        self.num_rows += other.num_rows
        self.is_constant &= other.is_constant & _are_same(other.first, self.first)
        self.num_nan += other.num_nan
        self.num_infinite += other.num_infinite
        self.smallest = np.minimum(self.smallest, other.smallest)
        self.largest = np.maximum(self.largest, other.largest)


class ColumnStatistics:
    """Statistics of each number of a row, for rows ``[n, size]`` of bool, integers or floats.

    Mean, deviation and range cover finite numbers; NaN and infinities are counted.
    """

    # sampled: the numbers of the rows for quantiles, int64 `[m]`.

    def __init__(self, rows: np.ndarray, sampled: np.ndarray) -> None:
        rows = np.ascontiguousarray(rows)
        self.range = ColumnRange.of(rows)
        count, numbers = self.range.count, rows.astype(np.float64)
        is_finite = None if (count == len(rows)).all() else np.isfinite(numbers)
        with np.errstate(all="ignore"):  # sums of the largest numbers may be infinite
            # Without finite numbers the mean is 0, with the weight 0 when runs are joined.
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
        """Add the statistics of the following rows."""
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
        """The count of each value among all finite numbers; None for more than 64 values."""
        return None if self._distinct is None else dict(sorted(self._distinct.items()))

    def measures(self) -> np.ndarray:
        """Return ``MEASURES`` of each number, float64 ``[13, size]``; NaN if undefined."""
        moments, count = self._moments, self.range.count
        deviation = np.sqrt(moments.squares / np.maximum(count, 1))
        finite = np.stack([moments.mean, deviation, self.range.smallest, self.range.largest])
        finite[:, count == 0] = np.nan
        counts = self.range.num_nan, self.range.num_infinite, self.range.is_constant
        return np.vstack([count, finite, *counts, quantiles_of(np.concatenate(self._sampled))])

    def quantiles(self) -> np.ndarray:
        """Return the quantiles of all sampled numbers together, float64 ``[5]``."""
        return quantiles_of(np.concatenate(self._sampled).reshape(-1, 1))[:, 0]


def quantiles_of(rows: np.ndarray) -> np.ndarray:
    """Return the quantiles ``[5, size]`` of the finite numbers in each column of ``[n, size]``."""
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
    """Return the same as ``np.quantile``, but partition the numbers in their shorter dtype."""
    places = np.array(QUANTILES)[:, None] * (len(rows) - 1)
    below = places.astype(np.int64)
    above, weights = np.minimum(below + 1, len(rows) - 1), places - below
    columns = np.array(rows.T, order="C")
    columns.partition(np.unique([below, above]), axis=1)
    low, high = (columns[:, each[:, 0]].T.astype(np.float64) for each in (below, above))
    with np.errstate(all="ignore"):  # the difference of the largest numbers is infinite
        step = high - low
        return np.where(weights < 0.5, low + step * weights, high - step * (1 - weights))


def reduced(function: np.ufunc, rows: np.ndarray) -> np.ndarray:
    """Reduce rows ``[n, size]`` to ``[size]``; n is 1 or more."""
    wide, rest = _side_by_side(rows)
    parts = [function.reduce(wide, 0).reshape(-1, rows.shape[1])] if len(wide) else []
    return function.reduce(np.concatenate([*parts, rest]), 0)  # type: ignore[no-any-return]


def _side_by_side(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return views of k rows each, and of the remaining rows: ``[m, k * size]``, ``[r, size]``."""
    size = rows.shape[1]
    num_lanes = max(1, LANE_NUMBERS // max(1, size))
    end = len(rows) // num_lanes * num_lanes
    return rows[:end].reshape(end // num_lanes, num_lanes * size), rows[end:]


def _are_same(rows: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Return a mask of the numbers that equal those of one row; NaN equals NaN."""
    are_same: np.ndarray = rows == first
    if rows.dtype.kind in "fc":
        are_same |= np.isnan(rows) & np.isnan(first)
    return are_same


def _distinct(values: np.ndarray) -> Counter[float] | None:
    """Return the count of each finite value; None for more than 64 values."""
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
