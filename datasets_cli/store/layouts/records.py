"""The ``compact`` layout: each step once.

A trajectory of T transitions is T + 1 consecutive records, the last for its final observation:

    record     o0 a0 r0 | o1 a1 r1 | o2 .. .. | o3 a3 r3 | o4 .. ..      S = N + trajectories
    transition    0          1                     2
    row map    [  0,         1,                    3  ]                   int32, int64 from 2**31 on

Transition i is record ``row[i]`` and the one after it: its ``next.observation`` is the following
record's ``observation``, so both come with one gather of two records. Fields are ordered by element
size, so each is aligned. Constant columns are stored in the manifest, unless they fit into the
padding of the records, where they cost nothing and are gathered with the fields. ``episode`` is
computed from the row map. Frames are compressed in other files.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated

from datasets_cli.core.checked_json import JsonForm, WrongValue, whole
from datasets_cli.core.system_errors import damaged
from datasets_cli.schema.columns import (
    EPISODE,
    ITEM_BYTES,
    LARGEST,
    Column,
    Count,
    Key,
    StoredKey,
    show_key,
    successor_of,
)

RECORDS = "rows.memmap"
ROW_MAP = "row.memmap"
LONG_ROW_MAP = 2**31
FRAME_BYTES = 1024
UNIT_BYTES = 8  # the size of a record is a multiple of it, and of the largest element
AtLeastOne = Annotated[int, whole(1, LARGEST, "2**48")]


@dataclass(frozen=True)
class Field(JsonForm):
    """The bytes of a column in a record, and the successor column that shares them."""

    JSON = "*column successor offset"

    column: Column
    successor: StoredKey | None
    offset: Count


@dataclass(frozen=True)
class ConstantField(JsonForm):
    """A constant column, and the bytes of its row."""

    JSON = "*column value"

    column: Column
    value: bytes


@dataclass(frozen=True)
class FrameField(JsonForm):
    """A column of separately compressed frames, and the successor column that shares them."""

    JSON = "*column successor"

    column: Column
    successor: StoredKey | None

    @property
    def filename(self) -> str:
        """The file of the compressed frames."""
        return "frames/" + self.column.filename.removesuffix(".memmap") + ".zst"

    @property
    def offsets(self) -> str:
        """The file of the first byte of each frame."""
        return f"{self.filename}.offsets"

    @property
    def dictionary(self) -> str:
        """The file of the dictionary for the compression; it is optional."""
        return f"{self.filename}.dictionary"

    def files_in(self, folder: Path) -> list[str]:
        """Return the names of the existing files in a folder."""
        names = (self.filename, self.offsets, self.dictionary)
        return [name for name in names if (folder / name).exists()]


@dataclass(frozen=True)
class Record(JsonForm):
    """The layout of the columns of a dataset in records."""

    JSON = "record_bytes=size num_records fields constants made frames"

    size: AtLeastOne
    num_records: AtLeastOne
    fields: tuple[Field, ...]
    constants: tuple[ConstantField, ...]
    made: tuple[Column, ...]
    frames: tuple[FrameField, ...]

    @cached_property
    def columns(self) -> list[Column]:
        """All columns, including successors."""
        columns = [column for _, column in self.pair_fields]
        columns += [column for field in self.frames for column in columns_of(field)]
        return [*columns, *(field.column for field in self.constants), *self.made]

    @cached_property
    def pair_fields(self) -> list[tuple[int, Column]]:
        """Each column with its first byte in a pair of records."""
        # A shared successor is the same field of the second record.
        return [
            (number * self.size + field.offset, column)
            for field in self.fields
            for number, column in enumerate(columns_of(field))
        ]

    def only(self, keys: frozenset[Key]) -> Record:
        """Return the record with only the fields of these keys, at the same offsets."""
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
    """Return the column of a field, and the successor column that shares its values."""
    if field.successor is None:
        return [field.column]
    column = field.column
    return [column, Column(field.successor, column.dtype, column.shape)]


def is_frame(dtype: str, shape: tuple[int, ...]) -> bool:
    """Return whether rows of a dtype and shape are frames, which are compressed separately."""
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
    """Check the records of rows in the file of the row map; ``last`` is the largest."""
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
    """Return the fields of a record, its size in bytes, and the constants outside it."""

    def alignment(pair: tuple[Column, Key | None]) -> int:
        return ITEM_BYTES[pair[0].dtype]

    # By element size, then by dtype: the fields of one dtype are adjacent.
    ordered = sorted(pairs, key=lambda pair: (-alignment(pair), pair[0].dtype, pair[0].key))
    fields, offset = [], 0
    for column, successor in ordered:
        fields.append(Field(column, successor, offset))
        offset += column.row_bytes
    unit = max([UNIT_BYTES, *(alignment(pair) for pair in ordered)])
    size = max(unit, -(-offset // unit) * unit)  # rounded up to whole units
    left = []
    for column in constants:
        # Elements of one byte need no alignment: they fit into the padding after the fields.
        if ITEM_BYTES[column.dtype] == 1 and 0 < column.row_bytes <= size - offset:
            fields.append(Field(column, None, offset))
            offset += column.row_bytes
        else:
            left.append(column)
    return tuple(fields), size, tuple(left)


def check_record(
    record: Record, columns: Sequence[Column], num_rows: int, num_trajectories: int
) -> None:
    """Check that a record contains exactly the columns of a dataset, at valid offsets."""
    if record.num_records != num_rows + num_trajectories:
        expected = f"{num_rows + num_trajectories}, one for each transition and each trajectory"
        raise WrongValue("record.num_records", expected, record.num_records)
    _check_fields(record)
    _check_constants(record)
    for column in record.made:
        if column != Column(EPISODE, "int64", ()):
            raise WrongValue("record.made", "only episode, int64, one per row", _show(column))
    for frame in record.frames:
        if frame.column.dtype != "uint8" or not frame.column.row_bytes:
            expected = "frames of uint8, one byte or more"
            raise WrongValue("record.frames", expected, _show(frame.column))
    _check_columns(record, columns)


def _check_fields(record: Record) -> None:
    """Check that fields are adjacent from the first byte, as ``lay_out`` places them."""
    unit = max([UNIT_BYTES, *(ITEM_BYTES[field.column.dtype] for field in record.fields)])
    if record.size < unit or record.size % unit:
        raise WrongValue("record.record_bytes", f"a multiple of {unit}", record.size)
    end = 0
    for field in record.fields:
        # Adjacent and aligned: torch views a record as elements of one dtype.
        if field.offset != end or end % ITEM_BYTES[field.column.dtype]:
            expected = f"{show_key(field.column.key)} at byte {end}"
            raise WrongValue("record.fields", expected, field.offset)
        end += field.column.row_bytes
    if end > record.size:
        raise WrongValue("record.fields", f"{record.size} bytes or fewer", end)


def _check_constants(record: Record) -> None:
    for field in record.constants:
        column, value = field.column, field.value
        if len(value) != column.row_bytes:
            expected = f"{column.row_bytes} bytes of {show_key(column.key)}"
            raise WrongValue("record.constants", expected, len(value))
        if column.dtype == "bool" and value.strip(b"\0\1"):
            raise WrongValue("record.constants", f"0 or 1 in {show_key(column.key)}", value.hex())


def _check_columns(record: Record, columns: Sequence[Column]) -> None:
    by_key = {column.key: column for column in record.columns}
    is_each_once = len(by_key) == len(record.columns) == len(columns)
    if is_each_once and all(by_key.get(column.key) == column for column in columns):
        return
    held = sorted(record.columns, key=lambda column: column.key)
    for one in [*sorted(columns, key=lambda column: column.key), *held]:
        counts = columns.count(one), held.count(one)
        if counts[0] != counts[1]:
            raise WrongValue("record", f"{counts[0]} of the column {_show(one)}", counts[1])


def _show(column: Column) -> str:
    return f"{show_key(column.key)} {column.dtype} {list(column.shape)}"
