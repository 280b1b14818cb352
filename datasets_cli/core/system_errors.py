"""Converts errors of the system, of missing packages and of damaged files to ``RldsError``."""

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
    install_extra,
)

# EFBIG is a file size limit, EDQUOT a quota. To a user both are a full disk.
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


def import_optional(module: str, what: str, extra: str, more: str = "") -> Any:
    """Import an optional dependency, or raise ``UsageError``."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{what} needs {module}, which is not installed.{more}",
            expected=module,
            advice=install_extra(extra),
        ) from error


def check_memory(size_bytes: int, what: str, free: int | None = None) -> None:
    """Check that a copy fits into half of the free memory; ``free`` is that of another device."""
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
    """Return the bytes of available memory; all memory if the system does not report it."""
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
    """Return the error of a problem at a path in a dataset."""
    # details: attributes of the error, such as row, expected and found.
    return DamagedDataset(f"{problem}.", path=path, advice=_advice_at(Path(path)), **details)


def missing_dataset(folder: Path) -> DatasetNotInstalled:
    """Return the error of a folder that is not a dataset, or no longer one."""
    return DatasetNotInstalled(
        f"{folder} is not a dataset: {MANIFEST_FILENAME} is missing. The dataset may have been "
        "deleted.",
        path=folder,
        expected=MANIFEST_FILENAME,
        advice="Install the dataset, or pass a folder that preprocess() wrote or `rlds path` "
        "prints. The dump of a buffer is read by loads().",
    )


def repair_advice(id: str) -> str:
    """Return the command that repairs a dataset, as the advice of an error."""
    return f"Run: rlds repair {shlex.quote(id)}"


def _advice_at(path: Path) -> str:
    # The id is taken from the name of the folder: the manifest may be damaged, too.
    for folder in (path, *path.parents):
        if os.path.lexists(folder / MANIFEST_FILENAME):
            if id := _id_of(folder):
                return repair_advice(id)
            break
    return "Create it again with rlds download or preprocess, or copy an intact one"


def _id_of(folder: Path) -> str:
    """Return the id of a dataset below a cache root; empty for any other folder."""
    parts = folder.parts
    if "datasets" not in parts:
        return ""
    # The names after the last folder of that name: <root>/datasets/<family>/<name…>.
    names = parts[len(parts) - parts[::-1].index("datasets") :]
    return "/".join(names) if len(names) > 1 else ""
