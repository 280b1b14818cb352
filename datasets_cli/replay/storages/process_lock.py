"""Hooks that run around a fork of this process, and a lock between processes."""

from __future__ import annotations

import fcntl
import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from datasets_cli.errors import NotWritable
from datasets_cli.replay.storages.mapped_files import rows_are_gone


class Forked(Protocol):
    """An object with a state that a forked process must replace, such as a lock."""

    def after_fork(self) -> None:
        """Replace the state in the new process."""


class Forking(Protocol):
    """An object that must be prepared before a fork to be shared."""

    def before_fork(self) -> None:
        """Prepare the object in the parent process."""


_forked: weakref.WeakSet[Forked] = weakref.WeakSet()
_forking: weakref.WeakSet[Forking] = weakref.WeakSet()


def call_after_fork(part: Forked) -> None:
    """Call ``part.after_fork`` in every process that is forked from this one."""
    _forked.add(part)


def call_before_fork(part: Forking) -> None:
    """Call ``part.before_fork`` in this process before it is forked."""
    _forking.add(part)


def _before_fork() -> None:
    for part in list(_forking):
        part.before_fork()


def _after_fork() -> None:
    for part in list(_forked):
        part.after_fork()


os.register_at_fork(before=_before_fork, after_in_child=_after_fork)


class ProcessLock:
    """A reentrant lock between processes and their threads, on a file."""

    # The kernel releases it when its process exits. `store.lock` polls twenty times a second, and
    # continues without a lock if a file system has none; this lock is taken for every write.

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None
        self._start()
        call_after_fork(self)

    def __enter__(self) -> bool:
        """Acquire the lock; return whether this process did not hold it yet."""
        self._threads.acquire()
        try:
            if not self._depth:
                self._lock_file()
        except BaseException:
            self._threads.release()
            raise
        self._depth += 1
        return self._depth == 1

    def __exit__(self, *error: object) -> None:
        self._depth -= 1
        if not self._depth and self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        self._threads.release()

    def after_fork(self) -> None:
        """Release the lock in a new process: the thread that held it does not exist there."""
        self._close()  # a copy of the descriptor would share the lock with the parent
        self._start()

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # At exit, Python deletes the names of this module before its objects.
        if getattr(self, "_file", None) is not None:
            close(self._file)  # type: ignore[arg-type]

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _start(self) -> None:
        self._threads = threading.RLock()
        self._depth = 0

    def _lock_file(self) -> None:
        try:
            if self._file is None:  # each process opens the file separately
                self._file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            fcntl.flock(self._file, fcntl.LOCK_EX)
        except FileNotFoundError as error:
            raise rows_are_gone(self.path.parent.parent) from error
        except OSError as error:
            raise NotWritable(
                f"{self.path} cannot be locked ({error}), so processes cannot share these rows.",
                path=str(self.path),
                advice="Choose a scratch_dir on a local disk.",
            ) from error
