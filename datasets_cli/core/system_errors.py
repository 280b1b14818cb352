"""Errors of the operating system, missing packages and damaged files as errors of this package."""

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
SMALL_BYTES = 1 << 20  # copies up to this size are always allowed


def is_full(error: OSError) -> bool:
    """Return whether an error means that the disk, or the user's quota on it, is full."""
    return error.errno in _FULL


def system_error(error: OSError) -> RldsError:
    """Return an error of the operating system as an error of this package."""
    message = f"{error.strerror or error}: {error.filename or ''}".rstrip(": ")
    path = error.filename
    if is_full(error):
        return DiskFull(f"{message}.", path=path, advice="Make room and run again.")
    if error.errno not in _NOT_ALLOWED:
        return RldsError(message, path=path)
    return RldsError(
        f"{message}.",
        path=path,
        advice="Check the permissions of the file and of its folder, or choose another cache root "
        f"with {ROOT}.",
    )


def imported(module: str, what: str, extra: str, more: str = "") -> Any:
    """Import a package of an extra (optional dependency), or raise ``UsageError``."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        install = f"pip install 'rlds-cli[{extra}]'"
        raise UsageError(
            f"{what} needs {module}, which is not installed: {install}.{more}",
            expected=module,
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
            advice="Read fewer rows, or sample batches.",
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


def damaged(path: Path | str, problem: str, **details: Any) -> DamagedDataset:
    """Return the error of a problem in the dataset that a path is in."""
    # details: attributes of the error, such as row, expected and found.
    return DamagedDataset(f"{problem}.", path=path, advice=_advice_at(Path(path)), **details)


def not_there(folder: Path) -> DatasetNotInstalled:
    """Return the error of a folder that is not, or no longer, a dataset."""
    return DatasetNotInstalled(
        f"There is no dataset in {folder}: expected a {MANIFEST_FILENAME}. It may have been "
        "deleted.",
        path=folder,
        expected=MANIFEST_FILENAME,
        advice="Install the dataset, or pass a folder that preprocess() wrote or `rlds path` "
        "prints; the dump of a buffer is read by its loads().",
    )


def repair_advice(id: str) -> str:
    """Return the command that repairs a dataset, as the advice of an error."""
    return f"Run: rlds repair {shlex.quote(id)}"


def _advice_at(path: Path) -> str:
    """Return the advice for the damaged dataset that a path is in."""
    # By the folder's name: the manifest may be damaged, too.
    for folder in (path, *path.parents):
        if os.path.lexists(folder / MANIFEST_FILENAME):
            if id := _id_of(folder):
                return repair_advice(id)
            break
    return "Create it again with rlds download or preprocess, or copy an intact one"


def _id_of(folder: Path) -> str:
    """Return the id of a dataset below a cache root; empty where it is below none."""
    parts = folder.parts
    if "datasets" not in parts:
        return ""
    # The names after the last folder of that name: <root>/datasets/<family>/<name…>.
    names = parts[len(parts) - parts[::-1].index("datasets") :]
    return "/".join(names) if len(names) > 1 else ""
