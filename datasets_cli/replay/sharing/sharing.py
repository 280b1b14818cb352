"""Sharing rows between processes: one writes at a time, all read while nobody does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch

from datasets_cli.replay.sharing.control import (
    SUBFOLDER,
    check_memory,
    make_control,
    open_control,
)
from datasets_cli.replay.sharing.counters import (
    FIRST_ROW,
    FORM,
    JOURNAL,
    OTHERS,
    SEQUENCE,
    SharedCounters,
)
from datasets_cli.replay.sharing.files import make_files
from datasets_cli.replay.sharing.form_file import Form, SharedForm, read_form, write_form
from datasets_cli.replay.sharing.journal import Journal, Span
from datasets_cli.replay.sharing.lock import ProcessLock
from datasets_cli.replay.sharing.process import tell_after_fork
from datasets_cli.store.schema.columns import Column

logger = logging.getLogger(__name__)

_TRIES = 3

Found = TypeVar("Found")


class Sharing:
    """What processes that share rows agree by; a ``with`` statement makes this one the writer."""

    # Who writes holds a lock, which the kernel frees when its process dies. Who reads takes no
    # lock: it reads `SEQUENCE` before and after, and reads again where a write came between.
    # Processors reorder some hundred instructions at most; between a number and a row Python runs
    # thousands.
    # What a killed writer leaves is repaired by the next process that takes the lock: rows that it
    # was appending do not count, and rows that it was writing over are written once more, from the
    # journal. Nothing is kept in the journal as long as one process alone knows of the rows.
    # It is pickled as the folder and a key.

    def __init__(self, folder: Path, key: bytes, numbers: memoryview, is_known: bool) -> None:
        self.folder = folder
        self.counters = SharedCounters(numbers)
        self.columns: list[torch.Tensor] = []
        self._key = key
        self._numbers = numbers
        self._lock = ProcessLock(folder / SUBFOLDER / "control")
        self.form: Form | None = None
        self._journal: Journal | None = None
        self._is_known = is_known
        tell_after_fork(self)

    def __reduce__(self) -> Any:
        with self:
            self._numbers[OTHERS] = 1  # before the other process is there: it may be killed next
        return open_sharing, (self.folder, self._key)

    @property
    def has_others(self) -> bool:
        """Whether a second process may have the rows."""
        return bool(self._numbers[OTHERS]) or not self._is_known

    def after_fork(self) -> None:
        """Begin as the part of a new process."""
        self._is_known = False

    def __enter__(self) -> None:
        is_first = self._lock.__enter__()
        try:
            if is_first:
                self._begin_turn()
        except BaseException:
            self._lock.__exit__()
            raise

    def __exit__(self, *error: object) -> None:
        self._lock.__exit__()

    def read(self, attempt: Callable[[], Found], take_back: Callable[[], None]) -> Found:
        """Return what ``attempt`` returns, of rows that nobody wrote meanwhile."""
        if not self._is_known:
            with self:
                pass
        for _ in range(_TRIES):
            before = self._numbers[SEQUENCE]
            if before % 2:
                continue
            try:
                found = attempt()
            except Exception:
                if self._numbers[SEQUENCE] == before:
                    raise
            else:
                if self._numbers[SEQUENCE] == before:
                    return found
            take_back()
        with self:
            return attempt()

    def write(self, rows: Span, columns: list[torch.Tensor], count: Callable[[Span], None]) -> None:
        """Write rows, which count when they are there."""
        # rows: consecutive ones, or numbered int64 `[n]`.
        # columns: of these, `[n, ...]`.
        with self:
            over = _first(rows) < self.counters.num_rows
            journal = self._journal if over and self._numbers[OTHERS] else None
            parts = journal.parts(rows, columns) if journal else [(rows, columns)]
            for part, its_columns in parts:
                self.counters.begin()
                count(part)
                self._numbers[FIRST_ROW] = _first(part)
                self._numbers[JOURNAL] = 0  # what is there is of a write that is over
                if journal:
                    journal.record(part, its_columns)
                self._put(part, its_columns)

    @contextmanager
    def changing(self) -> Iterator[SharedCounters]:
        """Let counters be set, which count all at once at the end."""
        with self:
            self.counters.begin()
            yield self.counters
            self.counters.end()

    def allocate(self, leaves: list[Column], capacity: int, width: int, form: Form | None) -> None:
        """Make the files of rows, and tell the others of them, unless one of these was first."""
        with self:
            if self.find_form():
                return
            open_control(self.folder, self._key)
            check_memory(self.folder, capacity * sum(leaf.row_bytes for leaf in leaves))
            files = make_files(self.folder, leaves, capacity)
            found = SharedForm(files, width, form)
            write_form(self.folder, self._key, found)
            self._use(found)
            self._numbers[FORM] = 1

    def find_form(self) -> bool:
        """Tell whether the form of the rows is known; then there are their columns."""
        if not self.columns and self._numbers[FORM]:
            self._use(read_form(self.folder, self._key))
        return bool(self.columns)

    def _use(self, found: SharedForm) -> None:
        self.columns = [file.map() for file in found.files]
        path = self.folder / SUBFOLDER / "journal"
        self._journal = Journal(path, self._numbers, self.columns, found.width)
        self.form = found.form

    def _begin_turn(self) -> None:
        """Be known to the others, and repair what the last writer left if it was killed."""
        if not self._is_known:
            self._numbers[OTHERS] = 1
            self._is_known = True
        if self._numbers[SEQUENCE] % 2:
            self._repair()

    def _put(self, rows: Span, columns: list[torch.Tensor]) -> None:
        """Write rows while ``SEQUENCE`` is odd; then the counters that were set count."""
        self._numbers[SEQUENCE] += 1
        try:
            self._copy(rows, columns)
        except KeyboardInterrupt:
            self._copy(rows, columns)  # to the end, so that no row is half written
            self.counters.end()
            raise
        except BaseException:
            self._repair()
            raise
        self.counters.end()

    def _copy(self, rows: Span, columns: list[torch.Tensor]) -> None:
        for own, new in zip(self.columns, columns, strict=True):
            own[rows] = new

    def _repair(self) -> None:
        """Bring rows and counters into order after a write that did not end."""
        self.find_form()
        if self._journal and (entry := self._journal.entry()):
            self._copy(*entry)  # the counters were set before
        else:
            num_rows, first = self.counters.num_rows, self._numbers[FIRST_ROW]
            self.counters.begin()
            self.counters.revision += 1
            if first < num_rows:
                logger.warning(
                    "%s: a write over rows did not end, and no other process knew of them: the "
                    "rows from %d on, of %d, are dropped",
                    *(self.folder, first, num_rows),
                )
                self.counters.num_rows = first
        self.counters.end()


def _first(rows: Span) -> int:
    if isinstance(rows, slice):
        return int(rows.start)
    return int(rows.min()) if len(rows) else 0


def make_sharing(folder: Path) -> Sharing:
    """Return what begins to share rows in a folder, which is made."""
    return open_sharing(folder, make_control(folder), is_known=True)


def open_sharing(folder: Path, key: bytes, *, is_known: bool = False) -> Sharing:
    """Return what shares the rows in a folder."""
    sharing = Sharing(folder, key, open_control(folder, key), is_known)
    with sharing:
        return sharing
