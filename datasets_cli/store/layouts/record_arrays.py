"""Reads rows of the ``compact`` layout as numpy arrays: the row map, pairs of records, runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from datasets_cli.core.system_errors import damaged
from datasets_cli.schema.columns import EPISODE, Column, Key, numpy_dtype
from datasets_cli.schema.shapes import check_numbers, check_run
from datasets_cli.schema.tree import Slot, Tree, TreePlan
from datasets_cli.store.layouts.frames import FrameReader
from datasets_cli.store.layouts.records import ROW_MAP, Record, check_rows, columns_of

Zeros = tuple[tuple[int, ...], str, list[Slot]]
"""Columns of zeros: the shape of a row, the dtype, and the slots."""

Constant = tuple[np.ndarray, Slot]
"""A constant column: the row, and its slot."""

FrameSlots = list[tuple[int, Slot]]
"""The slots of frames (0) and of their successors, the frames of the next record (1)."""


class RowMap:
    """The record of each row.

    trajectory   0 0 0   1 1            records 3 and 6 contain final observations
    row          0 1 2   3 4
    record       0 1 2   4 5            the number of the row, plus one for each trajectory before
    """

    # load: returns the entries, int32 or int64 `[N]`.

    def __init__(self, folder: Path, record: Record, load: Callable[[], np.ndarray]) -> None:
        self._path = folder / ROW_MAP
        self.last = record.num_records - 2  # the next record is the successor
        self._load = load

    @cached_property
    def array(self) -> np.ndarray:
        return self._load()

    def take(self, numbers: np.ndarray) -> np.ndarray:
        """Return the records, int32 or int64 ``[B]``, of rows int64 ``[B]``, which must exist."""
        records = self.array.take(numbers, 0, None, "clip")
        # As unsigned integers, negative entries are huge: one comparison checks both bounds.
        if len(records) and records.view(f"u{records.itemsize}").max() > self.last:
            self.check(numbers, records)
        return records

    def run(self, start: int, stop: int) -> np.ndarray:
        """Return the records ``[n]`` of the rows ``start`` to ``stop - 1``; n is 1 or more."""
        records = self.array[start:stop]
        first, last = int(records[0]), int(records[-1])
        # Check that all are from first to last; as unsigned integers, smaller ones are huge.
        if not 0 <= first <= last <= self.last or (
            (records - records[0]).view(f"u{records.itemsize}").max() > last - first
        ):
            self.check(np.arange(start, stop), records)
            problem = f"the records of the rows {start} to {stop - 1} do not ascend"
            raise damaged(self._path, f"{self._path}: {problem}", row=start)
        return records

    def check(self, rows: np.ndarray, records: np.ndarray) -> None:
        """Check the entries ``[B]`` of rows ``[B]``."""
        check_rows(self._path, rows.tolist(), records.tolist(), self.last)


def pairs_of(records: np.ndarray) -> np.ndarray:
    """Return each record and its successor, int64 ``[B, 2]``."""
    pairs = np.empty((len(records), 2), np.int64)
    pairs[:, 0] = records
    np.add(records, 1, out=pairs[:, 1])
    return pairs


def frame_records(records: np.ndarray, slots: FrameSlots) -> np.ndarray:
    """Return the records int64 ``[slots * B]`` whose frames are read for records ``[B]``."""
    return np.concatenate([records + np.int64(step) for step, _ in slots])


def frame_parts(records: np.ndarray, slots: FrameSlots) -> list[tuple[int, Slot]]:
    """Return the position in ``frame_records`` where the frames of each slot begin."""
    return [(place * len(records), slot) for place, (_, slot) in enumerate(slots)]


def planned_fields(record: Record, plan: TreePlan) -> list[tuple[int, Column]]:
    """Return the columns of a plan, each with its first byte in a pair of records."""
    return [field for field in record.pair_fields if field[1].key in plan.slots]


class PairFields:
    """The columns in a pair of records, as the fields of a structured dtype of numpy.

    two records of 16 bytes    o (float32 [2])  r (float32)  t (bool)  3 bytes of padding
    fields                     o at 0, r at 8, t at 12, next.o at 16
    """

    def __init__(self, record: Record, plan: TreePlan) -> None:
        fields = planned_fields(record, plan)
        offsets = [offset for offset, _ in fields]
        columns = [column for _, column in fields]
        self.slots = [(str(n), *plan.slots[column.key]) for n, column in enumerate(columns)]
        self.dtype = np.dtype(
            {
                "names": [name for name, _, _ in self.slots],
                "formats": [np.dtype((numpy_dtype(c.dtype), c.shape)) for c in columns],
                "offsets": offsets,
                "itemsize": 2 * record.size,
            }
        )


class RecordArrays:
    """Reads rows from the records and frames of a dataset, as numpy arrays."""

    # load: returns the records, uint8 `[S, record]`.

    def __init__(
        self,
        record: Record,
        keys: frozenset[Key],
        row_map: RowMap,
        load: Callable[[], np.ndarray],
        frame_reader: Callable[[Any], FrameReader],
    ) -> None:
        self.record, self.row_map, self._load = record, row_map, load
        self.plan = TreePlan(sorted(keys.intersection(column.key for column in record.columns)))
        self.zeros, self.constants = self._constants_of(record)
        made = {column.key for column in record.made}
        self.episode = self.plan.slots[EPISODE] if EPISODE in made else None
        self.frames: list[tuple[FrameReader, FrameSlots]] = [
            (
                frame_reader(field),
                [
                    (step, self.plan.slots[column.key])
                    for step, column in enumerate(columns_of(field))
                    if column.key in keys
                ],
            )
            for field in record.frames
        ]

    @cached_property
    def array(self) -> np.ndarray:
        return self._load()

    @cached_property
    def fields(self) -> PairFields:
        """The fields; computed lazily, because they take 1/40 of the time to open a dataset."""
        return PairFields(self.record, self.plan)

    @cached_property
    def slots_beside(self) -> list[Slot]:
        """The slots of the leaves outside the records: ``episode``, constants and frames."""
        slots_beside = [] if self.episode is None else [self.episode]
        slots_beside += [slot for _, _, slots in self.zeros for slot in slots]
        slots_beside += [slot for _, slot in self.constants]
        slots_beside += [slot for _, slots in self.frames for _, slot in slots]
        return slots_beside

    def beside(self, numbers: np.ndarray, row: np.ndarray) -> list[np.ndarray]:
        """Return the leaves outside the records of rows int64 ``[B]``, in the order of slots."""
        leaves = [] if self.episode is None else [row - numbers]
        for shape, name, slots in self.zeros:
            leaves.extend(np.zeros((len(slots), len(row), *shape), numpy_dtype(name)))
        leaves += [value[None].repeat(len(row), 0) for value, _ in self.constants]
        for reader, places in self.frames:
            frames = reader.read(frame_records(row, places))
            leaves += [frames[start : start + len(row)] for start, _ in frame_parts(row, places)]
        return leaves

    def pairs(self, row: np.ndarray) -> np.ndarray:
        """Return copies of the pairs uint8 ``[B, 2 * record]`` of records ``[B]``."""
        # `take` of numpy runs in one thread. torch distributes 32,768 elements or more among its
        # threads and waits for them, which takes 20 times as long if other work uses the cores.
        packed = self.array.take(pairs_of(row), 0, None, "clip")
        return packed.reshape(len(row), 2 * self.record.size)

    def gather(self, numbers: np.ndarray, form: Callable[[np.ndarray], Any] = np.asarray) -> Tree:
        """Return copies ``[B, ...]`` of rows int64 ``[B]``, as a nested dict."""
        row = self.row_map.take(check_numbers(numbers, len(self.row_map.array)))
        leaves: list[np.ndarray] = []
        if self.fields.slots:  # numpy has no structured dtype without fields
            pairs = np.ndarray((len(row),), self.fields.dtype, self.pairs(row))
            leaves = [pairs[field] for field, _, _ in self.fields.slots]
        return self._tree(self.beside(numbers, row), leaves, form)

    def run(self, start: int, stop: int, form: Callable[[np.ndarray], Any] = np.asarray) -> Tree:
        """Return copies of the rows ``start`` to ``stop - 1``, as a nested dict."""
        check_run(start, stop, len(self.row_map.array))
        if start == stop:
            return self.gather(np.arange(0), form)
        row, leaves = self.row_map.run(start, stop), []
        if self.fields.slots:
            # Pair p of this view is the records first + p and first + p + 1; pairs overlap, and a
            # field of all pairs is a strided slice. The pair after each trajectory is skipped.
            first, size = int(row[0]), self.record.size
            count = int(row[-1]) - first + 1
            pairs = np.ndarray((count,), self.fields.dtype, self.array, first * size, (size,))
            places = None if count == len(row) else row - first
            for field, _, _ in self.fields.slots:
                leaf = pairs[field].copy()
                leaves.append(leaf if places is None else leaf.take(places, 0))
        return self._tree(self.beside(np.arange(start, stop), row), leaves, form)

    def _tree(
        self,
        beside: Sequence[np.ndarray],
        fields: Sequence[np.ndarray],
        form: Callable[[np.ndarray], Any],
    ) -> Tree:
        nodes = self.plan.new()
        slots: Iterable[Slot] = [*self.slots_beside, *map(itemgetter(1, 2), self.fields.slots)]
        for (node, name), leaf in zip(slots, [*beside, *fields], strict=True):
            nodes[node][name] = form(leaf)
        return nodes[0]

    def _constants_of(self, record: Record) -> tuple[list[Zeros], list[Constant]]:
        """Return the columns of zeros, by row shape and dtype, and the nonzero constants."""
        zeros: dict[tuple[tuple[int, ...], str], list[Slot]] = {}
        others = []
        for field in record.constants:
            column = field.column
            slot = self.plan.slots[column.key]
            if any(field.value):
                value = np.frombuffer(field.value, numpy_dtype(column.dtype)).reshape(column.shape)
                others.append((value, slot))
            else:
                zeros.setdefault((column.shape, column.dtype), []).append(slot)
        return [(*key, slots) for key, slots in zeros.items()], others
