"""The ``compact`` layout: each step once.

A trajectory of T transitions is T + 1 consecutive records, the last for its final observation:

    record     o0 a0 r0 | o1 a1 r1 | o2 .. .. | o3 a3 r3 | o4 .. ..      S = N + trajectories
    transition    0          1                     2
    row map    [  0,         1,                    3  ]                   int32, int64 from 2**31 on

Transition i is record ``row[i]`` and the one after it: its ``next.observation`` is the following
record's ``observation``, so both come with one gather of two records. Fields are ordered by element
size, so that each is aligned. What is the same in every row is kept here and not in the records,
unless it fits into their padding, where it costs nothing and comes with the gather; ``episode`` is
made from the row map; frames are compressed beside the records.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated

from datasets_cli.core.checked_json import JsonForm, whole
from datasets_cli.core.system_errors import damaged
from datasets_cli.schema.columns import (
    EPISODE,
    LARGEST,
    Column,
    Count,
    Key,
    StoredKey,
    show_key,
    successor_of,
)
from datasets_cli.schema.element_types import ITEM_BYTES

RECORDS = "rows.memmap"
ROW_MAP = "row.memmap"
LONG_ROW_MAP = 2**31
FRAME_BYTES = 1024
UNIT_BYTES = 8  # a record is a whole number of these, and of its largest element
AtLeastOne = Annotated[int, whole(1, LARGEST, "2**48")]


@dataclass(frozen=True)
class Field(JsonForm):
    """Bytes of a record that hold one column, and the successor column that shares them."""

    JSON = "*column successor offset"

    column: Column
    successor: StoredKey | None
    offset: Count


@dataclass(frozen=True)
class ConstantField(JsonForm):
    """A column that is the same in every row, and the bytes of its row."""

    JSON = "*column value"

    column: Column
    value: bytes


@dataclass(frozen=True)
class FrameField(JsonForm):
    """Frames of a column, compressed one by one, and the successor column that shares them."""

    JSON = "*column successor"

    column: Column
    successor: StoredKey | None

    @property
    def filename(self) -> str:
        """The file of the compressed frames; two others are beside it."""
        return "frames/" + self.column.filename.removesuffix(".memmap") + ".zst"

    @property
    def offsets(self) -> str:
        """The file of the first byte of each frame."""
        return f"{self.filename}.offsets"

    @property
    def dictionary(self) -> str:
        """The file of the dictionary that frames are compressed against; it is optional."""
        return f"{self.filename}.dictionary"

    def files_in(self, folder: Path) -> list[str]:
        """Return the names of these three files that exist in a folder."""
        names = (self.filename, self.offsets, self.dictionary)
        return [name for name in names if (folder / name).exists()]


@dataclass(frozen=True)
class Record(JsonForm):
    """How the columns of a dataset are laid out in records."""

    JSON = "record_bytes=size num_records fields constants made frames"

    size: AtLeastOne
    num_records: AtLeastOne
    fields: tuple[Field, ...]
    constants: tuple[ConstantField, ...]
    made: tuple[Column, ...]
    frames: tuple[FrameField, ...]

    @cached_property
    def columns(self) -> list[Column]:
        """Every column that a record gives, successors among them."""
        columns = [column for _, column in self.pair_fields]
        columns += [column for field in self.frames for column in columns_of(field)]
        return [*columns, *(field.column for field in self.constants), *self.made]

    @cached_property
    def pair_fields(self) -> list[tuple[int, Column]]:
        """Where each column begins in the bytes of a pair of records, and the column."""
        # A shared successor is the same field of the pair's second record.
        return [
            (number * self.size + field.offset, column)
            for field in self.fields
            for number, column in enumerate(columns_of(field))
        ]

    def only(self, keys: frozenset[Key]) -> Record:
        """Return the record with only the fields that these keys need, at the same offsets."""
        if keys.issuperset(column.key for column in self.columns):
            return self
        return replace(
            self,
            fields=tuple(f for f in self.fields if f.column.key in keys or f.successor in keys),
            constants=tuple(each for each in self.constants if each.column.key in keys),
            made=tuple(column for column in self.made if column.key in keys),
            frames=tuple(f for f in self.frames if f.column.key in keys or f.successor in keys),
        )


def columns_of(field: Field | FrameField) -> list[Column]:
    """Return the column of a field and, where it shares its values, the successor column."""
    if field.successor is None:
        return [field.column]
    column = field.column
    return [column, Column(field.successor, column.dtype, column.shape)]


def is_frame(dtype: str, shape: tuple[int, ...]) -> bool:
    """Return whether rows of a dtype and shape are frames, which are compressed one by one."""
    return dtype == "uint8" and math.prod(shape) >= FRAME_BYTES


def frame_fields(columns: Iterable[Column]) -> tuple[FrameField, ...]:
    """Return the columns of frames, each with the successor column that shares them."""
    frames = {column.key: column for column in columns if is_frame(column.dtype, column.shape)}
    successors = {
        key: successor
        for key, column in frames.items()
        if frames.get(successor := successor_of(key)) == replace(column, key=successor)
    }
    own = [column for key, column in frames.items() if key not in successors.values()]
    return tuple(FrameField(column, successors.get(column.key)) for column in own)


def check_rows(path: Path, rows: list[int], records: list[int], last: int) -> None:
    """Check the records of some rows, up to the last that another follows, in a file of the map."""
    pairs = zip(rows, records, strict=True)
    if wrong := [pair for pair in pairs if not pair[0] <= pair[1] <= last]:
        row, record = min(wrong)
        raise damaged(
            path,
            f"{path}: row {row} has record {record}, expected {row} to {last}",
            row=row,
            expected=f"{row} to {last}",
            found=record,
        )


def row_map_dtype(num_records: int) -> str:
    """Return the dtype of a row map that can number every record."""
    return "int32" if num_records < LONG_ROW_MAP else "int64"


def lay_out(
    pairs: Iterable[tuple[Column, Key | None]], constants: Iterable[Column] = ()
) -> tuple[tuple[Field, ...], int, tuple[Column, ...]]:
    """Return the fields of a record, its size in bytes, and the constants that it does not hold."""

    def alignment(pair: tuple[Column, Key | None]) -> int:
        return ITEM_BYTES[pair[0].dtype]

    # By element size, and by type within a size: the fields of one type are side by side.
    ordered = sorted(pairs, key=lambda pair: (-alignment(pair), pair[0].dtype, pair[0].key))
    fields, offset = [], 0
    for column, successor in ordered:
        fields.append(Field(column, successor, offset))
        offset += column.row_bytes
    unit = max([UNIT_BYTES, *(alignment(pair) for pair in ordered)])
    size = max(unit, -(-offset // unit) * unit)  # rounded up to whole units
    left = []
    for column in constants:
        # A byte type needs no alignment: it fits into the padding after the fields.
        if ITEM_BYTES[column.dtype] == 1 and 0 < column.row_bytes <= size - offset:
            fields.append(Field(column, None, offset))
            offset += column.row_bytes
        else:
            left.append(column)
    return tuple(fields), size, tuple(left)


def check_record(
    record: Record, columns: Sequence[Column], num_rows: int, num_trajectories: int
) -> None:
    """Check that a record holds exactly a dataset's columns, each within its bytes."""
    if record.num_records != num_rows + num_trajectories:
        raise ValueError(
            f"record.num_records: expected one for each of {num_rows} transitions and "
            f"{num_trajectories} trajectories, found {record.num_records}"
        )
    _check_fields(record)
    _check_constants(record)
    for column in record.made:
        if column != Column(EPISODE, "int64", ()):
            raise ValueError(
                f"record.made: expected only episode, int64, one number a row; found {column}"
            )
    for frame in record.frames:
        if frame.column.dtype != "uint8" or not frame.column.row_bytes:
            raise ValueError(
                f"record.frames: expected frames of uint8, one byte or more; found {frame.column}"
            )
    _check_columns(record, columns)


