"""A storage whose rows several processes read and write.

<folder>/<key>.memmap             a column of all rows, mapped by every process
<folder>/.shared-<token>/control  the counters of the processes, and the lock
<folder>/.shared-<token>/form     the schema of the rows as JSON, after the first write

One process writes at a time, under the lock. Readers take no lock: they read the sequence number
before and after the rows, and read again if a write came between.
"""

from __future__ import annotations

import json
import logging
import mmap
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

import torch

from datasets_cli.core.checked_json import JsonForm, decode
from datasets_cli.errors import Unsupported, UsageError, wrong_value
from datasets_cli.replay.arguments import Rows, StateDict
from datasets_cli.replay.storages.collate import LeafColumn
from datasets_cli.replay.storages.columns import (
    Node,
    PytreeStructure,
    RowColumns,
    RowSchema,
    RowType,
    Structure,
    TensorDictStructure,
)
from datasets_cli.replay.storages.description import TENSORS, describe, restore
from datasets_cli.replay.storages.mapped_files import (
    CONTROL,
    ColumnFiles,
    check_empty,
    columns_of,
    room_for,
    rows_are_gone,
    span,
)
from datasets_cli.replay.storages.process_lock import ProcessLock
from datasets_cli.replay.storages.protocol import Position
from datasets_cli.replay.storages.tensors import (
    Counters,
    LazyMemmapStorage,
    LazyTensorStorage,
    TensorRows,
    values_cannot_be_shared,
)
from datasets_cli.schema.bits import torch_dtype
from datasets_cli.schema.columns import Column, Key
from datasets_cli.schema.shapes import RowNumbers
from datasets_cli.sources.temporary_folders import delete_with, temporary_folder

logger = logging.getLogger(__name__)

SEQUENCE, FORM, FIRST_ROW, END_ROW = range(4)
"""Positions of numbers in the control file; two sets of counters follow.

- ``SEQUENCE``: increased by two with every change; odd while rows are being written.
- ``FORM``: 1 after the form file and the files of the columns were written.
- ``FIRST_ROW``, ``END_ROW``: the rows of the current write.
"""

_FIRST, _NUM_COUNTERS = 4, 5
_BYTES = 8 * (_FIRST + 2 * _NUM_COUNTERS)
_TRIES = 3

Found = TypeVar("Found")


