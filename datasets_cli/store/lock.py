"""The lock of a dataset: one process at a time makes, replaces or deletes it.

The lock saves double work. Correctness does not need it, so a file system without locks is used
without one. The lock file is empty; whoever holds the lock removes the file as it lets go, and
nobody else does: a process that has opened the file meanwhile sees that it is no longer the one of
that name, and opens the new one.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from datasets_cli.errors import LockedError
from datasets_cli.parallel.executors import refuse_half_started
from datasets_cli.progress import Progress
from datasets_cli.sources.disk import make_folder

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.05
QUIET_SECONDS = 1.0
"""Waiting for longer is worth a note."""

_HELD = frozenset({errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES})
_REMOVED = frozenset({errno.ENOENT, errno.ESTALE})
# EBADF: NFS does not lock what is open only to read, such as another user's file.
_NO_LOCKS = frozenset({errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EBADF})


@contextmanager
def locked(
    path: Path, what: str, timeout_seconds: float, progress: Progress | None = None
) -> Iterator[None]:
    """Hold a lock.

    Args:
        path: the lock file; its folder is created.
        what: the lock is for, an id or a folder; named in messages.
        timeout_seconds: how long to wait for another process; infinity waits for ever.
        progress: told that we wait; the log is where None.

    Raises:
        LockedError: another process still holds it.
        UsageError: this is a worker of a script without a guard, which would wait for its parent.
    """
    refuse_half_started()
    descriptor = _wait(path, what, timeout_seconds, progress)
    try:
        yield
    finally:
        with suppress(OSError):  # the folder may be gone, with all that is in it
            # Somebody who deleted our file by hand may have made room for another holder's.
            if _is_at(path, descriptor):
                path.unlink()
        os.close(descriptor)


def _wait(path: Path, what: str, timeout_seconds: float, progress: Progress | None) -> int:
    """Return the open descriptor that holds the lock."""
    begun = time.monotonic()
    is_told = False
    while (descriptor := _try(path)) is None:
        waited = time.monotonic() - begun
        if waited >= timeout_seconds:
            raise LockedError(
                f"Another process has worked on {what} for over {timeout_seconds:g} s (lock "
                f"{path}). Wait for it, or set RLDS_LOCK_TIMEOUT to wait longer."
            )
        if waited >= QUIET_SECONDS and not is_told:
            is_told = True
            tell = logger.warning if progress is None else progress.note
            tell(
                f"waiting for another process that works on {what} "
                f"(RLDS_LOCK_TIMEOUT: {timeout_seconds:g} s)"
            )
        time.sleep(min(POLL_SECONDS, timeout_seconds - waited))
    return descriptor


def _try(path: Path) -> int | None:
    """Return the open descriptor that holds the lock; None where somebody else holds it."""
    while True:
        make_folder(path.parent)
        try:
            descriptor = _open(path)
        except FileNotFoundError:  # another process has removed the folder, which was empty
            continue
        is_kept = False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever held it before may have removed the file after we had opened it.
            is_kept = _is_at(path, descriptor)
        except OSError as error:
            is_kept = error.errno in _NO_LOCKS
            if error.errno in _HELD:
                return None
            if error.errno not in _NO_LOCKS | _REMOVED:
                raise
        finally:
            if not is_kept:
                os.close(descriptor)
        if is_kept:
            return descriptor


def _is_at(path: Path, descriptor: int) -> bool:
    """Tell whether an open file is the one of that name."""
    return os.path.samestat(os.fstat(descriptor), path.stat())


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except PermissionError:
        if not path.exists():
            raise
        # Another user's, in a folder that we share. Most file systems lock what is open to read.
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
