"""The lock of a dataset: one process at a time writes, replaces or deletes it.

The lock only saves double work. On a file system without locks, work continues without one; on an
operating system without locks, filelock creates a lock file instead.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from datasets_cli.core.progress import Note, Progress, log_notes
from datasets_cli.core.system_errors import is_full
from datasets_cli.errors import ROOT, LockedError, NotWritable, UsageError
from datasets_cli.sources.disk import make_folder
from datasets_cli.store.cache_root import lock_of

if TYPE_CHECKING:
    import filelock

logger = logging.getLogger(__name__)

QUIET_SECONDS = 1.0
"""Longer waits are reported."""

# EBADF: NFS cannot lock a file that is open only for reading, such as another user's.
_NO_LOCKS = frozenset({errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EBADF})


@contextmanager
def locked(
    path: Path, what: str, timeout_seconds: float, progress: Progress = log_notes
) -> Iterator[None]:
    """Hold a lock."""
    # Imported here: it is slow.
    import filelock

    _refuse_half_started()
    lock = filelock.FileLock(path)
    try:
        make_folder(path.parent)
        _wait(lock, what, timeout_seconds, progress)
    except filelock.Timeout as error:
        raise LockedError(
            f"Another process has worked on {what} for over {timeout_seconds:g} s (lock {path}).",
            path=path,
            expected=f"the lock within {timeout_seconds:g} s",
            advice="Wait for it, or set RLDS_LOCK_TIMEOUT to wait longer.",
        ) from error
    except (OSError, NotImplementedError) as error:
        if isinstance(error, OSError) and error.errno not in _NO_LOCKS:
            if is_full(error):
                raise
            raise NotWritable(
                f"The lock file {path.name} cannot be created in {path.parent}: "
                f"{error.strerror or error}.",
                path=path.parent,
                advice=f"Make the folder writable, or choose another cache root with {ROOT}.",
            ) from error
        logger.debug("%s: this file system has no locks (%s)", path, error)
    try:
        yield
    finally:
        lock.release()


def _refuse_half_started() -> None:
    """Raise ``UsageError`` in a worker that is still importing the script which started it."""
    # Workers of this package never import the script. Those of a user's executor do, and without a
    # guard they start the same work, and wait forever for the lock of their parent. multiprocessing
    # reads the same flag, but later, when a process starts.
    import multiprocessing

    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise UsageError(
            "A worker process imported the script that started it, and reached the same call.",
            advice='Put the body of the script below `if __name__ == "__main__":`, or pass '
            "num_workers= instead of an executor.",
        )


@contextmanager
def dest_locked(
    dest: Path, timeout_seconds: float, progress: Progress = log_notes, what: str = ""
) -> Iterator[None]:
    """Hold the lock of a destination, and delete the lock file afterwards."""
    lock = lock_of(dest)
    with locked(lock, what or str(dest), timeout_seconds, progress):
        try:
            yield
        finally:
            # A waiting process notices that the file was unlinked, and creates a new one.
            lock.unlink(missing_ok=True)


def is_held(path: Path) -> bool:
    """Return whether a process holds a lock; False if that is unknown."""
    import filelock

    if not path.exists():
        return False
    lock = filelock.FileLock(path)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        return True
    except (OSError, NotImplementedError):
        return False
    lock.release()
    return False


def _wait(
    lock: filelock.BaseFileLock, what: str, timeout_seconds: float, progress: Progress
) -> None:
    """Acquire a lock; report a wait of more than ``QUIET_SECONDS``."""
    import filelock

    try:
        lock.acquire(timeout=min(QUIET_SECONDS, timeout_seconds))
    except filelock.Timeout:
        # If the file cannot be created, as in /proc, filelock waits as if the lock were held.
        if not (path := Path(lock.lock_file)).exists():
            path.touch()
        if timeout_seconds <= QUIET_SECONDS:
            raise
        text = f"waiting for another process that works on {what}"
        progress(Note(f"{text} (RLDS_LOCK_TIMEOUT: {timeout_seconds:g} s)"))
        lock.acquire(timeout=timeout_seconds - QUIET_SECONDS)