def _counter(position: int) -> property:
    def read(counters: SharedCounters) -> int:
        numbers = counters.numbers
        found: int = numbers[_FIRST + numbers[SEQUENCE] // 2 % 2 * _NUM_COUNTERS + position]
        return found

    def write(counters: SharedCounters, value: int) -> None:
        numbers = counters.numbers
        numbers[_FIRST + (numbers[SEQUENCE] // 2 + 1) % 2 * _NUM_COUNTERS + position] = value

    return property(read, write)


class SharedCounters(Counters):
    """Counters of rows in memory that several processes map; all change at the same time."""

    # There are two sets, and the parity of `SEQUENCE // 2` selects one. Values are written to the
    # unselected set. Increasing `SEQUENCE` to the next even number, one store, selects it.

    num_rows, cursor, revision, write_count, clears = map(_counter, range(_NUM_COUNTERS))

    def __init__(self, numbers: memoryview) -> None:
        self.numbers = numbers

    def begin(self) -> None:
        """Start a change: copy the selected set to the unselected one."""
        turn = self.numbers[SEQUENCE] // 2 % 2
        old, new = (_FIRST + which * _NUM_COUNTERS for which in (turn, 1 - turn))
        self.numbers[new : new + _NUM_COUNTERS] = self.numbers[old : old + _NUM_COUNTERS]

    def end(self) -> None:
        """End a change: select the changed set."""
        self.numbers[SEQUENCE] = (self.numbers[SEQUENCE] // 2 + 1) * 2


class SharedStorage(LazyTensorStorage):
    """A storage of tensors in files that several processes map, read and write.

    ``ReplayBuffer.share`` creates it from a ``LazyTensorStorage``, whose rows are copied to shared
    memory, or from a ``LazyMemmapStorage``, whose files are used. A pickle contains the path of the
    folder, not the rows.
    """

    counters: SharedCounters

    def __init__(self, folder: Path, token: str, max_size: int, ndim: int) -> None:
        TensorRows.__init__(self, max_size, ndim=ndim)
        self.scratch_dir = folder
        self._token = token
        self._control = folder / f"{CONTROL}{token}"
        try:
            with (self._control / "control").open("r+b") as file:
                self._numbers = memoryview(mmap.mmap(file.fileno(), _BYTES)).cast("q")
        except FileNotFoundError as error:
            raise rows_are_gone(folder) from error
        self.counters = SharedCounters(self._numbers)
        self._lock = ProcessLock(self._control / "control")
        self._files: ColumnFiles | None = None
        self._source: LazyTensorStorage | None = None  # its folder is deleted with it

    @classmethod
    def of(cls, source: LazyTensorStorage, write_count: int) -> Self:
        """Return a shared storage with the rows of ``source``."""
        if source.device.type != "cpu":
            raise wrong_value(
                "device",
                "cpu to share rows between processes",
                str(source.device),
                "Pass a device to the buffer, which moves batches.",
                kind=Unsupported,
            )
        if source.rows is not None and source.rows.schema.has_values:
            raise values_cannot_be_shared()
        if isinstance(source, LazyMemmapStorage):
            if not source.existsok and source.files is None:
                check_empty(source.scratch_dir)
            shared = cls._in_folder(source.scratch_dir, source, write_count)
            shared._source = source
            return shared
        folder = temporary_folder(in_memory=True)
        try:
            shared = cls._in_folder(folder, source, write_count)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        delete_with(shared, folder)
        return shared

    @classmethod
    def _in_folder(cls, folder: Path, source: LazyTensorStorage, write_count: int) -> Self:
        shared = cls(folder, _new_control(folder), source.max_size, source.ndim)
        shared._move(source, write_count)
        return shared

    def _move(self, source: LazyTensorStorage, write_count: int) -> None:
        """Take over the rows of a storage: files are used, memory is copied."""
        rows = source.rows
        if rows is not None:
            if isinstance(source, LazyMemmapStorage) and source.files is not None:
                self._files = source.files
                self._write_schema(rows.schema)
                self._use_rows(rows)
            else:
                written = slice(0, len(source))
                self._use_rows(self._allocate(rows.schema))
                self._stored().write(written, [column[written] for column in rows.columns])
        self.generations, self.seams = source.generations, source.seams
        with self._changing() as counters:
            for name in ("num_rows", "cursor", "revision"):
                setattr(counters, name, getattr(source.counters, name))
            counters.write_count = write_count

    def __reduce__(self) -> tuple[object, ...]:
        schema = None if self._rows is None else self._rows.schema
        return _open, (self.scratch_dir, self._token, self.max_size, self.ndim, schema)

    def __deepcopy__(self, memo: dict[int, object]) -> LazyTensorStorage:  # type: ignore[override]
        """Return an unshared storage with copies of the rows."""
        copied = LazyTensorStorage(self.max_size, ndim=self.ndim)
        memo[id(self)] = copied
        with self.turn():
            copied.copy_rows(self)
        return copied

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Hold the lock of the writer; drop rows that a killed writer left half written."""
        with self._lock as is_first:
            if is_first and self._numbers[SEQUENCE] % 2:
                self._drop_torn()
            yield

    def read_whole(self, attempt: Callable[[], Found], retry: Callable[[], None]) -> Found:
        """Call ``attempt``, which reads rows, until no process wrote rows during the call."""
        for _ in range(_TRIES):
            before = self._numbers[SEQUENCE]
            if before % 2:
                continue
            # Processors reorder some hundred instructions at most; Python runs thousands between
            # reading the number and reading a row.
            try:
                rows = attempt()
            except Exception:
                if self._numbers[SEQUENCE] == before:
                    raise
            else:
                if self._numbers[SEQUENCE] == before:
                    return rows
            retry()
        with self.turn():
            return attempt()

    def __len__(self) -> int:
        num_rows: int = self.counters.num_rows
        if num_rows and self._rows is None:
            self._find_rows()
        return num_rows

    @property
    def grid(self) -> tuple[int, ...]:
        """The shape of the rows that fit: steps, then the environments side by side."""
        self._find_rows()
        return super().grid

    @property
    def capacity(self) -> int:
        """Rows that fit: ``max_size``, rounded up to whole time steps."""
        self._find_rows()
        return self.max_size

    def has(self, key: Key) -> bool:
        """Return whether rows have a column of tensors."""
        self._find_rows()
        return super().has(key)

    @property
    def cursor(self) -> int:
        """The next time step to write."""
        step: int = self.counters.cursor
        return step

    @cursor.setter
    def cursor(self, step: int) -> None:
        with self._changing() as counters:
            counters.cursor = step

    @property
    def write_count(self) -> int:
        """The number of rows that all processes wrote in order since the storage was empty."""
        count: int = self.counters.write_count
        return count

    @write_count.setter
    def write_count(self, count: int) -> None:
        with self._changing() as counters:
            counters.write_count = count

    def flatten(self, data: Rows) -> list[LeafColumn]:
        """Return the columns ``[n, ...]`` of data; see ``TensorRows.flatten``."""
        with self.turn():  # another process may have written the first rows
            self._find_rows()
            return super().flatten(data)

    def write(self, rows: slice | RowNumbers, columns: list[LeafColumn]) -> None:
        """Write columns ``[n, ...]`` to rows, then change the counters."""
        with self.turn():
            self._check_no_gap(rows)
            assert self._files is not None, "flatten() created the files"
            self._files.reserve(rows)
            self.counters.begin()
            self._count(rows)
            if isinstance(rows, slice):
                self.counters.write_count = self.write_count + rows.stop - rows.start
            self._numbers[FIRST_ROW], self._numbers[END_ROW] = span(rows)
            self._put(rows, columns)

    def clear(self) -> None:
        """Remove all rows."""
        with self._changing() as counters:
            counters.num_rows = counters.cursor = counters.write_count = 0
            counters.revision = self.revision + 1
            counters.clears = self.counters.clears + 1

    def _put(self, rows: slice | RowNumbers, columns: Sequence[Rows]) -> None:
        """Write rows while ``SEQUENCE`` is odd."""
        self._numbers[SEQUENCE] += 1
        try:
            self._copy(rows, columns)
        except KeyboardInterrupt:
            self._copy(rows, columns)  # again, because some rows may be half written
            self.counters.end()
            raise
        except BaseException:
            self._drop_torn()
            raise
        self.counters.end()

    def _copy(self, rows: slice | RowNumbers, columns: Sequence[Rows]) -> None:
        self._stored().write(rows, columns)

    def _drop_torn(self) -> None:
        """Drop the rows of an incomplete write."""
        self._find_rows()
        num_rows = self.counters.num_rows
        first, end = self._numbers[FIRST_ROW], self._numbers[END_ROW]
        self.counters.begin()
        self.counters.revision = self.revision + 1
        if first < num_rows:  # rows from num_rows were not counted yet
            # The complete rows move to the front, the oldest first:
            #
            #   row     0 1 2 3 4 5 6 7      rows 2 and 3 were being written, the cursor is at 2
            #   before  8 9 x x 4 5 6 7
            #   after   4 5 6 7 8 9
            #
            # If this process is killed before the end, the next one drops all rows.
            self._numbers[FIRST_ROW], self._numbers[END_ROW] = 0, num_rows
            oldest = self.counters.cursor * self.width if num_rows == self.capacity else 0
            order = (torch.arange(num_rows) + oldest) % num_rows
            whole = order[(order < first) | (order >= end)]
            rows = self._stored()
            rows.write(slice(0, len(whole)), [column[whole] for column in rows.columns])
            self.counters.num_rows = len(whole)
            self.counters.cursor = len(whole) // self.width
            self.counters.clears = self.counters.clears + 1
            logger.warning(
                "%s: the write to the rows %d to %d was incomplete; dropped them, %d rows remain",
                *(self.scratch_dir, first, end - 1, len(whole)),
            )
        self.counters.end()

    @contextmanager
    def _changing(self) -> Iterator[SharedCounters]:
        """Yield the counters; their changes take effect at the end."""
        with self.turn():
            self.counters.begin()
            yield self.counters
            self.counters.end()

    def _allocate(self, schema: RowSchema) -> RowColumns:
        if schema.has_values:
            raise values_cannot_be_shared()
        with self.turn():
            if not self._control.exists():
                raise rows_are_gone(self.scratch_dir)
            self._files = ColumnFiles.create(self.scratch_dir, schema)
            self._write_schema(schema)
        return RowColumns(schema, self._files.columns())

    def _write_schema(self, schema: RowSchema) -> None:
        """Write the form file, which other processes read."""
        written = SharedSchema(columns_of(schema), schema.grid, structure_json(schema.structure))
        content = json.dumps(written.to_json()).encode()
        with room_for(self.scratch_dir, len(content)):
            (self._control / "form").write_bytes(content)
        self._numbers[FORM] = 1

    def _find_rows(self) -> None:
        """Map the rows if another process wrote the first ones."""
        if self._rows is None and self._numbers[FORM]:
            self._map_rows(None)

    def _map_rows(self, known: RowSchema | None) -> None:
        """Map the rows of a schema, by default of the form file."""
        try:
            content = (self._control / "form").read_bytes()
        except FileNotFoundError as error:
            raise rows_are_gone(self.scratch_dir) from error
        written = decode(SharedSchema, json.loads(content))
        schema = written.row_schema() if known is None else known
        self._files = ColumnFiles(self.scratch_dir, written.leaves, schema.capacity)
        self._use_rows(RowColumns(schema, self._files.columns()))


def _open(
    folder: Path, token: str, max_size: int, ndim: int, schema: RowSchema | None
) -> SharedStorage:
    """Unpickle a storage: open its folder."""
    storage = SharedStorage(folder, token, max_size, ndim)
    if schema is not None:
        storage._map_rows(schema)
    return storage


def _new_control(folder: Path) -> str:
    """Replace the control folder of an earlier storage; return the token of the new one."""
    token = secrets.token_hex(8)
    control = folder / f"{CONTROL}{token}"
    with room_for(folder, _BYTES):
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob(f"{CONTROL}*"):
            shutil.rmtree(old, ignore_errors=True)
        control.mkdir(mode=0o700)
        (control / "control").write_bytes(bytes(_BYTES))
    return token


@dataclass(frozen=True)
class SharedSchema(JsonForm):
    """The schema of shared rows as JSON; ``structure`` is None for classes without JSON."""

    leaves: tuple[Column, ...]
    grid: tuple[int, ...]
    structure: StateDict | None

    def row_schema(self) -> RowSchema:
        """Return the schema of the rows."""
        document, leaves = self.structure, self.leaves
        if document is None:
            raise Unsupported(
                "Another process wrote the first rows of this storage, of classes that this "
                "process does not know.",
                advice="Write the first rows before the buffer is passed to other processes.",
            )
        if "nodes" in document:
            nodes = {tuple(key): Node(tuple(inner)) for key, inner in document["nodes"]}
            structure: Structure = TensorDictStructure([leaf.key for leaf in leaves], nodes=nodes)
        else:
            structure = PytreeStructure(restore(document["rows"], [torch.empty(0) for _ in leaves]))
        types: list[RowType] = [
            (torch_dtype(each.dtype), torch.Size(each.shape)) for each in leaves
        ]
        return RowSchema(structure, self.grid, types)


def structure_json(structure: Structure) -> StateDict | None:
    """Return a structure as JSON, or None if it has classes of the user."""
    if isinstance(structure, TensorDictStructure):
        nodes = structure.nodes.items()
        if any(node.kind for _, node in nodes):
            return None
        return {"nodes": [[key, node.inner] for key, node in nodes]}
    rows = structure.unflatten([torch.empty(0)] * len(structure.names))
    try:
        return {"rows": describe(rows, kinds=TENSORS)[0]}
    except UsageError:
        return None


class SharedPosition:
    """The position of a writer in a shared storage, whose counters it uses."""

    def __init__(self, storage: SharedStorage) -> None:
        self.storage = storage

    def __deepcopy__(self, memo: dict[int, object]) -> Position:
        """Return the position in an unshared copy of the rows."""
        return Position(self.cursor, self.write_count)

    @property
    def cursor(self) -> int:
        """The next row to write."""
        return self.storage.cursor * self.storage.width

    @property
    def write_count(self) -> int:
        """The number of rows that all processes wrote."""
        return self.storage.write_count

    def advance(self, cursor: int, count: int) -> None:
        """Do nothing: the storage counts written rows."""

    def set(self, cursor: int, write_count: int) -> None:
        """Continue at row ``cursor``."""
        self.storage.cursor = cursor // self.storage.width
        self.storage.write_count = write_count
