"""This machine's disk: room asked for before the first byte, bytes brought to it, and hashed."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from datasets_cli.errors import DiskFull

# EFBIG: a file size limit; EDQUOT: a quota. To a user each is a full disk.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def check_free_space(folder: Path, size_bytes: int, what: str) -> None:
    """Check that ``folder``'s disk has room.

    Args:
        folder: where the bytes will be written; it need not exist.
        size_bytes: how many.
        what: needs them; begins the message.

    Raises:
        DiskFull: less than ``size_bytes`` are free.
    """
    existing = folder
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    if free < size_bytes:
        raise DiskFull(
            f"{what} needs about {size_bytes:,} bytes on the disk of {folder}, which has {free:,} "
            "free. Make room, or choose another disk with --root or RLDS_HOME."
        )


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, also while another process removes empty ones."""
    for _ in range(10):
        try:
            return folder.mkdir(parents=True, exist_ok=True)
        except FileNotFoundError:
            continue
    return folder.mkdir(parents=True, exist_ok=True)


def flush(path: Path) -> None:
    """Bring a file's, or a folder's, content to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_of(path: Path) -> str:
    """Return the sha256 of a whole file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def disk_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn a full disk into ``DiskFull`` naming ``path``; let every other error pass."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise DiskFull(
            f"The disk is full: {path} cannot be written ({error.strerror}). Nothing that was "
            "installed is lost, and what has been downloaded is kept. Make room and run again."
        ) from error
