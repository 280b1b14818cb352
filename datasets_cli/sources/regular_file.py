"""Regular files of a dataset: opened, read within a bound, and hashed.

Every file of a dataset is opened by ``open_regular``, because the author of the folder may not be
trusted: opening a named pipe waits forever, and a device or a link leads anywhere.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from io import BufferedReader
from pathlib import Path

from datasets_cli.core.system_errors import damaged
from datasets_cli.errors import DamagedDataset

# O_NONBLOCK: a named pipe that replaced the file after lstat does not block.
_REGULAR_ONLY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


def kind_of(mode: int) -> str:
    """Return the kind of a path that is not a regular file, for messages."""
    return _KINDS.get(stat.S_IFMT(mode), "an unknown kind of file")


def open_regular(path: Path | str) -> BufferedReader:
    """Open a regular file of a dataset for reading."""
    return os.fdopen(open_descriptor(path), "rb")


def read_bounded(path: Path, most_bytes: int) -> bytes:
    """Return the bytes of a regular file; raise ValueError if it has more than ``most_bytes``."""
    with os.fdopen(open_descriptor(path), "rb", buffering=0) as file:
        # A read of n bytes allocates n, however short the file is.
        size = min(os.fstat(file.fileno()).st_size, most_bytes)
        data = file.read(size + 1)
    if len(data) > most_bytes:
        raise ValueError(f"it has more than {most_bytes:,} bytes")
    return data


def open_descriptor(path: Path | str) -> int:
    """Open a regular file as ``open_regular`` does; return its descriptor, which you close."""
    return open_sized(path)[0]


def open_sized(path: Path | str) -> tuple[int, int]:
    """Open a regular file as ``open_descriptor`` does; return its size in bytes too."""
    if not stat.S_ISREG(mode := os.lstat(path).st_mode):
        raise _not_regular(path, kind_of(mode))
    try:
        descriptor = os.open(path, _REGULAR_ONLY)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
        raise _not_regular(path, "no longer a regular file") from error
    try:
        # Another file may have replaced it after lstat: check the open one.
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _not_regular(path, kind_of(status.st_mode))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, status.st_size


def _not_regular(path: Path | str, kind: str) -> DamagedDataset:
    return damaged(path, f"{path} is {kind}; expected a regular file")


def sha256_of(path: Path) -> str:
    """Return the sha256 of a whole file in hexadecimal."""
    with path.open("rb") as file:
        return digest_of(file)


def digest_of(file: BufferedReader) -> str:
    """Return the sha256 of the rest of an open file in hexadecimal."""
    return hashlib.file_digest(file, "sha256").hexdigest()
