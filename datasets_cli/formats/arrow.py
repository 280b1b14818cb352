"""Arrow tables in Arrow IPC or Parquet files, as numpy arrays.

Import this module only to read such a file: pyarrow is an optional dependency.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from datasets_cli.errors import SourceError
from datasets_cli.formats.format_error import FormatError, details_of
from datasets_cli.formats.limits import check_limit, limit

MAGIC = b"ARROW1\0\0"
MAX_BATCH_ROWS = 1 << 16


class ArrowColumn(NamedTuple):
    """A column of a table, or a field of a struct column.

    Args:
        path: the names of the column and of nested fields.
        values: one value per row.
        metadata: the metadata of the writer.
    """

    path: tuple[str, ...]
    values: pa.Array
    metadata: dict[bytes, bytes]


def read_table(paths: Sequence[Path], format: str) -> pa.Table:
    """Read the rows of one or more files, in order, into memory.

    Args:
        paths: the paths of the files.
        format: ``"arrow"`` or ``"parquet"``.

    Raises:
        SourceError: a file is not complete or of another format, the files have different columns,
            or the table is beyond the limits.
    """
    tables: list[pa.Table] = []
    num_bytes = 0
    for path in paths:
        name = f"{path.parent.name}/{path.name}"
        try:
            with path.open("rb") as file:
                read = _read_parquet if format == "parquet" else _read_arrow
                table = read(file, name, num_bytes)
            table.validate(full=True)  # offsets may point outside of their arrays
        except SourceError:
            raise
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            raise SourceError(
                f"{name} is not a complete {format} file ({error}). It is cut off or damaged.",
                path=path,
                **details_of(error),
            ) from error
        num_bytes += table.nbytes
        tables.append(table)
    return pa.concat_tables(tables) if len(tables) > 1 else tables[0]


def _read_arrow(file: BinaryIO, name: str, num_bytes: int) -> pa.Table:
    if (magic := file.read(len(MAGIC))) != MAGIC:
        problem = f"it begins with {magic!r}; expected {MAGIC!r}"
        raise FormatError(problem, expected=MAGIC, found=magic)
    # As a stream: the list of batches at the end of the file is not needed.
    reader = pa.ipc.open_stream(file)
    return pa.Table.from_batches(_counted(reader, name, num_bytes), reader.schema)


def _read_parquet(file: BinaryIO, name: str, num_bytes: int) -> pa.Table:
    parquet, schema = open_parquet_file(file)
    stated = sum(size for _, size in _row_groups(parquet))
    check_limit("table_bytes", num_bytes + stated, name)
    batches = _counted(parquet.iter_batches(rows_at_once(parquet)), name, num_bytes)
    tables = [pa.Table.from_batches([batch]).cast(schema) for batch in batches]
    return pa.concat_tables(tables) if tables else schema.empty_table()


def _counted(
    batches: Iterable[pa.RecordBatch], name: str, num_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Yield batches while their total size is within the limit of a table."""
    for batch in batches:
        num_bytes += batch.nbytes + sum(map(decoded_bytes, batch.columns))
        check_limit("table_bytes", num_bytes, name)
        yield batch


def open_parquet_file(source: Any, **options: Any) -> tuple[pq.ParquetFile, pa.Schema]:
    """Open a Parquet file whose texts and bytes are read as dictionaries.

    A row of a dictionary-encoded column takes a few bits in the file, and its text may be the
    longest of the file: 11 kB become gigabytes when they are decoded.

    Args:
        source: a path or an open file.
        options: options of ``pyarrow.parquet.ParquetFile``.

    Returns:
        The file, and the schema of its decoded columns.
    """
    plain = pq.ParquetFile(source, **options)
    leaves = (plain.schema.column(number) for number in range(len(plain.schema)))
    texts = [n for n, leaf in enumerate(leaves) if leaf.physical_type == "BYTE_ARRAY"]
    if not texts:
        return plain, plain.schema_arrow
    file = pq.ParquetFile(source, read_dictionary=texts, metadata=plain.metadata, **options)
    return file, plain.schema_arrow


def decoded_bytes(values: pa.Array) -> int:
    """Return the size of the texts in dictionaries once they are decoded, at any depth."""
    if pa.types.is_struct(values.type):
        return sum(map(decoded_bytes, values.flatten()))
    if pa.types.is_map(values.type):
        return decoded_bytes(values.keys) + decoded_bytes(values.items)
    if pa.types.is_nested(values.type):
        return decoded_bytes(values.flatten())
    if not pa.types.is_dictionary(values.type) or not is_text(values.type.value_type):
        return 0
    lengths = pc.binary_length(values.dictionary)
    return pc.sum(lengths.take(values.indices)).as_py() or 0


def _row_groups(parquet: pq.ParquetFile) -> Iterator[tuple[int, int]]:
    """Yield the number of rows and the decoded size of each row group, from the footer."""
    # Its facts about each column are not used: pyarrow crashes if they are damaged.
    metadata, schema = parquet.metadata, parquet.schema
    width = sum(max(8, schema.column(number).length or 0) for number in range(len(schema)))
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        yield group.num_rows, group.total_byte_size + width * group.num_rows


def row_bytes(parquet: pq.ParquetFile) -> int:
    """Return the decoded size of a row, the largest average of a row group."""
    return max((-(-size // max(1, rows)) for rows, size in _row_groups(parquet)), default=0)


def rows_at_once(parquet: pq.ParquetFile) -> int:
    """Return the number of rows to decode at once, at least one."""
    return max(1, min(limit("table_bytes") // max(1, row_bytes(parquet)), MAX_BATCH_ROWS))


def columns(table: pa.Table) -> Iterator[ArrowColumn]:
    """Yield the columns of a table, and the fields of struct columns at any depth."""
    for field, column in zip(table.schema, table.columns, strict=True):
        yield from _fields((), field, column.combine_chunks())


def row_shape(dtype: pa.DataType) -> tuple[int, ...]:
    """Return the shape of nested lists of fixed sizes; ``()`` for any other type."""
    if not pa.types.is_fixed_size_list(dtype):
        return ()
    return (dtype.list_size, *row_shape(dtype.value_type))


def element_type(dtype: pa.DataType) -> pa.DataType:
    """Return the type of the innermost elements of lists of fixed sizes."""
    return element_type(dtype.value_type) if pa.types.is_fixed_size_list(dtype) else dtype


def to_numpy(values: pa.Array) -> np.ndarray:
    """Return values as ``[n, *row_shape]``; text and bytes as objects, missing numbers NaN."""
    shape = (len(values), *row_shape(values.type))
    if pa.types.is_fixed_size_list(values.type) and values.null_count:
        raise SourceError(
            "a list of a fixed size has missing rows and cannot become an array.",
            expected=0,
            found=values.null_count,
        )
    while pa.types.is_fixed_size_list(values.type):
        values = values.flatten()  # respects the offset of a slice, unlike .values
    return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(shape)


def equal_lists(values: pa.Array) -> pa.Array:
    """Return lists of one length, none of them missing, as lists of a fixed size."""
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


def is_text(dtype: pa.DataType) -> bool:
    """Return whether values are strings or bytes, in which some programs write strings."""
    return str(dtype).removeprefix("large_").removesuffix("_view") in ("string", "binary")
