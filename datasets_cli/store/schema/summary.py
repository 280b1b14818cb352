"""The second pass over written rows: episode numbers, trajectory offsets, statistics.

It reads two narrow files, ``next/done`` and ``next/reward``, in chunks, so that its memory does not
grow with the dataset, and serves rows written in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from datasets_cli.store.schema.columns import Column
from datasets_cli.store.schema.trajectories import offsets_from_ends

CHUNK_ROWS = 1 << 20


def read_column(folder: Path, column: Column) -> Iterator[np.ndarray]:
    """Yield a leaf's rows ``[n, *shape]`` in chunks of about a million rows."""
    count = CHUNK_ROWS * max(1, int(np.prod(column.shape)))
    with (folder / column.filename).open("rb") as file:
        while len(chunk := np.fromfile(file, column.dtype, count)):
            yield chunk.reshape(-1, *column.shape)


def find_offsets(folder: Path, done: Column, num_rows: int) -> np.ndarray:
    """Return the trajectory offsets int64 ``[K + 1]`` that the written ``next.done`` gives."""
    ends: list[np.ndarray] = []
    row = 0
    for chunk in read_column(folder, done):
        ends.append(np.flatnonzero(chunk) + row)
        row += len(chunk)
    return offsets_from_ends(np.concatenate(ends) if ends else np.zeros(0, np.int64), num_rows)


def write_episodes(file: BinaryIO, offsets: np.ndarray) -> None:
    """Write the int64 episode number of every row."""
    num_rows = int(offsets[-1])
    for row in range(0, num_rows, CHUNK_ROWS):
        rows = np.arange(row, min(row + CHUNK_ROWS, num_rows))
        file.write((np.searchsorted(offsets, rows, side="right").astype(np.int64) - 1).data)


@dataclass
class Spread:
    """Count, mean, deviation and range of numbers that arrive in chunks (Chan et al., 1979)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    smallest: float = field(default=float("inf"))
    largest: float = field(default=float("-inf"))

    def add(self, values: np.ndarray) -> None:
        """Add numbers ``[n]``."""
        if not len(values):
            return
        values = values.astype(np.float64)
        with np.errstate(all="ignore"):  # NaN and infinity among the numbers are not our error
            mean, total = float(values.mean()), self.count + len(values)
            delta = mean - self.mean
            self.squares += float(((values - mean) ** 2).sum())
            self.squares += delta * delta * self.count * len(values) / total
        self.mean += delta * len(values) / total
        self.count = total
        # Unlike Python's min and max, numpy's keep a NaN.
        self.smallest = float(np.minimum(self.smallest, values.min()))
        self.largest = float(np.maximum(self.largest, values.max()))

    def to_json(self) -> dict[str, float | None]:
        """Return mean, std, min and max; None for what is not finite, as JSON has no NaN."""
        deviation = (self.squares / self.count) ** 0.5 if self.count else float("nan")
        values = {"mean": self.mean, "std": deviation, "min": self.smallest, "max": self.largest}
        return {name: value if np.isfinite(value) else None for name, value in values.items()}


def summarise(folder: Path, reward: Column | None, offsets: np.ndarray) -> dict[str, Any]:
    """Return statistics of lengths, rewards and undiscounted returns over all trajectories.

    Args:
        folder: where the leaves lie.
        reward: the ``next.reward`` column ``[N, 1]``, or None for a derived dataset without one.
        offsets: int64 ``[K + 1]``.
    """
    lengths = Spread()
    lengths.add(np.diff(offsets))
    statistics: dict[str, Any] = {"length": lengths.to_json()}
    if reward is None:
        return statistics
    rewards, returns = Spread(), np.zeros(len(offsets) - 1)
    row = 0
    for chunk in read_column(folder, reward):
        values = chunk.reshape(len(chunk)).astype(np.float64)
        rewards.add(values)
        first = int(np.searchsorted(offsets, row, side="right")) - 1
        last = int(np.searchsorted(offsets, row + len(values), side="left"))
        starts = np.maximum(offsets[first:last] - row, 0)
        returns[first:last] += np.add.reduceat(values, starts)
        row += len(values)
    spread = Spread()
    spread.add(returns)
    return statistics | {"reward": rewards.to_json(), "return": spread.to_json()}
