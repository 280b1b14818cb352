"""Reads rows of the ``compact`` layout: one gather for a batch of any number of keys."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial

import numpy as np
import torch

from datasets_cli.schema.bits import (
    bits_dtype,
    bits_of,
    checked_numbers,
    join_tensors,
    to_tensor,
    torch_dtype,
)
from datasets_cli.schema.columns import Key, numpy_dtype, successor_of
from datasets_cli.schema.mapping import DeviceOptions, MappedFiles, sent
from datasets_cli.schema.shapes import check_run
from datasets_cli.schema.tree import Tree, entry
from datasets_cli.store.layouts.frames import FrameReader
from datasets_cli.store.layouts.gathered import (
    AsTensor,
    DtypeViews,
    GatheredLeaves,
    GatheredRecords,
    as_tensor_of,
)
from datasets_cli.store.layouts.record_arrays import (
    RecordArrays,
    RowMap,
    frame_parts,
    frame_records,
    pairs_of,
)
from datasets_cli.store.layouts.records import RECORDS, ROW_MAP, Record, row_map_dtype

WORDS = (torch.int64, torch.int32, torch.int16, torch.uint8)
"""Dtypes for copies of records on a device; the first whose size divides the record is used."""


class CompactRows:
    """Gathers batches from the records and frames of a dataset."""

    def __init__(
        self,
        files: MappedFiles,
        record: Record,
        num_rows: int,
        device_options: DeviceOptions,
        keys: frozenset[Key],
    ) -> None:
        record = record.only(keys)
        self._device, self._moves = files.device, device_options.moves
        self._output = device_options.device
        self._to_output, self.is_contiguous = device_options.to_output, device_options.contiguous
        # On the CPU: a copy if the rows are on a device.
        row_map = RowMap(files.folder, record, lambda: self._row_map.numpy(force=True))
        num_records, listed = record.num_records, files.listed
        reader = partial(FrameReader.of, folder=files.folder, listed=listed, num_frames=num_records)
        self._records = files.load(RECORDS, torch.uint8, (num_records, record.size))
        self.arrays = RecordArrays(record, keys, row_map, self._records.numpy, reader)
        dtype = getattr(torch, row_map_dtype(num_records))
        self._row_map = files.load(ROW_MAP, dtype, (num_rows,), self._check_row_map)
        self.views = DtypeViews(record, self.arrays.plan)
        self._num_rows = num_rows
        # Constant columns, on the device of the batches.
        constants = self.arrays.constants if self._moves else []
        self._constants = [
            (to_tensor(value.copy()).to(self._output or "cpu"), slot) for value, slot in constants
        ]

    def gather(self, index: torch.Tensor) -> Tree:
        """Return copies ``[B, ...]`` of the rows ``index`` int64 ``[B]``, as a nested dict."""
        # Leaves from records are strided views of one new tensor, so `view(-1)` fails for them.
        return self._gather_moved(index) if self._moves else self.read(index).tree(0, len(index))

    def read(self, index: torch.Tensor) -> GatheredRecords:
        numbers = checked_numbers(index, self._num_rows)
        row = self.arrays.row_map.take(numbers)
        return self.gathered(numbers, row, self.arrays.pairs(row))

    def gathered(self, numbers: np.ndarray, row: np.ndarray, pairs: np.ndarray) -> GatheredRecords:
        """Return the rows int64 ``[B]`` from copies of their pairs of records."""
        arrays = self.arrays
        leaves = arrays.beside(numbers, row)
        slots = arrays.slots_beside
        others = GatheredLeaves(arrays.plan, slots, leaves, len(row), self._as_tensor)
        return GatheredRecords(arrays.fields, self.views, pairs, others, self.is_contiguous)

    @cached_property
    def _as_tensor(self) -> AsTensor:
        return as_tensor_of(numpy_dtype(column.dtype) for column in self.arrays.record.columns)

    def run(self, start: int, stop: int) -> Tree:
        if self._moves:
            check_run(start, stop, self._num_rows)
            return self.gather(torch.arange(start, stop))
        return self.arrays.run(start, stop, to_tensor)

    @cached_property
    def _pairs(self) -> torch.Tensor:
        """A view whose row r is the records r and r + 1, in the largest words; rows overlap."""
        num_records, size = self._records.shape
        word = next(word for word in WORDS if size % word.itemsize == 0)
        words = size // word.itemsize
        return self._records.view(word).as_strided((num_records - 1, 2 * words), (words, 1))

    def _gather_moved(self, numbers: torch.Tensor) -> Tree:
        """Return rows in a device's memory, or in page-locked memory."""
        index = sent(numbers, self._device)
        arrays = self.arrays
        row = self._row_map.index_select(0, index)
        try:
            packed = self._pairs.index_select(0, row).view(torch.uint8)
        except IndexError:
            arrays.row_map.check(index.numpy(force=True), row.numpy(force=True))
            raise
        nodes = arrays.plan.new()
        # Contiguous leaves are copies; without a device these copies are page-locked.
        is_copied = self.is_contiguous and self._output is None
        self.views.put(nodes, packed if is_copied else self._to_output(packed), self.is_contiguous)
        for tree in nodes if is_copied else []:
            leaves = {name: leaf for name, leaf in tree.items() if isinstance(leaf, torch.Tensor)}
            tree.update({name: self._to_output(leaf) for name, leaf in leaves.items()})
        for shape, name, slots in arrays.zeros:
            # One allocation for all constant flags.
            dtype = torch_dtype(name)
            size = (len(slots), len(index), *shape)
            fresh = torch.zeros(size, dtype=bits_dtype(dtype), device=self._output)
            for leaf, (node, slot) in zip(self._to_output(fresh), slots, strict=True):
                nodes[node][slot] = leaf.view(dtype)
        for value, (node, slot) in self._constants:
            fresh = bits_of(value).expand(len(index), *value.shape).clone()
            nodes[node][slot] = self._to_output(fresh).view(value.dtype)
        if arrays.episode is not None:
            node, slot = arrays.episode
            nodes[node][slot] = self._to_output(row - index)
        for reader, places in arrays.frames:
            # Frames and successors are decoded together; their parts are contiguous. The row map is
            # a copy on the CPU, to avoid waiting for the device.
            records = arrays.row_map.take(checked_numbers(numbers, self._num_rows))
            frames = self._to_output(torch.from_numpy(reader.read(frame_records(records, places))))
            for start, (node, slot) in frame_parts(records, places):
                nodes[node][slot] = frames[start : start + len(records)]
        return nodes[0]

    def history(
        self, key: Key, index: torch.Tensor, age: torch.Tensor, length: int
    ) -> torch.Tensor:
        arrays = self.arrays
        for field, (reader, slots) in zip(arrays.record.frames, arrays.frames, strict=True):
            if field.column.key == key and len(slots) == 2:
                numbers = checked_numbers(index, self._num_rows)
                row = arrays.row_map.take(numbers)
                # From length - 1 steps before the row to 1 step after it (-1), but not before the
                # first record of the trajectory, which is age steps before the row.
                back = np.minimum(np.arange(length - 1, -2, -1), age.numpy(force=True)[:, None])
                steps = row[:, None].astype(np.int64) - back
                if steps.min(initial=0) < 0:
                    arrays.row_map.check(numbers, row)
                frames = self._to_output(torch.from_numpy(reader.read(steps.ravel())))
                return frames.view(*steps.shape, *field.column.shape)
        # Small fields by rows: a row and its successor need not be neighbours.
        rows = (index - torch.clamp(age, max=n) for n in range(length - 1, -1, -1))
        leaves = [entry(self.gather(each), key) for each in rows]
        leaves.append(entry(self.gather(index), successor_of(key)))
        return join_tensors([leaf.unsqueeze(1) for leaf in leaves], dim=1)

    def _check_row_map(self, records: torch.Tensor) -> None:
        least, most = (int(value) for value in records.aminmax())
        row_map = self.arrays.row_map
        if least < 0 or most > row_map.last:
            row_map.check(np.arange(len(records)), records.numpy(force=True))


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
