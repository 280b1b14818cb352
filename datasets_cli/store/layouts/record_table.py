"""Reads records of several datasets of one form like the records of one dataset."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from datasets_cli.store.layouts.compact_rows import CompactRows
from datasets_cli.store.layouts.gathered import GatheredRecords
from datasets_cli.store.layouts.record_arrays import pairs_of


class RecordTable:
    """Reads rows of several datasets, with two copies for each dataset."""

    def __init__(self, datasets: Sequence[CompactRows], name: str) -> None:
        # name: the column with the number of the dataset of each row.
        self._first, self._name = datasets[0], name
        self._arrays = [each.arrays for each in datasets]
        self._last = np.array([each.row_map.last for each in self._arrays])

    def read(
        self, parts: Sequence[tuple[int, np.ndarray]], order: np.ndarray, member: np.ndarray
    ) -> GatheredRecords:
        """Return existing rows of several datasets, in the order of a draw."""
        # parts: pairs of a dataset and its row numbers int64 `[n]`.
        # order: the position of each row of the draw in the concatenated parts, int64 `[B]`.
        # member: the number of the dataset of each row, int64 `[B]`.
        counts = [len(rows) for _, rows in parts]
        rows = np.concatenate([rows for _, rows in parts])
        records = np.concatenate([self._records_of(number, rows) for number, rows in parts])
        self._check(records, parts, counts)
        pairs = pairs_of(records)
        grouped = np.empty((len(rows), 2, self._arrays[0].record.size), np.uint8)
        begin = 0
        for (number, _), count in zip(parts, counts, strict=True):
            end = begin + count
            self._arrays[number].array.take(pairs[begin:end], 0, grouped[begin:end], "clip")
            begin = end
        packed = grouped.reshape(len(rows), -1).take(order, 0, None, "clip")
        gathered = self._first.gathered(rows.take(order), records.take(order), packed)
        return gathered.with_leaf(self._name, member)

    def _records_of(self, number: int, rows: np.ndarray) -> np.ndarray:
        records = self._arrays[number].row_map.array.take(rows, 0, None, "clip")
        return records.astype(np.int64, copy=False)

    def _check(
        self, records: np.ndarray, parts: Sequence[tuple[int, np.ndarray]], counts: list[int]
    ) -> None:
        """Check that each record and its successor exist."""
        numbers = [number for number, _ in parts]
        wrong = (records < 0) | (records > self._last[numbers].repeat(counts))
        if not wrong.any():
            return
        for number, rows in parts:
            self._arrays[number].row_map.take(rows)
        raise AssertionError("the dataset of a wrong record rejects it")


def have_one_form(datasets: Sequence[CompactRows]) -> bool:
    """Return whether datasets have the same columns at the same bytes, and no frames."""
    if any(each.arrays.record.frames for each in datasets):
        return False
    first, *others = (each.read(torch.empty(0, dtype=torch.int64)) for each in datasets)
    values = [[value.tobytes() for value, _ in each.arrays.constants] for each in datasets]
    return all(each.is_like(first) for each in others) and all(each == values[0] for each in values)
