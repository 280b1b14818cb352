"""gzip-compressed numpy arrays, read in bounded blocks of rows."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Generator
from pathlib import Path
from tokenize import TokenError

import numpy as np
from numpy.lib import format as npy

from datasets_cli.errors import MIRROR, SOURCE, SourceError
from datasets_cli.formats.format_error import FormatError, details_of
from datasets_cli.formats.gzip import GzipStream
from datasets_cli.formats.limits import check_limit
from datasets_cli.schema.columns import rows_per_block

ArrayShape = tuple[int | None, ...]
"""An expected shape; None for a dimension of any length."""

MAX_HEADER_BYTES = 10_000
"""The limit of numpy."""

BEST_RATIO = 1032
"""The largest compression ratio of Deflate. An array that claims more is not in the file."""


def read_array(path: Path, dtype: str, shape: ArrayShape) -> np.ndarray:
    """Return a whole, small array.

    Raises:
        SourceError: the file is damaged, its array has another dtype or shape, or more bytes than
            are read whole.
    """
    with GzipStream(path) as stream:
        found = _begin(stream, path, dtype, shape)
        num_bytes = math.prod(found) * np.dtype(dtype).itemsize
        check_limit("table_bytes", num_bytes, path.name)
        data = stream.read(num_bytes)
        _end(stream, path, len(data), dtype, found)
        return np.frombuffer(data, dtype).reshape(found)


def read_rows(path: Path, dtype: str, shape: ArrayShape) -> Generator[np.ndarray, None, None]:
    """Yield the rows ``[n, ...]`` of an array in order, in bounded blocks.

    Raises:
        SourceError: as ``read_array``; damage at the end of the file is found at the end.
    """
    with GzipStream(path) as stream:
        num_rows, *rest = found = _begin(stream, path, dtype, shape)
        row_bytes = math.prod(rest) * np.dtype(dtype).itemsize
        check_limit("row_bytes", row_bytes, f"{path.name}: a row")
        check_limit("rows", num_rows, path.name)
        step = rows_per_block(row_bytes)
        num_bytes = 0
        for start in range(0, num_rows, step):
            size = min(step, num_rows - start) * row_bytes
            data = stream.read(size)
            num_bytes += len(data)
            if len(data) < size:
                break
            yield np.frombuffer(data, dtype).reshape(-1, *rest)
        _end(stream, path, num_bytes, dtype, found)


def read_shape(path: Path, dtype: str, shape: ArrayShape) -> tuple[int, ...]:
    """Return the shape in the header of an array.

    Raises:
        SourceError: as ``read_array``.
    """
    with GzipStream(path) as stream:
        return _begin(stream, path, dtype, shape)


def _begin(stream: GzipStream, path: Path, dtype: str, expected: ArrayShape) -> tuple[int, ...]:
    try:
        shape, fortran_order, found = read_header(stream)
    except SourceError:
        raise
    except ValueError as error:
        raise SourceError(
            f"{path.name} is not a numpy array ({error}).",
            path=path,
            advice=f"Check {SOURCE} or {MIRROR}.",
            **details_of(error),
        ) from error
    fits = len(shape) == len(expected) and all(
        actual >= 0 and length in (None, actual)
        for length, actual in zip(expected, shape, strict=True)
    )
    if not fits or found != np.dtype(dtype) or (fortran_order and len(shape) > 1):
        wanted = "[" + ", ".join("n" if n is None else str(n) for n in expected) + "]"
        order = " in Fortran order" if fortran_order else ""
        raise SourceError(
            f"{path.name}: expected {dtype} {wanted}, found {found} {list(shape)}{order}. It is "
            "not the published file.",
            path=path,
            expected=f"{dtype} {wanted}",
            found=f"{found} {list(shape)}{order}",
        )
    if math.prod(shape) * found.itemsize > path.stat().st_size * BEST_RATIO:
        raise SourceError(
            f"{path.name} claims an array of {dtype} {list(shape)}, which its "
            f"{path.stat().st_size:,} bytes cannot contain. It is damaged.",
            path=path,
            found=list(shape),
        )
    return tuple(shape)


def read_header(stream: GzipStream | io.BytesIO) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Return the shape of an array, whether it is in Fortran order, and its dtype.

    Raises:
        ValueError: its header is damaged.
    """
    try:
        version = npy.read_magic(stream)
        length_bytes = stream.read(2 if version == (1, 0) else 4)
        length = int.from_bytes(length_bytes, "little")
        if length > MAX_HEADER_BYTES:
            problem = f"its header has {length:,} bytes, and {MAX_HEADER_BYTES:,} at most"
            raise FormatError(problem, expected=MAX_HEADER_BYTES, found=length)
        header = io.BytesIO(length_bytes + stream.read(length))
        ones, others = npy.read_array_header_1_0, npy.read_array_header_2_0
        read = {(1, 0): ones, (2, 0): others, (3, 0): others}[version]
        # numpy warns about headers of Python 2.
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            return read(header)
    except (
        *(TypeError, LookupError, SyntaxError, TokenError),
        *(ArithmeticError, RecursionError, MemoryError),  # nested brackets
    ) as error:
        raise FormatError(f"its header is damaged: {error or 'too many brackets'}") from error


def _end(
    stream: GzipStream, path: Path, num_bytes: int, dtype: str, shape: tuple[int, ...]
) -> None:
    """Check that the array is complete and nothing follows. This also checks gzip's checksum."""
    expected = math.prod(shape) * np.dtype(dtype).itemsize
    if num_bytes < expected or stream.read(1):
        found = "more" if num_bytes == expected else f"{num_bytes:,}"
        raise SourceError(
            f"{path.name}: expected {expected:,} bytes of {dtype} {list(shape)}, found {found}. It "
            "is damaged.",
            path=path,
            expected=expected,
            found=found,
            advice="Download it again.",
        )
