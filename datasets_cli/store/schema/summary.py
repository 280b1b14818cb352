"""The second pass over written rows: episode numbers, trajectory offsets, statistics.

It reads two narrow files, ``next/done`` and ``next/reward``, in chunks, so that its memory does not
grow with the dataset, and serves rows written in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from datasets_cli.store.schema.columns import Column
from datasets_cli.store.schema.moments import RunningStatistics
from datasets_cli.store.schema.trajectories import (
    lengths_of,
    numbers_of,
    offsets_from_ends,
    runs_within,
)

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
        file.write(numbers_of(offsets, row, min(row + CHUNK_ROWS, num_rows)).data)


def summarise(folder: Path, reward: Column | None, offsets: np.ndarray) -> dict[str, Any]:
    """Return statistics of lengths, rewards and undiscounted returns over all trajectories."""
    # reward: the `next.reward` column `[N, 1]`, or None for a derived dataset without one.
    # offsets: int64 `[K + 1]`.
    lengths = RunningStatistics()
    lengths.add(lengths_of(offsets))
    statistics: dict[str, Any] = {"length": lengths.to_json()}
    if reward is None:
        return statistics
    rewards, sums = RunningStatistics(), np.zeros(len(offsets) - 1)
    row = 0
    for chunk in read_column(folder, reward):
        values = chunk.reshape(len(chunk)).astype(np.float64)
        rewards.add(values)
        # The first of these trajectories may have begun, and the last may end, in another chunk.
        # reduceat adds up from each start to the next.
        trajectories, starts = runs_within(offsets, row, row + len(values))
        with np.errstate(all="ignore"):  # infinities of both signs among rewards are not our error
            sums[trajectories] += np.add.reduceat(values, starts)
        row += len(values)
    returns = RunningStatistics()
    returns.add(sums)
    return statistics | {"reward": rewards.to_json(), "return": returns.to_json()}
