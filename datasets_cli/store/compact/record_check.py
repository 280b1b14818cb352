"""What a record and the other entries of its manifest must agree on before anything is mapped."""

from __future__ import annotations

from collections.abc import Sequence

from datasets_cli.store.compact.records import Record
from datasets_cli.store.schema.columns import EPISODE, Column, show_key
from datasets_cli.store.schema.element_types import ITEM_BYTES

UNIT_BYTES = 8  # a record is a whole number of these, and of its largest element


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
        name, item = show_key(field.column.key), ITEM_BYTES[field.column.dtype]
        # Side by side and each aligned: torch views a record as elements of one type.
        if field.offset != end or field.offset % item:
            raise ValueError(
                f"record.fields: expected {name} at byte {end}, found it at {field.offset}"
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
    found = sorted(record.columns, key=lambda column: column.key)
    expected = sorted(columns, key=lambda column: column.key)
    if found == expected:
        return
    for one in [*expected, *found]:
        counts = expected.count(one), found.count(one)
        if counts[0] != counts[1]:
            raise ValueError(
                f"record: it holds {counts[1]} of {show_key(one.key)} ({one.dtype} "
                f"{list(one.shape)}), the manifest's columns {counts[0]}"
            )
