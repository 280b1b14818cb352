"""numpy's archives: one array a column, all steps one after the other."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from datasets_cli.errors import SourceError, UsageError
from datasets_cli.exchange.flat import flat_names, flat_steps, key_runs, lost_columns, lost_metadata
from datasets_cli.exchange.format import ColumnMap, Recognised
from datasets_cli.exchange.mapping import guess
from datasets_cli.formats.limits import check_limit
from datasets_cli.own.steps import StepColumns
from datasets_cli.progress import Progress
from datasets_cli.schema.columns import Key, rows_per_block, show_key
from datasets_cli.schema.element_types import NUMPY_TYPES
from datasets_cli.schema.texts import is_text
from datasets_cli.store.arrays import DatasetArrays
from datasets_cli.store.manifest import Manifest

ABOUT = "numpy's archive: an array a column"
ENDING = ".npz"
MOST_MEMBERS = 10_000


@dataclass(frozen=True)
class _Member:
    """An array of an archive, by its header."""

    shape: tuple[int, ...]
    dtype: np.dtype
    problem: str = ""

    @property
    def row_bytes(self) -> int:
        return int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize


def recognise(path: Path) -> Recognised | None:
    """Return the arrays of an archive; see ``Format``."""
    if path.is_dir() or not zipfile.is_zipfile(path):
        return None
    members = _members(path)
    good = {name: each for name, each in members.items() if not each.problem}
    if not good:
        raise SourceError(f"{path.name} has no array. Expected an archive of numpy.savez.")
    return Recognised(
        {name: f"{each.dtype} {list(each.shape[1:])}" for name, each in good.items()},
        guess(good),
        {name: each.problem for name, each in members.items() if each.problem},
    )


def blocks(path: Path, columns: ColumnMap) -> Iterator[StepColumns]:
    """Yield all steps; see ``Format``."""
    members = _members(path)

    def whole(name: str) -> np.ndarray:
        check_limit("rows", members[name].shape[0], f"{path.name}: {name}")
        with _rows(path, [name]) as files:
            return _read(files[name], members[name], members[name].shape[0], path.name)

    def runs(names: list[str]) -> Iterator[Mapping[str, Any]]:
        rows = {name: members[name].shape[0] for name in names}
        if len(set(rows.values())) > 1:
            listed = ", ".join(f"{name} {count:,}" for name, count in rows.items())
            raise UsageError(f"{path.name}: expected a row a step in every array, found {listed}.")
        num_rows = next(iter(rows.values()))
        step = rows_per_block(sum(members[name].row_bytes for name in names))
        with _rows(path, names) as files:
            for start in range(0, num_rows, step):
                count = min(step, num_rows - start)
                yield {
                    name: _read(file, members[name], count, path.name)
                    for name, file in files.items()
                }

    return flat_steps(columns, runs, whole)


def losses(manifest: Manifest) -> list[str]:
    """Return what an archive cannot hold; see ``Format``."""
    lost = [
        f"{show_key(each.key)}: numpy has no {each.dtype}, and the column is left out"
        for each in manifest.columns
        if each.dtype not in NUMPY_TYPES
    ]
    return [*lost, *lost_columns(manifest), *lost_metadata(manifest)]


def write(dataset: DatasetArrays, path: Path, progress: Progress) -> None:
    """Write an archive, array after array; see ``Format``."""
    manifest = dataset.manifest
    left_out = {each.key for each in manifest.columns if each.dtype not in NUMPY_TYPES}
    with zipfile.ZipFile(path, "x", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for key, name in flat_names(manifest).items():
            if key not in left_out:
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    _write_column(file, dataset, key, progress)


def _write_column(file: IO[bytes], dataset: DatasetArrays, key: Key, progress: Progress) -> None:
    """Write an array; of text first the longest one is looked for, which all have room for."""

    def runs() -> Iterator[np.ndarray]:
        return (run[key] for run in key_runs(dataset, [key]))

    first = next(runs())
    dtype = first.dtype
    if is_text(first):
        dtype = np.result_type(*(_as_numpys(key, run).dtype for run in runs()))
    header = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False}
    npy.write_array_header_2_0(file, {**header, "shape": (len(dataset), *first.shape[1:])})
    for run in runs():
        file.write(np.ascontiguousarray(run.astype(dtype)).view(np.uint8).data)
        progress.writing(len(dataset))


def _as_numpys(key: Key, rows: np.ndarray) -> np.ndarray:
    if any(text.endswith("\0") for text in rows.flat):
        raise UsageError(
            f"{show_key(key)} has a text with a zero at its end, where texts of numpy end. Export "
            "another format, or replace it with preprocess()."
        )
    return rows.astype(str)


def _members(path: Path) -> dict[str, _Member]:
    """Return the arrays of an archive by name, read from their headers alone."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.endswith(".npy")]
            if len(names) > MOST_MEMBERS:
                raise SourceError(
                    f"{path.name} has {len(names):,} arrays, at most {MOST_MEMBERS:,}."
                )
            return {name.removesuffix(".npy"): _header(archive, name) for name in names}
    except (zipfile.BadZipFile, OSError, EOFError) as error:
        raise SourceError(f"{path.name} is damaged: {error}.") from error


def _header(archive: zipfile.ZipFile, name: str) -> _Member:
    try:
        with archive.open(name) as file:
            shape, is_fortran, dtype = _read_header(file)
    except (ValueError, zipfile.BadZipFile) as error:
        return _Member((0,), np.dtype(np.uint8), f"its header is no array's ({error})")
    if dtype.hasobject:
        problem = "it holds Python objects, which are pickles: rlds runs none"
    elif not shape:
        problem = "it is one number, and no column"
    elif is_fortran and len(shape) > 1:
        problem = "it is in Fortran's order; save numpy.ascontiguousarray of it"
    elif dtype.kind not in "biufcU":
        problem = f"a column cannot have numbers of {dtype}"
    else:
        problem = ""
    return _Member(shape or (1,), dtype, problem)


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = npy.read_magic(file)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    return read(file)


@contextmanager
def _rows(path: Path, names: list[str]) -> Iterator[dict[str, IO[bytes]]]:
    """Give the data of some arrays, each read by itself from its first byte on."""
    with ExitStack() as opened:
        archive = opened.enter_context(zipfile.ZipFile(path))
        files = {name: opened.enter_context(archive.open(f"{name}.npy")) for name in names}
        for file in files.values():
            _read_header(file)
        yield files


def _read(file: IO[bytes], member: _Member, count: int, filename: str) -> np.ndarray:
    """Return the next rows of an array; text as objects."""
    try:
        data = file.read(count * member.row_bytes)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise SourceError(f"{filename} is damaged: {error}.") from error
    if len(data) < count * member.row_bytes:
        raise SourceError(f"{filename} ends early: an array has fewer rows than its header says.")
    rows = np.frombuffer(data, member.dtype).reshape(count, *member.shape[1:])
    return rows.astype(object) if member.dtype.kind == "U" else rows
