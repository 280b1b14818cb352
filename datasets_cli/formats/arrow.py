"""Arrow tables in Arrow IPC or Parquet files, as numpy arrays.

pyarrow reads them, which need not be installed: import this where such a file is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from datasets_cli.errors import SourceError

ARROW_MAGIC = b"ARROW1"
PARQUET_MAGIC = b"PAR1"


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
        SourceError: one is not a whole file of this format, or they have different columns.
    """
    tables = []
    for path in paths:
        try:
            if format == "parquet":
                table = pq.ParquetFile(path).read()
            else:
                # Not mapped: a file that is cut short meanwhile would end the process.
                with pa.OSFile(str(path)) as file:
                    table = pa.ipc.open_file(file).read_all()
            table.validate(full=True)  # offsets may point out of their arrays
        except (pa.ArrowException, OSError) as error:
            name = f"{path.parent.name}/{path.name}"
            raise SourceError(
                f"{name} is not a whole {format} file ({error}). Download it again, or check "
                "--source."
            ) from error
        tables.append(table)
    return pa.concat_tables(tables) if len(tables) > 1 else tables[0]


def columns(table: pa.Table) -> Iterator[ArrowColumn]:
    """Yield the columns of a table; of structs their fields, at any depth."""
    for number, field in enumerate(table.schema):
        values = table.column(number).combine_chunks()
        yield from _fields((), field, values)


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
