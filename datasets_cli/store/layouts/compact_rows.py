"""The rows of the ``compact`` layout: one gather per batch, whatever the number of keys."""

from __future__ import annotations

from functools import cached_property

import torch

from datasets_cli.damage import damaged
from datasets_cli.schema.bits import bits_dtype, stack_tensors, to_array, torch_dtype
from datasets_cli.schema.columns import EPISODE, Key, successor_of
from datasets_cli.schema.mapping import DeviceOptions, MappedFiles
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
            record = int(records[first])
            raise damaged(
                path, f"{path}: row {row} has record {record}, expected {row} to {self._last}"
            )

    def _check_whole(self, records: torch.Tensor) -> None:
        least, most = (int(value) for value in records.aminmax())
        if least < 0 or most > self._last:
            self.check(torch.arange(len(records)), records)


WORDS = (torch.int64, torch.int32, torch.int16, torch.uint8)
"""What records are copied as; the first whose size divides theirs."""

Zeros = tuple[tuple[int, ...], torch.dtype, list[Slot]]
"""Columns of zeros, of a type that torch can fill: shape of a row, type, and slots."""

Constant = tuple[torch.Tensor, torch.dtype, Slot]
"""A column of one value: the row, as what torch can move, the column's type, and its slot."""


FrameSlots = list[tuple[int, Slot]]
"""Where frames go, 0, and those of the following record, their successors, 1."""


def _steps(records: torch.Tensor, slots: FrameSlots) -> torch.Tensor:
    """Return the records int64 ``[slots * B]`` of which frames are read for records ``[B]``."""
    steps = [records + step for step, _ in slots]
    return torch.cat(steps) if len(steps) > 1 else steps[0]


