"""Reads and writes numpy's archives: one array for each column, with all steps."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from datasets_cli.core.progress import Progress, Rows
from datasets_cli.errors import SourceError, UsageError, WrongRows
from datasets_cli.exchange.flat import (
    flat_names,
    flat_steps,
    key_runs,
    lost_columns,
    lost_metadata,
)
from datasets_cli.exchange.format import ColumnMap, Recognised, reject_truncated
from datasets_cli.exchange.mapping import guess
from datasets_cli.exchange.steps import StepColumns
from datasets_cli.formats.limits import check_limit
from datasets_cli.formats.npy import read_header
from datasets_cli.schema.columns import NUMPY_TYPES, Key, rows_per_block, show_key
from datasets_cli.schema.texts import is_text
from datasets_cli.sources.disk import COPIED_BYTES
from datasets_cli.store.arrays import DatasetArrays
from datasets_cli.store.manifest import Manifest

MEMBER = ".npy"
MOST_HEADER_BYTES = 12_000
"""The largest header of an array; numpy's limit is 10,000."""


@dataclass(frozen=True)
class _Member:
    """The header of an array in an archive; ``start`` is the offset of its data."""

    shape: tuple[int, ...]
    dtype: np.dtype
    start: int
    is_transposed: bool
    problem: str

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape[1:]) * self.dtype.itemsize


def recognise(path: Path) -> Recognised | None:
    if path.is_dir() or not zipfile.is_zipfile(path):
        reject_truncated(path, ".npz")
        return None
    members = _members(path)
    if not members:
        raise SourceError(
            f"{path.name} has no arrays. Expected an archive of numpy.savez.",
            path=path,
            expected="an archive of numpy.savez",
        )
    good = {name: each for name, each in members.items() if not each.problem}
    return Recognised(
        {name: f"{each.dtype} {list(each.shape[1:])}" for name, each in good.items()},
        guess(good),
        {name: each.problem for name, each in members.items() if each.problem},
    )


def blocks(path: Path, columns: ColumnMap) -> Iterator[StepColumns]:
    members = _members(path)

    def runs(names: list[str]) -> Iterator[Mapping[str, Any]]:
        rows = {name: members[name].shape[0] for name in names}
        if len(set(rows.values())) > 1:
            listed = ", ".join(f"{name} {count:,}" for name, count in rows.items())
            raise WrongRows(
                f"{path.name}: expected one row for each step in every array, found {listed}.",
                path=path,
                found=rows,
            )
        num_rows, row_bytes = rows[names[0]], sum(members[name].row_bytes for name in names)
        check_limit("rows", num_rows, path.name)
        check_limit("row_bytes", row_bytes, path.name)
        with _opened(path) as archive, ExitStack() as opened:
            files = {name: opened.enter_context(archive.open(f"{name}{MEMBER}")) for name in names}
            arrays: dict[str, IO[bytes] | np.ndarray] = {**files}
            for name, file in files.items():
                _bytes(file, members[name].start)
                if members[name].is_transposed:
                    arrays[name] = _mapped(file, members[name])
            for start in range(0, num_rows, step := rows_per_block(row_bytes)):
                count = min(step, num_rows - start)
                yield {name: _read(arrays[name], members[name], start, count) for name in names}
            for file in files.values():
                _bytes(file, 1)  # the end of the member, where zipfile compares the checksum

    return flat_steps(columns, runs)


def losses(manifest: Manifest) -> list[str]:
    lost = [
        f"{show_key(each.key)}: numpy has no {each.dtype}, and the column is left out"
        for each in manifest.columns
        if each.dtype not in NUMPY_TYPES
    ]
    return [*lost, *lost_columns(manifest), *lost_metadata(manifest)]


