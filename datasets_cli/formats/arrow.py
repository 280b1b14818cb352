"""Arrow tables in Arrow IPC or Parquet files, as numpy arrays.

pyarrow reads them, which need not be installed: import this where such a file is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from datasets_cli.errors import SourceError
from datasets_cli.formats.limits import beyond, check_limit, limit
from datasets_cli.formats.structure import arrow_buffers, parquet_pages


class ArrowColumn(NamedTuple):
    """A column of a table, or a field of one that is a struct.

    Args:
        path: of the names that lead to it.
        values: one a row.
        metadata: what the writer says of it.
    """

    path: tuple[str, ...]
    values: pa.Array
    metadata: dict[bytes, bytes]


def read_table(paths: Sequence[Path], format: str) -> pa.Table:
    """Read the rows of one or more files, one after the other, into memory.

    Args:
        paths: of the files.
        format: ``"arrow"`` or ``"parquet"``.

    Raises:
        SourceError: one is not a whole file of this format, they have different columns, or are
            beyond the limits of a table.
    """
    tables: list[pa.Table] = []
    for path in paths:
        name = f"{path.parent.name}/{path.name}"
        room = limit("table_bytes") - sum(table.nbytes for table in tables)
        try:
            with path.open("rb") as file:
                read = _read_parquet if format == "parquet" else _read_arrow
                table = read(file, name, room)
            table.validate(full=True)  # offsets may point out of their arrays
        except SourceError:
            raise
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            raise SourceError(
                f"{name} is not a whole {format} file ({error}). Download it again, or check "
                "--source."
            ) from error
        tables.append(table)
    return pa.concat_tables(tables) if len(tables) > 1 else tables[0]


def _read_arrow(file: BinaryIO, name: str, room: int) -> pa.Table:
    """Read an Arrow file after adding up what its messages say they have unpacked."""
    num_bytes = num_rows = num_batches = 0
    for message in arrow_buffers.messages(file, os.fstat(file.fileno()).st_size):
        num_bytes += message.num_bytes + message.num_values // 8
        num_rows += message.num_rows
        num_batches += message.kind == arrow_buffers.RECORD_BATCH
        _check_table(name, num_bytes, num_rows, room)
    file.seek(0)
    found = pa.ipc.open_file(file).num_record_batches
    if found != num_batches:
        raise arrow_buffers.BadMessage(f"{found} runs of rows at its end, {num_batches} before")
    # Not by the places that its end says, which may be others than those that were added up.
    file.seek(len(arrow_buffers.MAGIC))
    return pa.ipc.open_stream(file).read_all()


def _read_parquet(file: BinaryIO, name: str, room: int) -> pa.Table:
    """Read a Parquet file after adding up what its pages say they have unpacked."""
    cost = parquet_pages.cost_of(file, name)
    parquet = pq.ParquetFile(file)
    _check_table(name, cost.total_bytes, parquet.metadata.num_rows, room)
    batches = []
    # Each row may be the whole of a dictionary: what they are is known when they are there.
    for batch in parquet.iter_batches(min(cost.num_rows(room), 1 << 16)):
        room -= batch.nbytes
        _check_table(name, limit("table_bytes") - room, 0, limit("table_bytes"))
        batches.append(batch)
    return pa.Table.from_batches(batches, parquet.schema_arrow)


def _check_table(name: str, num_bytes: int, num_rows: int, room: int) -> None:
    """Check what a table would take in memory, where others have left some room."""
    check_limit("array_values", num_rows, f"{name}: a column")
    if num_bytes > room:
        used = limit("table_bytes") - room
        raise SourceError(beyond("table_bytes", used + num_bytes, name))


def columns(table: pa.Table) -> Iterator[ArrowColumn]:
    """Yield the columns of a table; of structs their fields, at any depth."""
    for field, column in zip(table.schema, table.columns, strict=True):
        yield from _fields((), field, column.combine_chunks())


def row_shape(dtype: pa.DataType) -> tuple[int, ...]:
    """Return the shape of one value: that of lists of fixed sizes, otherwise ``()``."""
    if not pa.types.is_fixed_size_list(dtype):
        return ()
    return (dtype.list_size, *row_shape(dtype.value_type))


def element_type(dtype: pa.DataType) -> pa.DataType:
    """Return the type of the elements of lists of fixed sizes; of anything else its own."""
    return element_type(dtype.value_type) if pa.types.is_fixed_size_list(dtype) else dtype


def to_numpy(values: pa.Array) -> np.ndarray:
    """Return values as ``[n, *row_shape]``; text and bytes as objects, missing numbers NaN."""
    shape = (len(values), *row_shape(values.type))
    if pa.types.is_fixed_size_list(values.type) and values.null_count:
        raise SourceError("a list of a fixed size has missing rows, and was to be an array.")
    while pa.types.is_fixed_size_list(values.type):
        values = values.flatten()  # heeds where a slice begins, unlike .values
    return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(shape)


def equal_lists(values: pa.Array) -> pa.Array:
    """Return lists as lists of a fixed size where all have the same length and none is missing."""
    is_list = pa.types.is_list(values.type) or pa.types.is_large_list(values.type)
    if not is_list or values.null_count or not len(values):
        return values
    lengths = np.diff(values.offsets.to_numpy())
    if lengths.min() != lengths.max() or not lengths[0]:
        return values
    return pa.FixedSizeListArray.from_arrays(equal_lists(values.flatten()), int(lengths[0]))


def _fields(above: tuple[str, ...], field: pa.Field, values: pa.Array) -> Iterator[ArrowColumn]:
    path = (*above, field.name)
    if not pa.types.is_struct(field.type):
        yield ArrowColumn(path, values, dict(field.metadata or {}))
        return
    for number in range(field.type.num_fields):
        yield from _fields(path, field.type.field(number), values.field(number))
