"""The rows of a selection: which of the dataset's they are, and what is read of them."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch

from datasets_cli.schema.columns import Key
from datasets_cli.schema.tree import Tree
from datasets_cli.store.rows.protocol import GatheredRows, Rows
from datasets_cli.store.rows.selection import Selection, offsets_of
from datasets_cli.store.text.reader import TextRows, Values

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


class SelectedRows:
    """The rows of a layout, numbered as a selection has them; see ``store.dataset.Rows``."""

    def __init__(self, rows: Rows, row_map: SelectedRowMap) -> None:
        self._rows, self._map = rows, row_map

    def gather(self, index: torch.Tensor) -> Tree:
        """Return copies of the rows ``index`` int64 ``[B]``; see ``Rows.gather``."""
        return self._rows.gather(self._map.rows(index))

    def read(self, index: torch.Tensor) -> GatheredRows:
        """Return copies of the rows ``index`` int64 ``[B]``; see ``Rows.read``."""
        return self._rows.read(self._map.rows(index))

    def history(
        self, key: Key, index: torch.Tensor, age: torch.Tensor, length: int
    ) -> torch.Tensor:
        """Return the last steps of a leaf, of a run its own; see ``Rows.history``."""
        return self._rows.history(key, self._map.rows(index), age, length)


class SelectedTexts:
    """Columns of text, of which rows are numbered as a selection has them; see ``TextRows``."""

    def __init__(self, texts: TextRows, row_map: SelectedRowMap) -> None:
        self._texts, self._map = texts, row_map
        self.columns, self.keys, self.shape = texts.columns, texts.keys, texts.shape

    def gather(self, index: torch.Tensor) -> dict[Key, Values]:
        """Return the text of the rows ``index`` int64 ``[B]``, by column."""
        return self._texts.gather(self._map.rows(index))

    def column(self, key: Key) -> Values:
        """Return the text of all rows of one column."""
        rows = torch.arange(int(self._map.offsets[-1]))
        return self.gather(rows)[key]
