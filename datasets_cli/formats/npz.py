"""numpy's archives (.npz), read in bounded blocks of rows, with the checksums of their members."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import IO

import numpy as np

from datasets_cli.core.system_errors import is_full
from datasets_cli.errors import MIRROR, SOURCE, DiskFull, SourceError
from datasets_cli.formats.limits import check_limit
from datasets_cli.formats.npy import BEST_RATIO, MAX_HEADER_BYTES, read_header
from datasets_cli.schema.columns import rows_per_block

MEMBER = ".npy"
COPIED_BYTES = 1 << 20
MOST_START_BYTES = MAX_HEADER_BYTES + 2_000
"""More than the largest start of a member: magic, version and header."""


@dataclass(frozen=True)
class NpzArray:
    """The header of an array in an archive; ``start`` is the offset of its values in its member.

    ``problem`` is the reason why the array cannot be read as a column, or an empty text.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    start: int
    is_transposed: bool
    problem: str

    @property
    def row_bytes(self) -> int:
        """The size of a row, in bytes."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize


def read_headers(path: Path, required: Collection[str] = ()) -> dict[str, NpzArray]:
    """Return the headers of all arrays of an archive, by name, in its order.

    Args:
        path: the file.
        required: names of arrays that must be columns of the same number of rows.

    Raises:
        SourceError: the file is damaged, or a required array is missing or not such a column.
    """
    with _opened(path) as archive:
        infos = [info for info in archive.infolist() if info.filename.endswith(MEMBER)]
        check_limit("columns", len(infos), path.name)
        if len({info.filename for info in infos}) < len(infos):
            raise zipfile.BadZipFile("two arrays share a name")
        found = {info.filename.removesuffix(MEMBER): _header(archive, info) for info in infos}
    for name in required:
        if problem := found[name].problem if name in found else "it is missing":
            raise SourceError(
                f"{path.name}: the array {name} cannot be read: {problem}. Expected the arrays "
                f"{', '.join(required)}; found {', '.join([*found][:20]) or 'none'}.",
                path=path,
                key=name,
                expected=[*required],
                found=[*found],
                advice=f"Check {SOURCE} or {MIRROR}.",
            )
    rows = {name: found[name].shape[0] for name in required}
    if len({*rows.values()}) > 1:
        listed = ", ".join(f"{name} {count:,}" for name, count in rows.items())
        problem = f"{path.name}: expected one row for each step in every array, found {listed}."
        raise SourceError(problem, path=path, found=rows)
    return found


def read_rows(
    path: Path, arrays: Mapping[str, NpzArray]
) -> Generator[dict[str, np.ndarray], None, None]:
    """Yield the rows ``[n, ...]`` of equally long arrays in order, in bounded blocks.

    Text has the dtype object.

    Args:
        path: the file.
        arrays: the headers of the arrays to read, from ``read_headers``.

    Raises:
        SourceError: the file is damaged; a wrong checksum is found at the end of the rows.
    """
    num_rows = min(each.shape[0] for each in arrays.values())
    row_bytes = sum(each.row_bytes for each in arrays.values())
    check_limit("rows", num_rows, path.name)
    check_limit("row_bytes", row_bytes, path.name)
    with _opened(path) as archive, ExitStack() as opened:
        files = {name: opened.enter_context(archive.open(f"{name}{MEMBER}")) for name in arrays}
        sources: dict[str, IO[bytes] | np.ndarray] = {**files}
        for name, file in files.items():
            _bytes(file, arrays[name].start)
            if arrays[name].is_transposed:
                sources[name] = _mapped(file, arrays[name])
        for start in range(0, num_rows, step := rows_per_block(row_bytes)):
            count = min(step, num_rows - start)
            yield {name: _read(sources[name], arrays[name], start, count) for name in arrays}
        for file in files.values():
            _bytes(file, 1)  # the end of the member, where zipfile compares the checksum


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open an archive; errors of its bytes become ``SourceError``."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except SourceError:
        raise
    except (zipfile.BadZipFile, OSError, RuntimeError, ValueError) as error:
        if isinstance(error, OSError) and is_full(error):
            raise DiskFull(
                f"The disk is full: {gettempdir()} has no room for a copy of {path.name}, whose "
                "arrays are in Fortran order.",
                path=gettempdir(),
                advice="Make room there, or set TMPDIR to another folder.",
            ) from error
        raise SourceError(
            f"{path.name} is damaged, or is not a numpy archive: {error}.", path=path
        ) from error


def _header(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NpzArray:
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise zipfile.BadZipFile(f"{info.filename} has a compression that numpy does not use")
    with archive.open(info) as file:
        head = BytesIO(_bytes(file, MOST_START_BYTES))
    shape, is_fortran, dtype = read_header(head)
    size = math.prod(shape) * dtype.itemsize + head.tell()
    path = Path(str(archive.filename))
    most = path.stat().st_size * BEST_RATIO
    is_wrong = not size == info.file_size <= most or min(shape, default=0) < 0
    if is_wrong and not dtype.hasobject:
        raise SourceError(
            f"{path.name} is damaged: the size of {info.filename} is not that of its header, or is "
            "more than the file can contain.",
            path=path,
            key=info.filename.removesuffix(MEMBER),
            expected=min(size, most),
            found=info.file_size,
        )
    problems = {
        "it contains Python objects, and rlds does not load pickles": dtype.hasobject,
        "it is one number, not a column": not shape,
        f"a column cannot have numbers of {dtype}": dtype.kind not in "biufcU",
    }
    problem = next((each for each, is_so in problems.items() if is_so), "")
    return NpzArray(shape or (1,), dtype, head.tell(), is_fortran and math.prod(shape) > 0, problem)


def _bytes(file: IO[bytes], count: int) -> bytes:
    try:
        return file.read(count)
    except (zlib.error, EOFError) as error:
        raise zipfile.BadZipFile(f"{file.name}: {error}") from error


def _mapped(file: IO[bytes], member: NpzArray) -> np.ndarray:
    """Return an array in Fortran's order, mapped from an unnamed temporary file."""
    with TemporaryFile() as copy:
        copy.writelines(iter(partial(_bytes, file, COPIED_BYTES), b""))
        copy.flush()
        return np.memmap(copy, member.dtype, "r", shape=member.shape, order="F")


def _read(file: IO[bytes] | np.ndarray, member: NpzArray, start: int, count: int) -> np.ndarray:
    """Return the next rows of an array; text has the dtype object."""
    if isinstance(file, np.ndarray):
        rows = file[start : start + count].copy("C")
    else:
        rows = np.frombuffer(_bytes(file, count * member.row_bytes), member.dtype)
    rows = rows.reshape(count, *member.shape[1:])
    return rows.astype(object) if member.dtype.kind == "U" else rows
