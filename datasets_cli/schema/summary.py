"""The second pass over written rows: episode numbers, trajectory offsets, statistics.

It reads the files of ``next.done`` and ``next.reward`` in chunks, so its memory does not grow with
the dataset, and rows may be written in any order. Statistics of blocks are merged as in Chan, Golub
and LeVeque (1979).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar

import numpy as np

from datasets_cli.schema.columns import EPISODE, Column
from datasets_cli.schema.trajectories import (
    lengths_of,
    numbers_of,
    offsets_from_ends,
    runs_within,
)
from datasets_cli.schema.transitions import NO_EPISODE

Number = TypeVar("Number", float, np.ndarray)
CHUNK_ROWS = 1 << 20
FINAL_EPISODE = Column(EPISODE, "int64", ())


@dataclass
class RunningMoments(Generic[Number]):
    """Count, mean and squared deviations of the blocks so far."""

    # count: an int, or an array with a count for each column.

    mean: Number
    squares: Number
    count: Any = 0

    def merge(self, mean: Number, squares: Number, count: Any) -> None:
        """Add the moments of another block; an empty block has zeros."""
        total = self.count + count
        some = np.maximum(total, 1)
        delta = mean - self.mean
        # Deviations from the common mean: within each block, and between the means of the blocks.
        self.squares = self.squares + squares
        self.squares = self.squares + delta * delta * self.count * count / some
        self.mean = self.mean + delta * count / some
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
        with np.errstate(all="ignore"):  # NaN and infinity are valid numbers here
            mean = float(values.mean())
            squares = float(((values - mean) ** 2).sum())
            self.moments.merge(mean, squares, len(values))
        # numpy propagates NaN; min and max of Python do not.
        self.smallest = float(np.minimum(self.smallest, values.min()))
        self.largest = float(np.maximum(self.largest, values.max()))

    def to_json(self) -> dict[str, float | None]:
        """Return mean, std, min and max; None replaces NaN and infinity, which JSON lacks."""
        mean, count = self.moments.mean, self.moments.count
        deviation = (self.moments.squares / count) ** 0.5 if count else float("nan")
        values = {"mean": mean, "std": deviation, "min": self.smallest, "max": self.largest}
        return {name: value if np.isfinite(value) else None for name, value in values.items()}


def read_column(folder: Path, column: Column) -> Iterator[np.ndarray]:
    """Yield a leaf's rows ``[n, *shape]`` in chunks of about a million rows."""
    count = CHUNK_ROWS * max(1, int(np.prod(column.shape)))
    with (folder / column.filename).open("rb") as file:
        while len(chunk := np.fromfile(file, column.dtype, count)):
            yield chunk.reshape(-1, *column.shape)


def find_offsets(folder: Path, done: Column, num_rows: int) -> np.ndarray:
    """Return the trajectory offsets int64 ``[K + 1]`` from the written ``next.done``."""
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
        file.write(numbers_of(offsets, row, min(row + CHUNK_ROWS, num_rows)).data)


def summarise(
    folder: Path, reward: Column | None, offsets: np.ndarray, final: Path
) -> dict[str, Any]:
    """Return statistics of lengths and undiscounted returns of recorded steps, and of rewards.

    The rewards are those of transitions.
    """
    # reward: the column `next.reward` `[N, 1]`, or None for a dataset without rewards.
    # offsets: int64 `[K + 1]`.
    # final: the folder of the final steps, which exists if there are any.
    path = final / FINAL_EPISODE.filename
    episodes = np.fromfile(path, np.int64) if path.exists() else np.zeros(0, np.int64)
    own = np.flatnonzero(episodes != NO_EPISODE)
    row_counts, lengths = lengths_of(offsets), RunningStatistics()
    row_counts[episodes[own]] += 1
    lengths.add(row_counts)
    statistics: dict[str, Any] = {"length": lengths.to_json()}
    if reward is None:
        return statistics
    rewards, sums = RunningStatistics(), np.zeros(len(offsets) - 1)
    row = 0
    for chunk in read_column(folder, reward):
        values = chunk.reshape(len(chunk)).astype(np.float64)
        rewards.add(values)
        # The first trajectory may begin, and the last may end, in another chunk. reduceat sums from
        # each start to the next.
        trajectories, starts = runs_within(offsets, row, row + len(values))
        with np.errstate(all="ignore"):  # of infinities of both signs
            sums[trajectories] += np.add.reduceat(values, starts)
        row += len(values)
    if len(own):
        values = np.fromfile(final / reward.filename, reward.dtype)[own]
        with np.errstate(all="ignore"):
            sums[episodes[own]] += values
    returns = RunningStatistics()
    returns.add(sums)
    return statistics | {"reward": rewards.to_json(), "return": returns.to_json()}