def _check_fields(record: Record) -> None:
    """Check that fields are side by side from the first byte on, as ``lay_out`` puts them."""
    unit = max([UNIT_BYTES, *(ITEM_BYTES[field.column.dtype] for field in record.fields)])
    if record.size < unit or record.size % unit:
        raise ValueError(f"record.record_bytes: expected a multiple of {unit}, found {record.size}")
    end = 0
    for field in record.fields:
        # Side by side and each aligned: torch views a record as elements of one type.
        if field.offset != end or end % ITEM_BYTES[field.column.dtype]:
            raise ValueError(
                f"record.fields: expected {show_key(field.column.key)} at byte {end}, found it at "
                f"{field.offset}"
            )
        end += field.column.row_bytes
    if end > record.size:
        raise ValueError(f"record.fields: they take {end} bytes, a record has {record.size}")


def _check_constants(record: Record) -> None:
    for field in record.constants:
        column, value = field.column, field.value
        if len(value) != column.row_bytes:
            raise ValueError(
                f"record.constants: {show_key(column.key)} has {len(value)} bytes, a row of it "
                f"takes {column.row_bytes}"
            )
        if column.dtype == "bool" and value.strip(b"\0\1"):
            raise ValueError(
                f"record.constants: {show_key(column.key)} has flags that are neither 0 nor 1"
            )


def _check_columns(record: Record, columns: Sequence[Column]) -> None:
    by_key = {column.key: column for column in record.columns}
    is_each_once = len(by_key) == len(record.columns) == len(columns)
    if is_each_once and all(by_key.get(column.key) == column for column in columns):
        return
    held = sorted(record.columns, key=lambda column: column.key)
    for one in [*sorted(columns, key=lambda column: column.key), *held]:
        counts = columns.count(one), held.count(one)
        if counts[0] != counts[1]:
            raise ValueError(
                f"record: it holds {counts[1]} of {show_key(one.key)} ({one.dtype} "
                f"{list(one.shape)}), the manifest's columns {counts[0]}"
            )
