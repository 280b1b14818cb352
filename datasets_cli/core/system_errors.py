"""What the system refuses, or does not have, as errors of this program."""

from __future__ import annotations

import errno
import importlib
import os
import shlex
from pathlib import Path
from typing import Any

from datasets_cli.errors import (
    ROOT,
    DamagedDataset,
    DatasetNotInstalled,
    DiskFull,
    RldsError,
    UsageError,
    WrongSize,
)

# EFBIG: a file size limit; EDQUOT: a quota. To a user each is a full disk.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NOT_ALLOWED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
SMALL_BYTES = 1 << 20  # never worth refusing


def is_full(error: OSError) -> bool:
    """Return whether an error means that a disk, or what a user may have of it, is full."""
    return error.errno in _FULL


def system_error(error: OSError) -> RldsError:
    """Return what the system refuses, as an error of ours that names the path."""
    what = f"{error.strerror or error}: {error.filename or ''}".rstrip(": ")
    if is_full(error):
        return DiskFull(f"{what}. Make room and run again.")
    if error.errno not in _NOT_ALLOWED:
        return RldsError(what)
    return RldsError(
        f"{what}. See the permissions of it and of its folder, or choose another cache root with "
        f"{ROOT}."
    )


def imported(module: str, what: str, extra: str, more: str = "") -> Any:
    """Import a package of an extra, which a sentence says what needs where it is missing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        install = f"pip install 'rlds-cli[{extra}]'"
        raise UsageError(
            f"{what} needs {module}, which is not installed: {install}.{more}"
        ) from error


def check_memory(size_bytes: int, what: str, free: int | None = None) -> None:
    """Check that a copy fits into half of the free memory, or of what is free elsewhere."""
    free = free_memory() if free is None else free
    if size_bytes > SMALL_BYTES and size_bytes > free // 2:
        raise WrongSize(
            f"{what}: a copy of these rows takes {size_bytes:,} bytes, more than half of the "
            f"{free:,} bytes of free memory.",
            expected=f"{free // 2:,} bytes at most",
            found=size_bytes,
            advice="Ask for fewer rows, or sample batches.",
        )


def free_memory() -> int:
    """Return the bytes of memory that are free or can be freed at once; all of it where unknown."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except FileNotFoundError:
        pass  # not Linux
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


MANIFEST_FILENAME = "manifest.json"
"""The file whose presence makes a folder a dataset."""


def damaged(path: Path | str, problem: str) -> DamagedDataset:
    """Return the error of what is wrong in the dataset that a path is in."""
    return DamagedDataset(f"{problem}.", path=path, advice=_advice_at(Path(path)))


def not_there(folder: Path) -> DatasetNotInstalled:
    """Return the error of a folder in which there is no dataset, or none any more."""
    return DatasetNotInstalled(
        f"There is no dataset in {folder}, which would have a {MANIFEST_FILENAME}; it may have "
        "been deleted meanwhile. Install it, or give a folder that preprocess() wrote or `rlds "
        "path` prints; what a buffer dumped is read by its loads()."
    )


def repair_advice(id: str) -> str:
    """Return what to do about a damaged dataset of this id, as errors end with it."""
    return f"Run: rlds repair {shlex.quote(id)}"


def _advice_at(path: Path) -> str:
    """Return what to do about the dataset that a path is in; its manifest may be damaged, too."""
    for folder in (path, *path.parents):
        if os.path.lexists(folder / MANIFEST_FILENAME):
            if id := _id_of(folder):
                return repair_advice(id)
            break
    return "Make it again with rlds download or preprocess, or copy it from where it is whole"


def _id_of(folder: Path) -> str:
    """Return the id of a dataset below a cache root; empty where it is below none."""
    parts = folder.parts
    if "datasets" not in parts:
        return ""
    # The names after the last folder of that name: <root>/datasets/<family>/<name…>.
    names = parts[len(parts) - parts[::-1].index("datasets") :]
    return "/".join(names) if len(names) > 1 else ""
