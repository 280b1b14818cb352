"""Running statistics of numbers that arrive in blocks (Chan, Golub and LeVeque, 1979)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

Number = TypeVar("Number", float, np.ndarray)


@dataclass
class RunningMoments(Generic[Number]):
    """Count, mean and squared deviations of what arrived so far."""

    mean: Number
    squares: Number
    count: int = 0

    def merge(self, mean: Number, squares: Number, count: int) -> None:
        """Add the moments of another block, which has at least one number."""
        total = self.count + count
        delta = mean - self.mean
        # Deviations from the common mean: those within each block, and that of the blocks' means.
        self.squares = self.squares + squares
        self.squares = self.squares + delta * delta * self.count * count / total
        self.mean = self.mean + delta * count / total
        self.count = total


@dataclass
class RunningStatistics:
    """Count, mean, deviation and range of numbers."""

    moments: RunningMoments[float] = field(default_factory=lambda: RunningMoments(0.0, 0.0))
    smallest: float = float("inf")
    largest: float = float("-inf")

    def add(self, values: np.ndarray) -> None:
        """Add numbers ``[n]``."""
        if not len(values):
            return
        values = values.astype(np.float64)
        with np.errstate(all="ignore"):  # NaN and infinity among the numbers are not our error
            mean = float(values.mean())
            squares = float(((values - mean) ** 2).sum())
        self.moments.merge(mean, squares, len(values))
        # Unlike Python's min and max, numpy's keep a NaN.
        self.smallest = float(np.minimum(self.smallest, values.min()))
        self.largest = float(np.maximum(self.largest, values.max()))

    def to_json(self) -> dict[str, float | None]:
        """Return mean, std, min and max; None for what is not finite, as JSON has no NaN."""
        mean, count = self.moments.mean, self.moments.count
        deviation = (self.moments.squares / count) ** 0.5 if count else float("nan")
        values = {"mean": mean, "std": deviation, "min": self.smallest, "max": self.largest}
        return {name: value if np.isfinite(value) else None for name, value in values.items()}
