"""What a dataset reads, read of the rows of a selection."""

from __future__ import annotations

import torch

from datasets_cli.store.rows.protocol import GatheredRows, Rows
from datasets_cli.store.rows.row_map import SelectedRowMap
from datasets_cli.store.schema.columns import Key
from datasets_cli.store.schema.tree import Tree
from datasets_cli.store.text.reader import TextRows, Values


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
