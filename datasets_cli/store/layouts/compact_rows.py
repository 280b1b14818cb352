"""The rows of the ``compact`` layout: one gather per batch, whatever the number of keys."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch

from datasets_cli.damage import damaged
from datasets_cli.schema.bits import (
    bits_dtype,
    bits_of,
    check_run,
    checked_numbers,
    join_tensors,
    to_tensor,
    torch_dtype,
)
from datasets_cli.schema.columns import EPISODE, Key, successor_of
from datasets_cli.schema.element_types import numpy_dtype
from datasets_cli.schema.mapping import DeviceOptions, MappedFiles, sent
from datasets_cli.schema.tree import Slot, Tree, TreePlan, entry
from datasets_cli.store.layouts.frames import FrameReader
from datasets_cli.store.layouts.gathered import (
    DtypeViews,
    GatheredLeaves,
    GatheredRecords,
    PairFields,
)
from datasets_cli.store.layouts.records import (
    RECORDS,
    ROW_MAP,
    Record,
    check_rows,
    columns_of,
    row_map_dtype,
)


class RowMap:
    """The record of each row.

    trajectory   0 0 0   1 1            records 3 and 6 are those of final observations
    row          0 1 2   3 4
    record       0 1 2   4 5            the row's number, and one for each trajectory before
    """

    def __init__(self, files: MappedFiles, record: Record, num_rows: int) -> None:
        self._path, self._num_rows = files.folder / ROW_MAP, num_rows
        self.last = record.num_records - 2  # another record follows that of a row
        dtype = getattr(torch, row_map_dtype(record.num_records))
        self.records = files.load(ROW_MAP, dtype, (num_rows,), self._check_whole)
        self._unsigned = np.dtype(f"u{dtype.itemsize}")

    @cached_property
    def array(self) -> np.ndarray:
        return self.records.numpy(force=True)  # a copy where the rows are on a device

    def take(self, index: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Return row numbers int64 ``[B]`` and their records, int32 or int64 ``[B]``, checked."""
        numbers = checked_numbers(index, self._num_rows)
        records = self.array.take(numbers, 0, None, "clip")
        # As unsigned integers, damaged entries below 0 are huge: one comparison finds both ends.
        if len(records) and records.view(self._unsigned).max() > self.last:
            self.check(numbers, records)
        return numbers, records

    def run(self, start: int, stop: int) -> np.ndarray:
        """Return the records ``[n]`` of the rows ``start`` to ``stop - 1``, one or more."""
        records = self.array[start:stop]
        first, last = int(records[0]), int(records[-1])
        # All from the first to the last; as unsigned integers, smaller ones are huge.
        if not 0 <= first <= last <= self.last or (
            (records - records[0]).view(self._unsigned).max() > last - first
        ):
            self.check(np.arange(start, stop), records)
            what = f"the records of the rows {start} to {stop - 1} do not rise"
            raise damaged(self._path, f"{self._path}: {what}")
        return records

    def check(self, rows: np.ndarray, records: np.ndarray) -> None:
        """Check the entries ``[B]`` of some rows ``[B]``."""
        check_rows(self._path, rows.tolist(), records.tolist(), self.last)

    def _check_whole(self, records: torch.Tensor) -> None:
        least, most = (int(value) for value in records.aminmax())
        if least < 0 or most > self.last:
            self.check(np.arange(len(records)), records.numpy(force=True))


WORDS = (torch.int64, torch.int32, torch.int16, torch.uint8)
"""What records are copied as on a device; the first whose size divides theirs."""

Zeros = tuple[tuple[int, ...], str, list[Slot]]
"""Columns of zeros, of a type that torch can fill: shape of a row, type, and slots."""

Constant = tuple[np.ndarray, torch.Tensor, Slot]
"""A column of one value: the row, where rows are read and where they are moved, and its slot."""

FrameSlots = list[tuple[int, Slot]]
"""Where frames go, 0, and those of the following record, their successors, 1."""


def pairs_of(records: np.ndarray) -> np.ndarray:
    """Return the two records int64 ``[B, 2]`` of rows, each beside its successor."""
    pairs = np.empty((len(records), 2), np.int64)
    pairs[:, 0] = records
    np.add(records, 1, out=pairs[:, 1])
    return pairs


def _steps(records: np.ndarray, slots: FrameSlots) -> np.ndarray:
    """Return the records int64 ``[slots * B]`` of which frames are read for records ``[B]``."""
    return np.concatenate([records + np.int64(step) for step, _ in slots])


