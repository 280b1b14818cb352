"""Statistics of one column, number by number of a row, over blocks of its rows."""

from __future__ import annotations

import numpy as np

QUANTILES = (0.01, 0.1, 0.5, 0.9, 0.99)
MEASURES = (
    *("count", "mean", "std", "min", "max", "nan", "infinite", "constant"),
    *("q01", "q10", "q50", "q90", "q99"),
)
"""What there is of each number, in the order of the kept array."""

MOST_DISTINCT = 64
TRIED = 4096
"""Values of a block that are looked at first: most columns have too many distinct ones."""


class ColumnStatistics:
    """Statistics of each of the ``size`` numbers of a row, of the rows that were added.

    Mean, deviation and range are those of finite numbers; NaN and infinities are counted.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._num_rows = 0
        self._count, self._mean, self._squares = np.zeros((3, size))
        self._smallest, self._largest = np.full(size, np.inf), np.full(size, -np.inf)
        self._num_nan, self._num_infinite = np.zeros((2, size), np.int64)
        self._first: np.ndarray | None = None
        self._is_constant = np.ones(size, bool)
        self._distinct: dict[float, int] | None = {}
        self._sampled: list[np.ndarray] = []

    def add(self, rows: np.ndarray, sampled: np.ndarray) -> None:
        """Add rows ``[n, size]`` of bool, integers or floats; n is 1 or more.

        ``sampled`` are the numbers of those, int64 ``[m]``, that quantiles are taken of.
        """
        if self._first is None:
            self._first = rows[0].copy()
        self._num_rows += len(rows)
        self._sampled.append(rows[sampled])
        is_same = rows == self._first
        if rows.dtype.kind == "f":
            is_nan = np.isnan(rows)
            self._num_nan += is_nan.sum(0)
            self._num_infinite += np.isinf(rows).sum(0)
            # NaN is the same as NaN here, though not equal to it.
            is_same |= is_nan & np.isnan(self._first)
        self._is_constant &= is_same.all(0)
        self._add_distinct(rows)
        self._add_moments(rows.astype(np.float64))

    def _add_moments(self, numbers: np.ndarray) -> None:
        is_finite = np.isfinite(numbers)
        count = is_finite.sum(0)
        if not is_finite.all():
            self._smallest = np.minimum(self._smallest, np.where(is_finite, numbers, np.inf).min(0))
            self._largest = np.maximum(self._largest, np.where(is_finite, numbers, -np.inf).max(0))
            numbers = np.where(is_finite, numbers, 0.0)
        else:
            self._smallest = np.minimum(self._smallest, numbers.min(0))
            self._largest = np.maximum(self._largest, numbers.max(0))
        with np.errstate(all="ignore"):  # sums of the largest numbers may be infinite
            # Of no finite number the mean is 0, which counts for nothing below.
            mean = numbers.sum(0) / np.maximum(count, 1)
            squares = (np.where(is_finite, numbers - mean, 0.0) ** 2).sum(0)
            # Two sets are joined as Chan, Golub and LeVeque (1979) do: deviations within each, and
            # that of the two means.
            total = self._count + count
            delta, share = mean - self._mean, count / np.maximum(total, 1)
            self._squares = self._squares + squares + delta * delta * self._count * share
            self._mean = self._mean + delta * share
        self._count = total

    def _add_distinct(self, rows: np.ndarray) -> None:
        if self._distinct is None:
            return
        values = rows.reshape(-1)
        if rows.dtype.kind == "f":
            values = values[~np.isnan(values)]  # counted by itself; it has no equal
        if len(np.unique(values[:TRIED])) > MOST_DISTINCT:
            self._distinct = None
            return
        for value, count in zip(*np.unique(values, return_counts=True), strict=True):
            self._distinct[value.item()] = self._distinct.get(value.item(), 0) + int(count)
        if len(self._distinct) > MOST_DISTINCT:
            self._distinct = None

    @property
    def distinct(self) -> dict[float, int] | None:
        """How often each value occurs among all numbers; None where there are more than 64."""
        return None if self._distinct is None else dict(sorted(self._distinct.items()))

    def measures(self) -> np.ndarray:
        """Return ``MEASURES`` of each number, float64 ``[13, size]``; NaN where nothing has one."""
        has_none = self._count == 0
        deviation = np.sqrt(self._squares / np.maximum(self._count, 1))
        moments = np.stack([self._mean, deviation, self._smallest, self._largest])
        moments[:, has_none] = np.nan
        counts = [self._num_nan, self._num_infinite, self._is_constant & (self._num_rows > 0)]
        return np.vstack([self._count, moments, *counts, quantiles_of(self._sample())])

    def quantiles(self) -> np.ndarray:
        """Return quantiles of all sampled numbers together, float64 ``[5]``."""
        return quantiles_of(self._sample().reshape(-1, 1))[:, 0]

    def _sample(self) -> np.ndarray:
        return np.concatenate([np.zeros((0, self._size)), *self._sampled])


def quantiles_of(rows: np.ndarray) -> np.ndarray:
    """Return quantiles of the finite numbers of each column of ``[n, size]``, ``[5, size]``."""
    finite = np.where(np.isfinite(rows), rows, np.nan)
    quantiles = np.full((len(QUANTILES), rows.shape[1]), np.nan)
    known = ~np.isnan(finite).all(0)
    if known.any():
        quantiles[:, known] = np.nanquantile(finite[:, known], QUANTILES, axis=0)
    return quantiles
