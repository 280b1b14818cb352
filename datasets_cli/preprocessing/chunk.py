"""Chunks: consecutive rows of a dataset that a function gets together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from tensordict import TensorDict

from datasets_cli.errors import WrongSize, argument
from datasets_cli.replay.storages.dataset import DatasetStorage
from datasets_cli.schema.trajectories import ends_of, trajectory_of
from datasets_cli.store.dataset import Dataset

PER_ROW = '"transition"'
MAX_TRAJECTORY_BYTES = 1 << 30
"""The limit on the rows of one trajectory, which a function gets together.

The longest trajectory of an Atari run, half an hour of play, takes 0.4 GB.
"""


@dataclass(frozen=True)
class RowChunk:
    """Consecutive rows of a dataset; their numbers count from the first row of the run."""

    dataset: Dataset
    start: int
    stop: int
    first: int = 0  # the number of the dataset's first row

    def __len__(self) -> int:
        return self.stop - self.start

    def __str__(self) -> str:
        """The rows and their trajectories, for messages."""
        bounds = np.array([self.start, self.stop - 1]) - self.first
        places = trajectory_of(self.dataset.offsets.numpy(), bounds)
        selection = self.dataset.selection
        one, last = places if selection is None else selection.numbers[places]
        named = f"trajectory {one}" if one == last else f"trajectories {one} to {last}"
        return f"rows {self.start} to {self.stop - 1} of {self.dataset.id} ({named})"

    def read(self) -> TensorDict:
        """Return a copy of the rows, ``[n]``."""
        start, stop = self.start - self.first, self.stop - self.first
        return DatasetStorage(self.dataset).run(start, stop)

    def by_trajectory(self) -> list[RowChunk]:
        """Return the chunk, cut at the ends of trajectories."""
        inner = self.dataset.offsets.numpy() + self.first
        inner = inner[(inner > self.start) & (inner < self.stop)]
        bounds = pairwise([self.start, *inner.tolist(), self.stop])
        return [replace(self, start=start, stop=stop) for start, stop in bounds]

    def numbers_of(self, kept: np.ndarray | None) -> np.ndarray:
        """Return the numbers of the kept rows, int64 ``[k]``; ``kept`` is bool ``[n]`` or None."""
        places = np.arange(len(self)) if kept is None else np.flatnonzero(kept)
        return places + self.start

    def ends_of(self, kept: np.ndarray | None) -> np.ndarray:
        """Return whether each kept row is the last of its piece, bool ``[k]``."""
        start, stop = self.start - self.first, self.stop - self.first
        places = self.numbers_of(kept) - self.start
        # A gap ends a piece, too; so does the last row of the chunk, as no place is -1.
        is_end: np.ndarray = ends_of(self.dataset.offsets.numpy(), start, stop)[places]
        is_end[np.diff(places, append=-1) != 1] = True
        return is_end


def chunk_bounds(
    offsets: np.ndarray, task_rows: int, row_bytes: int, per: str, id: str
) -> list[tuple[int, int]]:
    """Return the first row of every chunk and one past its last; together they are all rows."""
    # offsets: of the trajectories, int64 `[K + 1]`.
    num_rows = int(offsets[-1])
    if per == "transition":
        starts = range(0, num_rows, task_rows)
        return [(start, min(start + task_rows, num_rows)) for start in starts]
    _refuse_long(offsets, row_bytes, id)
    bounds = [0]
    while bounds[-1] < num_rows:
        # Up to the first end at or after the wanted row; the last end is num_rows.
        wanted = min(bounds[-1] + task_rows, num_rows)
        bounds.append(int(offsets[np.searchsorted(offsets, wanted, side="left")]))
    return list(pairwise(bounds))


def _refuse_long(offsets: np.ndarray, row_bytes: int, id: str) -> None:
    lengths = np.diff(offsets)
    longest = int(lengths.argmax())
    size = int(lengths[longest]) * row_bytes
    if size > MAX_TRAJECTORY_BYTES:
        raise WrongSize(
            f"Trajectory {longest} of {id} is too long for a function to take at once: it has "
            f"{lengths[longest]} rows of {row_bytes} bytes, {size / 1e9:.1f} GB, and the limit is "
            f"{MAX_TRAJECTORY_BYTES / 1e9:.1f} GB.",
            argument="per",
            id=id,
            expected=MAX_TRAJECTORY_BYTES,
            found=size,
            advice=f"If the function reads single rows, pass {argument('per', PER_ROW)}, which "
            "cuts trajectories.",
        )
