"""Chunks: the consecutive rows that a function takes at once.

They end where trajectories end, so that a function of whole trajectories, such as the return to go,
is right. Where they are depends on the dataset and the arguments, and never on the workers.

    trajectory   0 0 0 1 1 2 2 2 2 3      at least 4 rows a chunk
    chunk        0 0 0 0 0 1 1 1 1 2
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from datasets_cli.errors import UsageError
from datasets_cli.store.dataset import Dataset

MAX_TRAJECTORY_BYTES = 1 << 30
"""Rows of one trajectory that are given to a function at once; the function's copies come on top.

The longest of an Atari run, half an hour of play, takes 0.4 GB.
"""


def chunk_bounds(
    offsets: np.ndarray, task_rows: int, row_bytes: int, per: str, id: str
) -> list[tuple[int, int]]:
    """Return first row and one past the last of every chunk, in order; together they are all
    rows.
    """
    # offsets: int64 `[K + 1]`, of the trajectories to read.
    num_rows = int(offsets[-1])
    if per == "transition":
        starts = range(0, num_rows, task_rows)
        return [(start, min(start + task_rows, num_rows)) for start in starts]
    _refuse_long(offsets, row_bytes, id)
    bounds = [0]
    while bounds[-1] < num_rows:
        # The first end at or after the wanted row; the last end is num_rows.
        wanted = min(bounds[-1] + task_rows, num_rows)
        bounds.append(int(offsets[np.searchsorted(offsets, wanted, side="left")]))
    return list(pairwise(bounds))


def first_chunk(offsets: np.ndarray, row_bytes: int, per: str, id: str) -> int:
    """Return how many of the first rows a function is tried on: a trajectory, or two rows."""
    if per == "transition":
        return min(2, int(offsets[-1]))
    _refuse_long(offsets[:2], row_bytes, id)
    return int(offsets[1])


def trajectories_named(dataset: Dataset, start: int, stop: int) -> str:
    """Return the numbers of the trajectories of some rows, as messages name them."""
    places = np.searchsorted(dataset.offsets.numpy(), [start, stop - 1], side="right") - 1
    selection = dataset.selection
    first, last = places if selection is None else selection.numbers[places]
    return f"trajectory {first}" if first == last else f"trajectories {first} to {last}"


def _refuse_long(offsets: np.ndarray, row_bytes: int, id: str) -> None:
    lengths = np.diff(offsets)
    longest = int(lengths.argmax())
    size = int(lengths[longest]) * row_bytes
    if size > MAX_TRAJECTORY_BYTES:
        raise UsageError(
            f"Trajectory {longest} of {id} is too long for a function to take at once: it has "
            f"{lengths[longest]} rows of {row_bytes} bytes, {size / 1e9:.1f} GB, and the limit is "
            f"{MAX_TRAJECTORY_BYTES / 1e9:.1f} GB. If the function looks at rows alone, pass "
            'per="transition" (--per transition), which cuts trajectories.'
        )
