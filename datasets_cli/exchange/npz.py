"""Reads and writes numpy's archives: one array for each column, with all steps."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from datasets_cli.core.progress import Progress, Rows
from datasets_cli.errors import SourceError, WrongRows
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
from datasets_cli.formats.npz import MEMBER, read_headers, read_rows
from datasets_cli.schema.columns import NUMPY_TYPES, Key, show_key
from datasets_cli.schema.texts import TEXT, is_text
from datasets_cli.store.arrays import DatasetArrays
from datasets_cli.store.manifest import Manifest


def recognise(path: Path) -> Recognised | None:
    if path.is_dir() or not zipfile.is_zipfile(path):
        reject_truncated(path, ".npz")
        return None
    arrays = read_headers(path)
    if not arrays:
        raise SourceError(
            f"{path.name} has no arrays. Expected an archive of numpy.savez.",
            path=path,
            expected="an archive of numpy.savez",
        )
    good = {name: each for name, each in arrays.items() if not each.problem}
    return Recognised(
        {
            name: f"{TEXT if each.dtype.kind == 'U' else each.dtype} {list(each.shape[1:])}"
            for name, each in good.items()
        },
        guess(good),
        {name: each.problem for name, each in arrays.items() if each.problem},
    )


def blocks(path: Path, columns: ColumnMap) -> Iterator[StepColumns]:
    arrays = read_headers(path)

    def runs(names: list[str]) -> Iterator[Mapping[str, Any]]:
        rows = {name: arrays[name].shape[0] for name in names}
        if len(set(rows.values())) > 1:
            listed = ", ".join(f"{name} {count:,}" for name, count in rows.items())
            raise WrongRows(
                f"{path.name}: expected one row for each step in every array, found {listed}.",
                path=path,
                found=rows,
            )
        return read_rows(path, {name: arrays[name] for name in names})

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
