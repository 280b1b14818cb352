"""This machine's disk: room asked for before the first byte, bytes brought to it, and hashed.

A file of a dataset is opened by ``open_regular`` alone, because whoever filled the folder may not
be trusted: opening a named pipe waits for ever, and a device or a link leads anywhere.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from datasets_cli.errors import DamagedDataset, DiskFull, UsageError
from datasets_cli.reinstall import reinstall_advice_at

# EFBIG: a file size limit; EDQUOT: a quota. To a user each is a full disk.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

# O_NONBLOCK: a named pipe that took the file's place since lstat does not block the opening.
_REGULAR_ONLY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


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
    """Create a folder and its parents, also while another process removes empty ones.

    Raises:
        UsageError: a broken link or a file has the name of one of them.
    """
    for retries in reversed(range(10)):
        try:
            return folder.mkdir(parents=True, exist_ok=True)
        # FileExistsError also means that the folder was removed after it was found to be there.
        except (FileNotFoundError, FileExistsError, NotADirectoryError) as error:
            _refuse_what_is_in_the_way(folder, error)
            if not retries:
                raise
    raise AssertionError("the last try returns or raises")


def _refuse_what_is_in_the_way(folder: Path, error: OSError) -> None:
    existing = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    if existing.is_dir():
        return
    if link := broken_link(existing):
        raise UsageError(f"{folder} cannot be made: {link}. Is its disk mounted?") from error
    raise UsageError(
        f"{folder} cannot be made: {existing} is a file and no folder. Move it away, or choose "
        "another place: --root or RLDS_HOME is the cache root."
    ) from error


def broken_link(path: Path) -> str:
    """Return what a symbolic link to nothing is, as messages say it; "" where it is none."""
    if not path.is_symlink() or path.exists():
        return ""
    return f"{path} is a symbolic link to {path.readlink()}, which does not exist"


def flush(path: Path) -> None:
    """Bring a file's, or a folder's, content to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def kind_of(mode: int) -> str:
    """Return what a path that is no regular file is, as messages say it; "" for a regular file.

    Args:
        mode: ``st_mode`` as ``os.lstat`` gives it.
    """
    return "" if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "an unknown kind of file")


def open_regular(path: Path | str) -> BufferedReader:
    """Open a regular file of a dataset for reading.

    Anything else is not opened: no link is followed, no pipe waited for, no device touched.

    Raises:
        FileNotFoundError: there is nothing at ``path``.
        DamagedDataset: it is a link, pipe, socket, device or folder.
    """
    return os.fdopen(open_descriptor(path), "rb")


def open_descriptor(path: Path | str) -> int:
    """Open a regular file as ``open_regular`` does, and return a descriptor to be closed."""
    _check_kind(path, os.lstat(path).st_mode)
    try:
        descriptor = os.open(path, _REGULAR_ONLY)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
        raise _not_regular(path, "no longer a regular file") from error
    try:
        # Another file may have taken the path since lstat; this is the one that is open.
        _check_kind(path, os.fstat(descriptor).st_mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_kind(path: Path | str, mode: int) -> None:
    if kind := kind_of(mode):
        raise _not_regular(path, kind)


def _not_regular(path: Path | str, kind: str) -> DamagedDataset:
    return DamagedDataset(
        f"{path} is {kind}, where a dataset has a regular file; it was not opened. "
        f"{reinstall_advice_at(Path(path))}"
    )


def sha256_of(path: Path) -> str:
    """Return the sha256 of a whole file in hexadecimal."""
    with path.open("rb") as file:
        return digest_of(file)


def digest_of(file: BufferedReader) -> str:
    """Return the sha256 of the rest of an open file in hexadecimal."""
    return hashlib.file_digest(file, "sha256").hexdigest()


def is_full(error: OSError) -> bool:
    """Tell whether an error means that a disk, or what a user may have of it, is full."""
    return error.errno in _FULL


@contextmanager
def disk_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn a full disk into ``DiskFull`` naming ``path``; let every other error pass."""
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise
        raise DiskFull(
            f"The disk is full: {path} cannot be written ({error.strerror}). Nothing that was "
            "installed is lost, and what has been downloaded is kept. Make room and run again."
        ) from error
