"""Arrow tables in Arrow IPC or Parquet files, as numpy arrays.

pyarrow reads them, which need not be installed: import this where such a file is read.
What the buffers of an Arrow IPC file unpack to is found first, without unpacking one: eight bytes
ask for any memory, and zstd packs 30,000 bytes into one.

    ARROW1 | message | message | … | footer | its size | ARROW1
    message    0xffffffff | size of what follows | flatbuffer: kind, lengths, buffers | body
    buffer     in a packed body: int64 of unpacked bytes, -1 for none | packed bytes
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from datasets_cli.errors import SourceError
from datasets_cli.formats.limits import beyond, check_limit, limit
from datasets_cli.formats.structure import parquet_pages

MAGIC = b"ARROW1\0\0"
DICTIONARY_BATCH, RECORD_BATCH = 2, 3
MAX_MESSAGE_BYTES = 64 << 20
"""Of a message without its body; a column takes some 100 bytes."""

_CONTINUES = 0xFFFFFFFF


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
                f"{name} is not a whole {format} file ({error}). It is cut off or damaged."
            ) from error
        tables.append(table)
    return pa.concat_tables(tables) if len(tables) > 1 else tables[0]


def _read_arrow(file: BinaryIO, name: str, room: int) -> pa.Table:
    """Read an Arrow file after adding up what its messages say they have unpacked."""
    num_bytes = num_rows = num_batches = 0
    if file.read(len(MAGIC)) != MAGIC:
        raise BadMessage(f"it does not begin with {MAGIC!r}")
    for message in messages(file):
        num_bytes += message.num_bytes
        num_rows += message.num_rows
        num_batches += message.kind == RECORD_BATCH
        _check_table(name, num_bytes, num_rows, room)
    file.seek(0)
    num_listed = pa.ipc.open_file(file).num_record_batches
    if num_listed != num_batches:
        raise BadMessage(f"{num_listed} runs of rows at its end, {num_batches} before")
    # Not by the places that its end says, which may be others than those that were added up.
    file.seek(len(MAGIC))
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


class BadMessage(ValueError):
    """The bytes are not an Arrow file."""


@dataclass(frozen=True)
class Message:
    """A run of rows, or a dictionary.

    Args:
        kind: ``RECORD_BATCH``, ``DICTIONARY_BATCH`` or another.
        num_rows: as it says.
        num_bytes: of all its buffers, unpacked; those that share bytes count each, and a bit more
            for each value of the longest column.
    """

    kind: int
    num_rows: int
    num_bytes: int


def messages(file: BinaryIO) -> Iterator[Message]:
    """Yield what each message of the rest of a file says, in order; no body is read.

    Args:
        file: where its messages begin, which is where a stream does.

    Raises:
        BadMessage: they are not Arrow's.
    """
    position, size = file.tell(), os.fstat(file.fileno()).st_size
    try:
        while position < size:
            file.seek(position)
            length, position = _envelope(file, position)
            if not length:
                return
            if not 0 < length <= min(MAX_MESSAGE_BYTES, size - position):
                raise BadMessage(f"a message at byte {position} has {length} bytes")
            table = _Table.root(file.read(length))
            position += length
            body_bytes = table.number(3, "<q")
            if not 0 <= body_bytes <= size - position:
                raise BadMessage(f"a body at byte {position} has {body_bytes} bytes")
            yield _message(table, file, position, body_bytes)
            position += body_bytes
    except (struct.error, IndexError) as error:
        raise BadMessage(f"a message before byte {position} is cut off") from error


def _envelope(file: BinaryIO, position: int) -> tuple[int, int]:
    """Return the size of a message and its first byte; old files have no mark before the size."""
    (first,) = struct.unpack("<I", file.read(4))
    if first != _CONTINUES:
        return first, position + 4
    (length,) = struct.unpack("<I", file.read(4))
    return length, position + 8


def _message(table: _Table, file: BinaryIO, start: int, body_bytes: int) -> Message:
    kind, batch = table.number(1, "<B"), table.table(2)
    if kind == DICTIONARY_BATCH and batch:
        batch = batch.table(1)
    if kind not in (DICTIONARY_BATCH, RECORD_BATCH) or batch is None:
        return Message(kind, 0, 0)
    is_packed = batch.table(3) is not None
    num_bytes = 0
    for offset, length in batch.pairs(2):
        if not 0 <= offset <= offset + length <= body_bytes:
            raise BadMessage(f"a buffer of {length} bytes at {offset} is not in its body")
        num_bytes += _unpacked(file, start + offset, length) if is_packed and length else length
    num_values = max((length for length, _ in batch.pairs(1)), default=0)
    return Message(kind, batch.number(0, "<q"), num_bytes + num_values // 8)


def _unpacked(file: BinaryIO, position: int, length: int) -> int:
    file.seek(position)
    (size,) = struct.unpack("<q", file.read(8))
    if size < -1:
        raise BadMessage(f"a buffer at byte {position} has {size} bytes")
    return length if size == -1 else int(size)


@dataclass(frozen=True)
class _Table:
    """A table of a flatbuffer: a list of where its fields are is before or after it."""

    data: bytes
    position: int

    @staticmethod
    def root(data: bytes) -> _Table:
        return _Table(data, struct.unpack_from("<I", data)[0])

    def number(self, field: int, form: str) -> int:
        """Return a whole number; 0 where the field is not there."""
        at = self._find(field)
        return int(struct.unpack_from(form, self.data, at)[0]) if at else 0

    def table(self, field: int) -> _Table | None:
        at = self._find(field)
        if not at:
            return None
        return _Table(self.data, at + struct.unpack_from("<I", self.data, at)[0])

    def pairs(self, field: int) -> Iterator[tuple[int, int]]:
        """Return the items of a vector of structs of two int64."""
        at = self._find(field)
        if not at:
            return iter(())
        start = at + struct.unpack_from("<I", self.data, at)[0]
        (count,) = struct.unpack_from("<I", self.data, start)
        items = self.data[start + 4 : start + 4 + 16 * count]
        if len(items) < 16 * count:
            raise BadMessage(f"a list of {count} is cut off")
        return struct.iter_unpack("<qq", items)

    def _find(self, field: int) -> int:
        """Return where a field is; 0 where it is not there."""
        where = self.position - struct.unpack_from("<i", self.data, self.position)[0]
        if where < 0 or self.position < 0:
            raise BadMessage("a list of fields is outside its message")
        (size,) = struct.unpack_from("<H", self.data, where)
        if 4 + 2 * field >= size:
            return 0
        offset = struct.unpack_from("<H", self.data, where + 4 + 2 * field)[0]
        return self.position + int(offset) if offset else 0