def _parts(records: torch.Tensor, slots: FrameSlots) -> list[tuple[int, Slot]]:
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
        self._device, self._pinned = files.device, device_options.pin_memory
        self._to_output, self._contiguous = device_options.to_output, device_options.contiguous
        shape = (record.num_records, record.size)
        records = files.load(RECORDS, torch.uint8, shape)
        self._row_map = RowMap(files, record, num_rows)
        self._row = self._row_map.records
        # Row r of this view is the records r and r + 1; rows overlap. In words, not bytes: torch
        # asks its threads for help by the number of elements, and waits for them where cores are
        # busy. A batch of bytes took 100 times as long then, and blocks of batches always 3 times.
        word = next(word for word in WORDS if record.size % word.itemsize == 0)
        words = record.size // word.itemsize
        self._pairs = records.view(word).as_strided(
            (max(0, record.num_records - 1), 2 * words), (words, 1)
        )
        self._plan = TreePlan(sorted(keys.intersection(column.key for column in record.columns)))
        self._views = DtypeViews(record, self._plan)
        self._zeros, self._constants = self._constants_of(record)
        made = {column.key for column in record.made}
        self._episode = self._plan.slots[EPISODE] if EPISODE in made else None
        self._frames = [
            (
                FrameReader(
                    f"{files.folder}/{field.filename}",
                    record.num_records,
                    field.column.shape,
                    has_dictionary=field.dictionary in files.listed,
                ),
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
        if self._device is not None:
            index = index.to(self._device)
        row, packed = self._pairs_of(index)
        if self._pinned:  # one copy for all leaves that are views of it
            packed = self._to_output(packed)
        nodes = self._plan.new()
        self._views.put(nodes, packed.numpy() if packed.is_cpu else packed, self._contiguous)
        for shape, dtype, slots in self._zeros:
            # One allocation for all flags that never change; each gets memory of its own.
            fresh = torch.zeros((len(slots), len(index), *shape), dtype=dtype, device=self._device)
            if self._pinned:
                fresh = self._to_output(fresh)
            for leaf, (node, name) in zip(fresh.unbind(0), slots, strict=True):
                nodes[node][name] = leaf
        for value, dtype, (node, name) in self._constants:
            fresh = value.expand(len(index), *value.shape).clone()
            fresh = self._to_output(fresh) if self._pinned else fresh
            nodes[node][name] = fresh if fresh.dtype == dtype else fresh.view(dtype)
        if self._episode is not None:
            node, name = self._episode
            episode = row - index  # each trajectory before a row has a record more than rows
            nodes[node][name] = self._to_output(episode) if self._pinned else episode
        if self._frames:
            self._put_frames(nodes, row.cpu())
        return nodes[0]

    def _pairs_of(self, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the records of rows int64 ``[B]``, and the pairs uint8 ``[B, 2 * record]``."""
        row = self._row.index_select(0, index)
        try:
            return row, self._pairs.index_select(0, row).view(torch.uint8)
        except IndexError:
            self._row_map.check(index, row)
            raise

    def read(self, index: torch.Tensor) -> GatheredRecords:
        """Return the rows ``index`` int64 ``[B]`` of records in memory; see ``dataset.Rows``."""
        row, packed = self._pairs_of(index)
        # In the order of their slots.
        leaves = [] if self._episode is None else [row.numpy() - index.numpy()]
        for shape, dtype, slots in self._zeros:
            leaves.extend(to_array(torch.zeros((len(slots), len(index), *shape), dtype=dtype)))
        for value, dtype, _ in self._constants:
            leaves.append(to_array(value.expand(len(index), *value.shape).clone().view(dtype)))
        for reader, places in self._frames:
            frames = reader.read(_steps(row, places)).numpy()
            leaves += [frames[start : start + len(row)] for start, _ in _parts(row, places)]
        others = GatheredLeaves(self._plan, self._slots_beside, leaves, len(index))
        return GatheredRecords(self._fields, self._views, packed.numpy(), others, self._contiguous)

    @cached_property
    def _fields(self) -> PairFields:
        """Made where rows are read, and not at opening, where it would cost a fortieth."""
        return PairFields(self.record, self._plan)

    @cached_property
    def _slots_beside(self) -> list[Slot]:
        """The slots of what records do not hold: ``episode``, constants and frames."""
        slots_beside = [] if self._episode is None else [self._episode]
        slots_beside += [slot for _, _, slots in self._zeros for slot in slots]
        slots_beside += [slot for _, _, slot in self._constants]
        slots_beside += [slot for _, slots in self._frames for _, slot in slots]
        return slots_beside

    def _put_frames(self, nodes: list[Tree], records: torch.Tensor) -> None:
        """Put the frames of records int64 ``[B]``, and their successors', into the tree."""
        for reader, slots in self._frames:
            # One decoding for frames and successors; the parts are contiguous.
            frames = self._to_output(reader.read(_steps(records, slots)))
            for start, (node, name) in _parts(records, slots):
                nodes[node][name] = frames[start : start + len(records)]

    def history(
        self, key: Key, index: torch.Tensor, age: torch.Tensor, length: int
    ) -> torch.Tensor:
        """Return the last steps of a leaf and the one that follows; see ``dataset.Rows``."""
        row = self._row.index_select(0, index.to(self._row.device)).cpu().long().unsqueeze(1)
        # Back from length - 1 steps before the row to 1 after it, which is -1 step back; never
        # before the trajectory's first record, which is age steps back.
        steps = row - torch.minimum(torch.arange(length - 1, -2, -1), age.unsqueeze(1))
        for field, (reader, slots) in zip(self.record.frames, self._frames, strict=True):
            if field.column.key == key and len(slots) == 2:
                try:
                    frames = self._to_output(reader.read(steps.view(-1)))
                except IndexError:
                    self._row_map.check(index, row.squeeze(1))
                    raise
                return frames.view(len(index), length + 1, *field.column.shape)
        # Small fields: the row itself and its successor need not be neighbours, so go by rows.
        rows = (index - torch.clamp(age, max=n) for n in range(length - 1, -1, -1))
        leaves = [entry(self.gather(each), key) for each in rows]
        return stack_tensors([*leaves, entry(self.gather(index), successor_of(key))], dim=1)

    def _constants_of(self, record: Record) -> tuple[list[Zeros], list[Constant]]:
        """Return the columns that are zero, by row shape and type, and the others' values."""
        zeros: dict[tuple[tuple[int, ...], torch.dtype], list[Slot]] = {}
        others = []
        for field in record.constants:
            column, value = field.column, field.value
            slot, dtype = self._plan.slots[column.key], torch_dtype(column.dtype)
            moved = bits_dtype(dtype)
            if any(value) or moved != dtype:
                row = torch.frombuffer(bytearray(value), dtype=moved) if value else torch.empty(0)
                others.append((row.to(self._row.device, moved).view(column.shape), dtype, slot))
            else:
                zeros.setdefault((column.shape, dtype), []).append(slot)
        return [(*key, slots) for key, slots in zeros.items()], others
