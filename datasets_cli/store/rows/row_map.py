"""From the rows of a selection to those of its dataset."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch

from datasets_cli.store.rows.selection import Selection, offsets_of

MAPPED_ROWS = 10_000_000
"""Up to this many rows each has its dataset's row in memory, 4 or 8 bytes; beyond it the trajectory
of a row is searched for, which takes as long as a gather, and memory grows with trajectories."""


class SelectedRowMap:
    """Gives the dataset's rows for those of a selection."""

    # offsets: of the dataset's trajectories, int64 `[T + 1]`.

    def __init__(self, selection: Selection, offsets: np.ndarray) -> None:
        self.offsets = offsets_of(selection.lengths)
        self._num_rows = int(self.offsets[-1])
        starts = offsets[selection.numbers] + selection.firsts
        # A row and the dataset's row differ by the same for all rows of a trajectory.
        self._shifts = starts - self.offsets[:-1]
        self._one_run = bool((self._shifts == self._shifts[:1]).all())
        self._is_mapped = not self._one_run and self._num_rows <= MAPPED_ROWS

    def rows(self, index: torch.Tensor) -> torch.Tensor:
        """Return the dataset's rows int64 ``[B]`` for rows int64 ``[B]``."""
        index = index.cpu()
        if self._is_mapped:
            found = self._map.index_select(0, index)
            return found if found.dtype == torch.int64 else found.long()
        self._check(index)
        if self._one_run:
            return index + int(self._shifts[0]) if len(index) else index
        numbers = index.numpy()  # torch's own search waits for its threads where cores are busy
        place = self.offsets[1:].searchsorted(numbers, side="right")
        return torch.from_numpy(numbers + self._shifts.take(place))

    def _check(self, index: torch.Tensor) -> None:
        if not len(index):
            return
        least, most = (int(row) for row in index.aminmax())
        if least < 0 or most >= self._num_rows:
            raise IndexError(
                f"Rows are numbered from 0 to {self._num_rows - 1}; found {least} to {most}."
            )

    @cached_property
    def _map(self) -> torch.Tensor:
        rows = np.arange(self._num_rows)
        rows += np.repeat(self._shifts, np.diff(self.offsets))
        is_small = self._num_rows and int(rows.max()) < 2**31
        return torch.from_numpy(rows.astype(np.int32) if is_small else rows)
