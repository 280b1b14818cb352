"""The row map of the compact layout, and what each of its entries can be."""

from __future__ import annotations

import torch

from datasets_cli.damage import damaged
from datasets_cli.store.compact.records import ROW_MAP, Record, row_map_dtype
from datasets_cli.store.schema.mapping import Files


class RowMap:
    """The record of each row.

    trajectory   0 0 0   1 1            records 3 and 6 are those of final observations
    row          0 1 2   3 4
    record       0 1 2   4 5            the row's number, and one for each trajectory before
    """

    def __init__(self, files: Files, record: Record, num_rows: int) -> None:
        self._folder = files.folder
        self._last = record.num_records - 2  # another record follows that of a row
        dtype = getattr(torch, row_map_dtype(record.num_records))
        self.records = files.load(ROW_MAP, dtype, (num_rows,), self._check_whole)

    def check(self, index: torch.Tensor, records: torch.Tensor) -> None:
        """Check the entries of some rows."""
        # index: rows int64 `[B]`.
        # records: what the map has for each of them, int32 or int64 `[B]`.
        index, records = index.cpu(), records.cpu()
        wrong = ((records < index) | (records > self._last)).nonzero().flatten()
        if len(wrong):
            first = wrong[index[wrong].argmin()]
            row, path = int(index[first]), self._folder / ROW_MAP
            found = int(records[first])
            raise damaged(
                path, f"{path}: row {row} has record {found}, expected {row} to {self._last}"
            )

    def _check_whole(self, records: torch.Tensor) -> None:
        least, most = (int(value) for value in records.aminmax())
        if least < 0 or most > self._last:
            self.check(torch.arange(len(records)), records)
