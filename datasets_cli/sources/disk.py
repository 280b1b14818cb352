"""This machine's disk: free space, new folders, allocation, flushing, and errors of the disk."""

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
from datasets_cli.errors import ROOT, DiskFull, NotWritable, RldsError, UsageError

MAX_NAME_BYTES = 200
"""Maximum bytes of a file name. File systems accept 255; temporary names are up to 40 longer."""

COPIED_BYTES = 1 << 20

# The answers of a network or FUSE file system to an operation that it does not support.
UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENODEV, errno.ENOTSUP, errno.EOPNOTSUPP})


def check_free_space(folder: Path, size_bytes: int, what: str) -> None:
    """Raise DiskFull if the disk of ``folder`` has less free space than ``what`` needs."""
    free = free_bytes(folder)
    if free < size_bytes:
        raise DiskFull(
            f"{what} needs about {size_bytes:,} bytes on the disk of {folder}, which has {free:,} "
            "free.",
            path=folder,
            expected=size_bytes,
            found=free,
            advice=f"Make room, or choose another disk with {ROOT}.",
        )


def free_bytes(folder: Path) -> int:
    """Return the number of free bytes on the disk of a folder, which need not exist."""
    existing = folder
    while not existing.exists():
        existing = existing.parent
    usage = shutil.disk_usage(existing)
    return usage.free if usage.total else sys.maxsize  # some FUSE file systems report no size


def copy_bytes(source: BinaryIO, target: BinaryIO, size: int) -> None:
    """Copy the next ``size`` bytes, which must exist."""
    while size:
        block = source.read(min(size, COPIED_BYTES))
        assert block, f"{size} bytes more"
        target.write(block)
        size -= len(block)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, even while another process removes empty ones."""
    for retries in reversed(range(10)):
        try:
            with short_names(folder):
                return folder.mkdir(parents=True, exist_ok=True)
        # FileExistsError: also if the folder was removed after mkdir found it.
        except (FileNotFoundError, FileExistsError, NotADirectoryError) as error:
            _refuse_obstacle(folder, error)
            if not retries:
                raise
    raise AssertionError("the last try returns or raises")


def _refuse_obstacle(folder: Path, error: OSError) -> None:
    existing = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    if existing.is_dir():
        return
    if link := broken_link(existing):
        raise NotWritable(
            f"{folder} cannot be created: {link}.", path=folder, advice="Is its disk mounted?"
        ) from error
    raise NotWritable(
        f"{folder} cannot be created: {existing} is a file, not a folder.",
        path=folder,
        found=str(existing),
        advice=f"Move it away, or choose another cache root with {ROOT}.",
    ) from error


def paths_below(folder: Path) -> Iterator[Path]:
    """Yield all paths below a folder, even while other processes delete some of them."""
    for parent, folders, files in os.walk(folder):
        yield from (Path(parent, name) for name in (*folders, *files))


@contextmanager
def short_names(path: Path) -> Iterator[None]:
    """Raise UsageError for a name that is too long for the file system."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise UsageError(
            f"{path} is too long: a name may have 255 bytes, a whole path 4,096 (macOS: 1,024).",
            path=path,
            advice=f"Choose a shorter name, or another cache root with {ROOT}.",
        ) from error


def no_folder(text: str | os.PathLike[str]) -> str:
    """Return why a path of the user is not a folder, for messages."""
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
    # Otherwise a write through a mapping fails half-way on a full disk.
    with path.open("x+b") as file:
        reserve(file.fileno(), 0, size)


def reserve(descriptor: int, start: int, stop: int) -> None:
    """Allocate disk space for a range of a file; its content stays."""
    try:
        os.posix_fallocate(descriptor, start, stop - start)
    # AttributeError: macOS has no such function; writing fills the holes of the file.
    except (AttributeError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in UNSUPPORTED:
            raise
        while start < stop:
            size = min(1 << 20, stop - start)
            content = os.pread(descriptor, size, start)
            start += os.pwrite(descriptor, content.ljust(size, b"\0"), start)


def flush(path: Path) -> None:
    """Flush the content of a file, or of a folder, to the disk."""
    # Some file systems flush files only; on these a folder cannot be made safer.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in UNSUPPORTED or not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise
    finally:
        os.close(descriptor)


def flush_all(folder: Path) -> None:
    """Flush all files and folders below a folder to the disk."""
    for parent, _, names in os.walk(folder):
        for name in names:
            flush(Path(parent, name))
        flush(Path(parent))


@contextmanager
def disk_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn the error of a full disk into ``DiskFull`` with ``path``; other errors pass."""
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise
        reason = os.strerror(error.errno or errno.ENOSPC)  # h5py's own text is a dump
        raise DiskFull(
            f"The disk is full: {path} cannot be written ({reason}). Installed datasets and "
            "partial downloads are kept.",
            path=path,
            advice="Make room and run again.",
        ) from error


@contextmanager
def path_errors(path: Path) -> Iterator[None]:
    """Turn errors of the system into errors that name the user's path."""
    try:
        with disk_errors(path):
            yield
    except RldsError:
        raise
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise UsageError(
            f"{path} cannot be created or read: {reason}.",
            path=path,
            found=reason,
            advice="Check its folder, or choose another path.",
        ) from error