def _parts(records: np.ndarray, slots: FrameSlots) -> list[tuple[int, Slot]]:
    """Return where the frames of each slot begin among those of ``_steps``."""
    return [(place * len(records), slot) for place, (_, slot) in enumerate(slots)]


class CompactRows:
    """The records and frames of a dataset, and how a batch is made of them."""

    def __init__(
        self,
        files: MappedFiles,
        record: Record,
        num_rows: int,
        device_options: DeviceOptions,
        keys: frozenset[Key],
    ) -> None:
        self.record = record = record.only(keys)
        self._device, self._moves = files.device, device_options.moves
        self._output = device_options.device
        self._to_output, self.is_contiguous = device_options.to_output, device_options.contiguous
        shape = (record.num_records, record.size)
        self._records = files.load(RECORDS, torch.uint8, shape)
        self.row_map, self._num_rows = RowMap(files, record, num_rows), num_rows
        self._plan = TreePlan(sorted(keys.intersection(column.key for column in record.columns)))
        self.views = DtypeViews(record, self._plan)
        self._zeros, self.constants = self._constants_of(record)
        made = {column.key for column in record.made}
        self._episode = self._plan.slots[EPISODE] if EPISODE in made else None
        self._frames = [
            (
                FrameReader.of(field, files.folder, files.listed, record.num_records),
                [
                    (step, self._plan.slots[column.key])
                    for step, column in enumerate(columns_of(field))
                    if column.key in keys
                ],
            )
            for field in record.frames
        ]

    def gather(self, index: torch.Tensor) -> Tree:
        """Return copies ``[B, ...]`` of the rows ``index`` int64 ``[B]``, as a nested dict."""
        # Those from records are views of one fresh tensor; they are strided, so `view(-1)` refuses.
        return self._gather_moved(index) if self._moves else self.read(index).tree(0, len(index))

    def read(self, index: torch.Tensor) -> GatheredRecords:
        """Return the rows ``index`` int64 ``[B]`` of records in memory; see ``dataset.Rows``."""
        numbers, row = self.row_map.take(index)
        # One call of numpy's `take`, in one thread. torch shares 32,768 elements and more among its
        # threads and waits for them: beside other work that took 20 times as long.
        packed = self.array.take(pairs_of(row), 0, None, "clip")
        packed = packed.reshape(len(row), 2 * self.record.size)
        others = self.beside(numbers, row)
        return GatheredRecords(self.fields, self.views, packed, others, self.is_contiguous)

    def run(self, start: int, stop: int) -> Tree:
        """Return copies of the rows ``start`` to ``stop - 1``; see ``LayoutRows.run``."""
        check_run(start, stop, self._num_rows)
        if self._moves or start == stop:
            return self.gather(torch.arange(start, stop))
        row = self.row_map.run(start, stop)
        nodes = self.beside(np.arange(start, stop), row).nodes(0, stop - start, to_tensor)
        if self.fields.slots:
            # Pair p of this view is the records first + p and first + p + 1; pairs overlap, and a
            # field of all of them is a strided slice. Where a trajectory ends, a pair is left out.
            first, size = int(row[0]), self.record.size
            count = int(row[-1]) - first + 1
            pairs = np.ndarray((count,), self.fields.dtype, self.array, first * size, (size,))
            places = None if count == len(row) else row - first
            for field, node, name in self.fields.slots:
                leaf = pairs[field].copy()
                nodes[node][name] = to_tensor(leaf if places is None else leaf.take(places, 0))
        return nodes[0]

    def beside(self, numbers: np.ndarray, row: np.ndarray) -> GatheredLeaves:
        """Return what records do not hold of rows int64 ``[B]``, by their records."""
        # In the order of their slots.
        leaves = [] if self._episode is None else [row - numbers]
        for shape, name, slots in self._zeros:
            leaves.extend(np.zeros((len(slots), len(row), *shape), numpy_dtype(name)))
        leaves += [value[None].repeat(len(row), 0) for value, _, _ in self.constants]
        for reader, places in self._frames:
            frames = reader.read(_steps(row, places))
            leaves += [frames[start : start + len(row)] for start, _ in _parts(row, places)]
        return GatheredLeaves(self._plan, self.slots_beside, leaves, len(row))

    @cached_property
    def array(self) -> np.ndarray:
        return self._records.numpy()

    @cached_property
    def fields(self) -> PairFields:
        """Made where rows are read, and not at opening, where it would cost a fortieth."""
        return PairFields(self.record, self._plan)

    @cached_property
    def slots_beside(self) -> list[Slot]:
        """The slots of what records do not hold: ``episode``, constants and frames."""
        slots_beside = [] if self._episode is None else [self._episode]
        slots_beside += [slot for _, _, slots in self._zeros for slot in slots]
        slots_beside += [slot for _, _, slot in self.constants]
        slots_beside += [slot for _, slots in self._frames for _, slot in slots]
        return slots_beside

    @cached_property
    def _pairs(self) -> torch.Tensor:
        """Row r of this view is the records r and r + 1, in the largest words; rows overlap."""
        num_records, size = self._records.shape
        word = next(word for word in WORDS if size % word.itemsize == 0)
        words = size // word.itemsize
        return self._records.view(word).as_strided((num_records - 1, 2 * words), (words, 1))

    def _gather_moved(self, numbers: torch.Tensor) -> Tree:
        """Return rows in a device's memory, or in page-locked memory."""
        index = sent(numbers, self._device)
        row = self.row_map.records.index_select(0, index)
        try:
            packed = self._pairs.index_select(0, row).view(torch.uint8)
        except IndexError:
            self.row_map.check(index.numpy(force=True), row.numpy(force=True))
            raise
        nodes = self._plan.new()
        # Contiguous leaves are copies, and it is these that are page-locked where they stay here.
        is_copied = self.is_contiguous and self._output is None
        self.views.put(nodes, packed if is_copied else self._to_output(packed), self.is_contiguous)
        for tree in nodes if is_copied else []:
            leaves = {name: leaf for name, leaf in tree.items() if isinstance(leaf, torch.Tensor)}
            tree.update({name: self._to_output(leaf) for name, leaf in leaves.items()})
        for shape, name, slots in self._zeros:
            # One allocation for all flags that never change; each gets memory of its own.
            dtype = torch_dtype(name)
            size = (len(slots), len(index), *shape)
            fresh = torch.zeros(size, dtype=bits_dtype(dtype), device=self._output)
            for leaf, (node, slot) in zip(self._to_output(fresh), slots, strict=True):
                nodes[node][slot] = leaf.view(dtype)
        for _, value, (node, slot) in self.constants:
            fresh = bits_of(value).expand(len(index), *value.shape).clone()
            nodes[node][slot] = self._to_output(fresh).view(value.dtype)
        if self._episode is not None:
            node, slot = self._episode
            nodes[node][slot] = self._to_output(row - index)
        for reader, places in self._frames:
            # One decoding for frames and successors; the parts are contiguous. By the row map's
            # copy on the CPU, so that no device is waited for.
            _, records = self.row_map.take(numbers)
            frames = self._to_output(torch.from_numpy(reader.read(_steps(records, places))))
            for start, (node, slot) in _parts(records, places):
                nodes[node][slot] = frames[start : start + len(records)]
        return nodes[0]

    def history(
        self, key: Key, index: torch.Tensor, age: torch.Tensor, length: int
    ) -> torch.Tensor:
        """Return the last steps of a leaf and the one that follows; see ``dataset.Rows``."""
        for field, (reader, slots) in zip(self.record.frames, self._frames, strict=True):
            if field.column.key == key and len(slots) == 2:
                numbers, row = self.row_map.take(index)
                # Back from length - 1 steps before the row to 1 after it, which is -1 step back;
                # never before the trajectory's first record, which is age steps back.
                back = np.minimum(np.arange(length - 1, -2, -1), age.numpy(force=True)[:, None])
                steps = row[:, None].astype(np.int64) - back
                if steps.min(initial=0) < 0:
                    self.row_map.check(numbers, row)
                frames = self._to_output(torch.from_numpy(reader.read(steps.ravel())))
                return frames.view(*steps.shape, *field.column.shape)
        # Small fields: the row itself and its successor need not be neighbours, so go by rows.
        rows = (index - torch.clamp(age, max=n) for n in range(length - 1, -1, -1))
        leaves = [entry(self.gather(each), key) for each in rows]
        leaves.append(entry(self.gather(index), successor_of(key)))
        return join_tensors([leaf.unsqueeze(1) for leaf in leaves], dim=1)

    def _constants_of(self, record: Record) -> tuple[list[Zeros], list[Constant]]:
        """Return the columns that are zero, by row shape and type, and the others' values."""
        zeros: dict[tuple[tuple[int, ...], str], list[Slot]] = {}
        others = []
        for field in record.constants:
            column = field.column
            slot = self._plan.slots[column.key]
            if any(field.value):
                value = np.frombuffer(field.value, numpy_dtype(column.dtype)).reshape(column.shape)
                others.append((value, to_tensor(value.copy()).to(self._output or "cpu"), slot))
            else:
                zeros.setdefault((column.shape, column.dtype), []).append(slot)
        return [(*key, slots) for key, slots in zeros.items()], others
