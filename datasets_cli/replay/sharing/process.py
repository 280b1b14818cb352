"""Processes: which one this is, what learns that it was forked, and a lock between several."""

from __future__ import annotations

import fcntl
import os
import secrets
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from datasets_cli.errors import UsageError
from datasets_cli.sources.new_files import stem_of

_names: dict[int, str] = {}  # by the number of the process; a forked one has its parent's too


class Forked(Protocol):
    """What keeps something that a forked process must not take over, such as a lock."""

    def after_fork(self) -> None:
        """Begin as the part of a new process."""


class Unbegun(Protocol):
    """What processes share only if it began before the second one was forked."""

    def begin(self) -> None:
        """Begin, unless it did."""


_parts: weakref.WeakSet[Forked] = weakref.WeakSet()
_unbegun: weakref.WeakSet[Unbegun] = weakref.WeakSet()


def this_process() -> str:
    """Return a name of this process that no other one has, whatever starts it."""
    number = os.getpid()
    if number not in _names:
        _names[number] = f"{number}-{secrets.token_hex(8)}"
    return _names[number]


def tell_after_fork(part: Forked) -> None:
    """Call ``after_fork`` of a part in every process that is forked from this one."""
    _parts.add(part)


def begin_before_fork(part: Unbegun) -> None:
    """Call ``begin`` of a part before this process is forked."""
    _unbegun.add(part)


def _begin_parts() -> None:
    for part in list(_unbegun):
        part.begin()


def _tell_parts() -> None:
    for part in list(_parts):
        part.after_fork()


os.register_at_fork(before=_begin_parts, after_in_child=_tell_parts)


class ProcessLock:
    """A lock between processes and their threads; its holder may take it again."""

    # The kernel frees it when its process dies. `store.lock` saves work, so that it may be missing,
    # and it looks for its turn twenty times a second; rows depend on this one, thousands of times.

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None
        self._begin()
        tell_after_fork(self)

    def __enter__(self) -> bool:
        """Take the lock; tell whether it was not held before."""
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
        """Be free in a new process, which has no thread that could free it."""
        self._close()  # a copy of the descriptor would hold the lock together with the parent
        self._begin()

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # The end of a program takes the module's names away before its objects.
        if getattr(self, "_file", None) is not None:
            close(self._file)  # type: ignore[arg-type]

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _begin(self) -> None:
        self._threads = threading.RLock()
        self._depth = 0

    def _lock_file(self) -> None:
        """Lock the file, which each process opens for itself."""
        try:
            if self._file is None:
                self._file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            fcntl.flock(self._file, fcntl.LOCK_EX)
        except FileNotFoundError as error:
            raise rows_are_gone(self.path.parent.parent) from error
        except OSError as error:
            raise UsageError(
                f"{self.path} cannot be locked ({error}), which keeps processes from writing to "
                "the same rows at once. Choose a scratch_dir on a local disk."
            ) from error


def rows_are_gone(folder: Path) -> UsageError:
    """Return the error of rows whose files were deleted."""
    if not stem_of(folder) or f"-{os.getpid()}-" in folder.name:
        return UsageError(
            f"The shared rows in {folder} are gone: their files were deleted, or another storage "
            "was made there. Keep the folder for as long as its storage is used, and give each "
            "storage another scratch_dir."
        )
    return UsageError(
        f"The shared rows in {folder} are gone: the process that made their storage has ended, or "
        "let go of it. Keep the buffer there for as long as others use it, or give "
        "LazyMemmapStorage a scratch_dir, which stays."
    )
