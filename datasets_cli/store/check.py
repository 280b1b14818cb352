"""Checking an installed dataset against its manifest, without opening its data."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from datasets_cli.errors import DamagedDataset
from datasets_cli.sources.disk import sha256_of
from datasets_cli.store.compact.records import RECORDS, ROW_MAP, Record, row_map_dtype
from datasets_cli.store.manifest import Manifest
from datasets_cli.store.schema.texts import OFFSETS_FILENAME, VALUES_FILENAME

_VOCABULARY = (VALUES_FILENAME, OFFSETS_FILENAME)


def check_sizes(folder: Path, manifest: Manifest) -> None:
    """Check that every file is a regular file inside the folder, of exactly the right size.

    The right size is the manifest's, and what its columns need. Costs one ``lstat`` a file.
    tensordict's own loader drops a missing leaf, grows a short one with zeros and follows symbolic
    links.

    Raises:
        DamagedDataset: names every file that is missing, linked or of another size.
    """
    problems = [
        f"{name}: {problem}"
        for name, entry in manifest.files.items()
        if (problem := _difference(folder, name, int(entry["bytes"])))
    ]
    problems += [
        f"{name}: its columns need {size} bytes, the manifest has {found}"
        for name, size in _sizes_needed(manifest).items()
        if (found := manifest.files.get(name, {"bytes": 0})["bytes"]) != size
    ]
    problems += _problems_of_text(manifest)
    _raise_problems(folder, manifest, problems)


def check_digests(folder: Path, manifest: Manifest) -> None:
    """Check every file's size and sha256.

    Raises:
        DamagedDataset: names every file that differs.
    """
    check_sizes(folder, manifest)
    problems = []
    for name, entry in manifest.files.items():
        digest = sha256_of(folder / name)
        if digest != entry["sha256"]:
            problems.append(f"{name}: expected sha256 {entry['sha256']}, found {digest}")
    _raise_problems(folder, manifest, problems)


def _sizes_needed(manifest: Manifest) -> dict[str, int]:
    """Return the bytes that each file must have for its columns to be mapped.

    Raises:
        DamagedDataset: the manifest does not describe its layout.
    """
    num_rows = manifest.num_transitions
    texts = {text.filename: text.codes.row_bytes * num_rows for text in manifest.texts}
    if manifest.layout == "ted":
        return texts | {column.filename: column.row_bytes * num_rows for column in manifest.columns}
    try:
        record = Record.from_json(manifest.record)
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedDataset(
            f"{manifest.id}: its manifest does not say how records are laid out ({error!r}). "
            f"Install it again: rlds download --force {manifest.id}"
        ) from error
    row_bytes = 4 if row_map_dtype(record.num_records) == "int32" else 8
    sizes = {RECORDS: record.size * record.num_records, ROW_MAP: row_bytes * num_rows}
    offsets = 8 * (record.num_records + 1)
    return texts | sizes | {f"{field.filename}.offsets": offsets for field in record.frames}


def _problems_of_text(manifest: Manifest) -> list[str]:
    """Return what is wrong with the vocabulary, whose number of values is in no column."""
    if not manifest.texts:
        return []
    problems = [f"{name}: is not listed" for name in _VOCABULARY if name not in manifest.files]
    size = manifest.files.get(OFFSETS_FILENAME, {"bytes": 8})["bytes"]
    if size < 8 or size % 8:
        problems.append(f"{OFFSETS_FILENAME}: expected 8 bytes a value and 8 more, found {size}")
    return problems


def _difference(folder: Path, name: str, size: int) -> str:
    parts = name.split("/")
    if not all(parts) or ".." in parts or "\\" in name:
        return "the manifest names a file outside the folder"
    for depth in range(1, len(parts)):
        if stat.S_ISLNK(_mode(folder.joinpath(*parts[:depth]))):
            return f"{'/'.join(parts[:depth])} is a symbolic link"
    path = folder / name
    mode = _mode(path)
    if mode == 0:
        return "is missing"
    if not stat.S_ISREG(mode):
        return "is not a regular file"
    found = os.lstat(path).st_size
    return "" if found == size else f"expected {size} bytes, found {found}"


def _mode(path: Path) -> int:
    try:
        return os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _raise_problems(folder: Path, manifest: Manifest, problems: list[str]) -> None:
    if problems:
        raise DamagedDataset(
            f"{manifest.id} under {folder} is not what its manifest says: {'; '.join(problems)}. "
            f"Install it again: rlds download --force {manifest.id}"
        )


def folder_size(folder: Path) -> int:
    """Return the total size in bytes of the files below a folder; 0 where there is none."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())
