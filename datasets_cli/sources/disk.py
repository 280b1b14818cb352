"""This machine's disk: room asked for before the first byte, and bytes brought to it."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from datasets_cli.core.system_errors import is_full
from datasets_cli.errors import ROOT, DiskFull, RldsError, UsageError

MAX_NAME_BYTES = 200
"""Of a file or folder; systems take 255, and names of work under way are longer by up to 40."""

COPIED_BYTES = 1 << 20

# What a network or FUSE file system answers that cannot do what is asked.
UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENODEV, errno.ENOTSUP, errno.EOPNOTSUPP})


def check_free_space(folder: Path, size_bytes: int, what: str) -> None:
    """Check that ``folder``'s disk has room."""
    free = free_bytes(folder)
    if free < size_bytes:
        raise DiskFull(
            f"{what} needs about {size_bytes:,} bytes on the disk of {folder}, which has {free:,} "
            f"free. Make room, or choose another disk with {ROOT}."
        )


def free_bytes(folder: Path) -> int:
    """Return how many bytes are free on the disk of a folder, which need not exist."""
    existing = folder
    while not existing.exists():
        existing = existing.parent
    usage = shutil.disk_usage(existing)
    return usage.free if usage.total else sys.maxsize  # some FUSE file systems tell no size


def copy_bytes(source: BinaryIO, target: BinaryIO, size: int) -> None:
    """Copy the next ``size`` bytes, which must be there."""
    while size:
        block = source.read(min(size, COPIED_BYTES))
        assert block, f"{size} bytes more"
        target.write(block)
        size -= len(block)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, also while another process removes empty ones."""
    for retries in reversed(range(10)):
        try:
            with short_names(folder):
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
        f"{folder} cannot be made: {existing} is a file, not a folder. Move it away, or choose "
        f"another place: {ROOT} is the cache root."
    ) from error


def paths_below(folder: Path) -> Iterator[Path]:
    """Yield all paths below a folder, also while other processes delete some of them."""
    for parent, folders, files in os.walk(folder):
        yield from (Path(parent, name) for name in (*folders, *files))


@contextmanager
def short_names(path: Path) -> Iterator[None]:
    """Turn a name that is longer than the file system takes into an error that says so."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise UsageError(
            f"{path} is too long: a file system takes names of up to 255 bytes, and a whole path "
            "of 4,096 (macOS: 1,024). Choose a shorter name, or another cache root with "
            f"{ROOT}."
        ) from error


def no_folder(text: str | os.PathLike[str]) -> str:
    """Return why what a user names is not a folder, for messages."""
    if not os.fspath(text):
        return "is empty text"
    return "is not a folder" if Path(text).expanduser().exists() else "does not exist"


def broken_link(path: Path) -> str:
    """Return the description of a broken symbolic link, for messages; "" for any other path."""
    if not path.is_symlink() or path.exists():
        return ""
    return f"{path} is a symbolic link to {path.readlink()}, which does not exist"


def allocate(path: Path, size: int) -> None:
    """Create a file of zeros with all its disk space allocated."""
    # A mapping or a late write would else fail half-way on a full disk.
    with path.open("x+b") as file:
        reserve(file.fileno(), 0, size)


def reserve(descriptor: int, start: int, stop: int) -> None:
    """Give every byte of a part of a file its place on the disk; what is written there stays."""
    try:
        os.posix_fallocate(descriptor, start, stop - start)
    # AttributeError: macOS does not have the function, and reserves no hole of a file.
    except (AttributeError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in UNSUPPORTED:
            raise
        while start < stop:
            size = min(1 << 20, stop - start)
            there = os.pread(descriptor, size, start)
            start += os.pwrite(descriptor, there.ljust(size, b"\0"), start)


def flush(path: Path) -> None:
    """Bring a file's, or a folder's, content to the disk."""
    # Some file systems do this for files alone; their folders are then as safe as they make them.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in UNSUPPORTED or not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise
    finally:
        os.close(descriptor)


def flush_all(folder: Path) -> None:
    """Bring a file, or all files and folders below a folder, to the disk."""
    for parent, _, names in os.walk(folder):
        for name in names:
            flush(Path(parent, name))
        flush(Path(parent))


@contextmanager
def disk_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn a full disk into ``DiskFull`` naming ``path``; let every other error pass."""
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise
        reason = os.strerror(error.errno or errno.ENOSPC)  # h5py's own text is a dump
        raise DiskFull(
            f"The disk is full: {path} cannot be written ({reason}). Nothing that was "
            "installed is lost, and what has been downloaded is kept. Make room and run again.",
            path=path,
        ) from error


@contextmanager
def path_errors(path: Path) -> Iterator[None]:
    """Turn what the system refuses into errors that name the path which a user gives, alone."""
    try:
        with disk_errors(path):
            yield
    except RldsError:
        raise
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise UsageError(
            f"{path} cannot be made or read: {reason}. See its folder, or choose another path."
        ) from error