def write(dataset: DatasetArrays, path: Path, progress: Progress, out: Path) -> str:
    """Write an archive, array after array; see ``Format``."""
    manifest = dataset.manifest
    left_out = {each.key for each in manifest.columns if each.dtype not in NUMPY_TYPES}
    with zipfile.ZipFile(path, "x", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for key, name in flat_names(manifest).items():
            if key not in left_out:
                with archive.open(f"{name}{MEMBER}", "w", force_zip64=True) as file:
                    _write_column(file, dataset, key, progress)
    return f"numpy.load({str(out)!r})"


def _write_column(file: IO[bytes], dataset: DatasetArrays, key: Key, progress: Progress) -> None:
    """Write an array. Text is read twice: first for its longest value, which sets the dtype."""

    def runs() -> Iterator[np.ndarray]:
        return (run[key] for run in key_runs(dataset, [key]))

    first = next(runs())
    dtype = first.dtype
    if is_text(first):
        dtype = np.result_type(*(_numpy_text(key, run).dtype for run in runs()))
    header = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False}
    npy.write_array_header_2_0(file, {**header, "shape": (len(dataset), *first.shape[1:])})
    for run in runs():
        file.write(np.ascontiguousarray(run.astype(dtype)).view(np.uint8).data)
        progress(Rows(dataset.id, len(dataset), len(dataset)))


def _numpy_text(key: Key, rows: np.ndarray) -> np.ndarray:
    if any(text.endswith("\0") for text in rows.flat):
        raise WrongRows(
            f"{show_key(key)} contains text that ends with a zero, which numpy would drop.",
            key=key,
            advice="Choose another format, or replace the text with preprocess().",
        )
    return rows.astype(str)


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open an archive; errors of its bytes become ``SourceError``."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (SourceError, UsageError):
        raise
    except (zipfile.BadZipFile, OSError, RuntimeError, ValueError) as error:
        raise SourceError(
            f"{path.name} is damaged, or is not a numpy archive: {error}.", path=path
        ) from error


def _members(path: Path) -> dict[str, _Member]:
    """Return the headers of the arrays of an archive, by name."""
    with _opened(path) as archive:
        infos = [info for info in archive.infolist() if info.filename.endswith(MEMBER)]
        check_limit("columns", len(infos), path.name)
        if len({info.filename for info in infos}) < len(infos):
            raise zipfile.BadZipFile("two arrays share a name")
        return {info.filename.removesuffix(MEMBER): _header(archive, info) for info in infos}


def _header(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> _Member:
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise zipfile.BadZipFile(f"{info.filename} has a compression that numpy does not use")
    with archive.open(info) as file:
        head = BytesIO(_bytes(file, MOST_HEADER_BYTES))
    shape, is_fortran, dtype = read_header(head)
    size = math.prod(shape) * dtype.itemsize + head.tell()
    if not dtype.hasobject and (size != info.file_size or min(shape, default=0) < 0):
        raise SourceError(
            f"{archive.filename} is damaged: {info.filename} differs in size from its header.",
            path=archive.filename,
            key=info.filename.removesuffix(MEMBER),
            expected=size,
            found=info.file_size,
        )
    problems = {
        "it contains Python objects, and rlds does not load pickles": dtype.hasobject,
        "it is one number, not a column": not shape,
        f"a column cannot have numbers of {dtype}": dtype.kind not in "biufcU",
    }
    problem = next((each for each, is_so in problems.items() if is_so), "")
    return _Member(shape or (1,), dtype, head.tell(), is_fortran and math.prod(shape) > 0, problem)


def _bytes(file: IO[bytes], count: int) -> bytes:
    try:
        return file.read(count)
    except (zlib.error, EOFError) as error:
        raise zipfile.BadZipFile(f"{file.name}: {error}") from error


def _mapped(file: IO[bytes], member: _Member) -> np.ndarray:
    """Return an array in Fortran's order, mapped from an unnamed temporary file."""
    with TemporaryFile() as copy:
        copy.writelines(iter(partial(_bytes, file, COPIED_BYTES), b""))
        copy.flush()
        return np.memmap(copy, member.dtype, "r", shape=member.shape, order="F")


def _read(file: IO[bytes] | np.ndarray, member: _Member, start: int, count: int) -> np.ndarray:
    """Return the next rows of an array; text has the dtype object."""
    if isinstance(file, np.ndarray):
        rows = file[start : start + count].copy("C")
    else:
        rows = np.frombuffer(_bytes(file, count * member.row_bytes), member.dtype)
    rows = rows.reshape(count, *member.shape[1:])
    return rows.astype(object) if member.dtype.kind == "U" else rows
