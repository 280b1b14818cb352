"""The places of frames that are read separately from their steps.

A source may store frames in separate files that are too large to be read in the order of the steps.
The other columns are read first, in order, and determine the rows. Then the frames are read in any
order, each with the number of its step:

    step          0    1    2T   3    4    5|      T terminated, | cut off
    row           0    1    2    3    4    -       the successor rule of ``ted``
    record        0    1    2 z  4    5    6       each frame once; z: zeros after a termination
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from datasets_cli.schema.columns import DONE, TERMINATED, Key
from datasets_cli.schema.trajectories import num_records, offsets_from_ends

STEP: Key = ("number of the step",)
"""A temporary column with the number of each step; datasets do not store it."""


class FrameRun(NamedTuple):
    """Frames of consecutive steps of one trajectory."""

    # frames: uint8 `[n, *shape]`.

    trajectory: int
    position: int
    frames: np.ndarray


class FrameFiles(Protocol):
    """The frame files of a layout; picklable, and opened in each process."""

    def write(self, run: FrameRun) -> None:
        """Write the frames of one run."""

    def close(self) -> None:
        """Write the buffered rows and close the files."""


@dataclass(frozen=True)
class FrameTable:
    """The steps of each trajectory of a dataset."""

    # offsets: rows int64 `[K + 1]`, as in the trajectory table.
    # first_steps: the step of the first row of each trajectory, int64 `[K]`, ascending.
    # terminated: whether zeros follow the last row, bool `[K]`, instead of the next step's frame.

    offsets: np.ndarray
    first_steps: np.ndarray
    terminated: np.ndarray

    @property
    def num_frames(self) -> int:
        """The number of frames: one for each row, and one after each trajectory."""
        return num_records(self.offsets)

    def runs(self, start: int, frames: np.ndarray) -> Iterator[FrameRun]:
        """Yield the frames of consecutive steps by trajectory, and the zeros after its end."""
        # frames: uint8 `[n, *shape]`; a final step without a trajectory has no run.
        stop = start + len(frames)
        # The last trajectory that begins at or before the first step; its rows may reach it.
        number = max(0, int(np.searchsorted(self.first_steps, start, side="right")) - 1)
        while number < len(self.first_steps) and self.first_steps[number] < stop:
            first = int(self.first_steps[number])
            num_rows = int(self.offsets[number + 1] - self.offsets[number])
            ends_in_zeros = bool(self.terminated[number])
            # T rows need the frames of T steps, and of the next step unless zeros follow.
            low = max(start, first)
            high = min(stop, first + num_rows + (not ends_in_zeros))
            if low < high:
                yield FrameRun(number, low - first, frames[low - start : high - start])
                if ends_in_zeros and high == first + num_rows:
                    yield FrameRun(number, num_rows, np.zeros((1, *frames.shape[1:]), np.uint8))
            number += 1


class FrameTableBuilder:
    """Collects the table from a stream of rows, first as steps, then as transitions."""

    def __init__(self) -> None:
        self._num_steps = 0
        self._num_rows = 0
        self._previous_done = True
        self._first_steps: list[np.ndarray] = []
        self._ends: list[np.ndarray] = []
        self._terminated: list[np.ndarray] = []

    def number(self, steps: Mapping[Key, np.ndarray]) -> dict[Key, np.ndarray]:
        """Return the next steps with the column ``STEP``."""
        start = self._num_steps
        self._num_steps += len(next(iter(steps.values())))
        return {**steps, STEP: np.arange(start, self._num_steps)}

    def take(self, rows: dict[Key, np.ndarray]) -> dict[Key, np.ndarray]:
        """Return the next rows without that column; record where trajectories begin and end."""
        steps, done = rows[STEP], rows[DONE][:, 0]
        # A row is the first of its trajectory if the row before it is done.
        is_first = np.concatenate(([self._previous_done], done[:-1]))
        self._previous_done = bool(done[-1])
        self._first_steps.append(steps[is_first])
        self._ends.append(np.flatnonzero(done) + self._num_rows)
        self._terminated.append(rows[TERMINATED][done, 0])
        self._num_rows += len(steps)
        return self.without_step(rows)

    @staticmethod
    def without_step(rows: Mapping[Key, np.ndarray]) -> dict[Key, np.ndarray]:
        """Return rows without that column."""
        return {key: values for key, values in rows.items() if key != STEP}

    def table(self) -> FrameTable:
        """Return the table of all rows; the last one must be done."""
        offsets = offsets_from_ends(np.concatenate(self._ends), self._num_rows)
        return FrameTable(
            offsets, np.concatenate(self._first_steps), np.concatenate(self._terminated)
        )
