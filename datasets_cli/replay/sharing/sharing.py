"""Sharing rows between processes: one writes at a time, all read while nobody does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import torch

from datasets_cli.replay.arguments import Rows
from datasets_cli.replay.sharing.files import (
    END_ROW,
    FIRST_ROW,
    FORM,
    OTHERS,
    SEQUENCE,
    SUBFOLDER,
    SharedCounters,
    SharedForm,
    delete_files,
    make_control,
    make_files,
    map_column,
    open_control,
    read_form,
    reserve_all,
    reserve_rows,
    room_for,
    write_form,
)
from datasets_cli.replay.sharing.process import ProcessLock, tell_after_fork
from datasets_cli.schema.columns import check_key

logger = logging.getLogger(__name__)

_TRIES = 3

Found = TypeVar("Found")

RowsSpan = slice | torch.Tensor
"""Rows: consecutive ones, or numbered int64 ``[n]``."""


class Sharing:
    """What processes that share rows agree by; a ``with`` statement makes this one the writer."""

    # Who writes holds a lock, which the kernel frees when its process dies. Who reads takes no
    # lock: it reads `SEQUENCE` before and after, and reads again where a write came between.
    # Processors reorder some hundred instructions at most; between a number and a row Python runs
    # thousands.
    # What a killed writer leaves is repaired by the next process that takes the lock: rows that it
    # was appending do not count, and rows that it was writing over are dropped.
    # It is pickled as the folder and a key.

    def __init__(self, folder: Path, key: bytes, numbers: memoryview, is_known: bool) -> None:
        self.folder = folder
        self.counters = SharedCounters(numbers)
        self.columns: list[torch.Tensor] = []
        self._key = key
        self._numbers = numbers
        self._lock = ProcessLock(folder / SUBFOLDER / "control")
        self.form: SharedForm | None = None
        self._reserved = range(0)  # rows that are known to have their place on the disk
        self._is_known = is_known
        tell_after_fork(self)

    def __reduce__(self) -> tuple[object, ...]:
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
                rows = attempt()
            except Exception:
                if self._numbers[SEQUENCE] == before:
                    raise
            else:
                if self._numbers[SEQUENCE] == before:
                    return rows
            take_back()
        with self:
            return attempt()

    def write(
        self, rows: RowsSpan, columns: Sequence[Rows], count: Callable[[RowsSpan], None]
    ) -> None:
        """Write rows, which count when they are there."""
        # rows: consecutive ones, or numbered int64 `[n]`.
        # columns: of these, `[n, ...]`.
        with self:
            self.counters.begin()
            count(rows)
            self._numbers[FIRST_ROW], self._numbers[END_ROW] = _ends(rows)
            self._put(rows, columns)

    @contextmanager
    def changing(self) -> Iterator[SharedCounters]:
        """Let counters be set, which count all at once at the end."""
        with self:
            self.counters.begin()
            yield self.counters
            self.counters.end()

    def allocate(self, form: SharedForm) -> None:
        """Make the files of rows, and tell the others of them, unless one of these was first."""
        with self:
            if self.find_form():
                return
            for leaf in form.leaves:
                check_key(leaf.key)
            open_control(self.folder, self._key)
            try:
                with room_for(self.folder, form.capacity * form.row_bytes):
                    make_files(self.folder, form.leaves, form.capacity)
                    reserve_all(self.folder, form)
                    write_form(self.folder, self._key, form)
            except BaseException:
                delete_files(self.folder, form.leaves)
                raise
            self._use(form)
            self._numbers[FORM] = 1

    def reserve(self, rows: RowsSpan) -> None:
        """Give rows that are to be written their place on the disk."""
        first, end = _ends(rows)
        known = self._reserved
        if known.start <= first and end <= known.stop:
            return
        with self:
            self.find_form()
            assert self.form is not None, "rows that are to be written have a form"
            stop = reserve_rows(self.folder, self.form, first, end)
        is_next = known.start <= first <= known.stop
        self._reserved = range(known.start if is_next else first, stop)

    def find_form(self) -> bool:
        """Return whether the form of the rows is known; then there are their columns."""
        if not self.columns and self._numbers[FORM]:
            self._use(read_form(self.folder, self._key))
        return bool(self.columns)

    def _use(self, form: SharedForm) -> None:
        self.form = form
        self.columns = [map_column(self.folder, leaf, form.capacity) for leaf in form.leaves]

    def _begin_turn(self) -> None:
        """Be known to the others, and repair what the last writer left if it was killed."""
        if not self._is_known:
            self._numbers[OTHERS] = 1
            self._is_known = True
        if self._numbers[SEQUENCE] % 2:
            self._repair()

    def _put(self, rows: RowsSpan, columns: Sequence[Rows]) -> None:
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

    def _copy(self, rows: RowsSpan, columns: Sequence[Rows]) -> None:
        for own, new in zip(self.columns, columns, strict=True):
            own[rows] = new

    def _repair(self) -> None:
        """Bring rows and counters into order after a write that did not end."""
        self.find_form()
        assert self.form is not None, "rows that were written have a form"
        num_rows, capacity, width = self.counters.num_rows, self.form.capacity, self.form.width
        first, end = self._numbers[FIRST_ROW], self._numbers[END_ROW]
        self.counters.begin()
        self.counters.revision += 1
        if first < num_rows:
            # Those that are left move to the front, the oldest first, as where nothing was written
            # over. A repair that is killed drops all: what moved is not known then.
            self._numbers[FIRST_ROW], self._numbers[END_ROW] = 0, num_rows
            oldest = self.counters.cursor * width if num_rows == capacity else 0
            order = (torch.arange(num_rows) + oldest) % num_rows
            left = order[(order < first) | (order >= end)]
            for column in self.columns:
                column[: len(left)] = column[left]
            self.counters.num_rows = len(left)
            self.counters.cursor = len(left) // width
            self.counters.clears += 1
            logger.warning(
                "%s: a write over the rows %d to %d did not end: they are dropped, and %d rows are "
                "left",
                *(self.folder, first, end - 1, len(left)),
            )
        self.counters.end()


def _ends(rows: RowsSpan) -> tuple[int, int]:
    """Return the first of some rows, and the row after the last one."""
    if isinstance(rows, slice):
        return rows.start, rows.stop
    return (int(rows.min()), int(rows.max()) + 1) if len(rows) else (0, 0)


def make_sharing(folder: Path) -> Sharing:
    """Return what begins to share rows in a folder, which is made."""
    return open_sharing(folder, make_control(folder), is_known=True)


def open_sharing(folder: Path, key: bytes, *, is_known: bool = False) -> Sharing:
    """Return what shares the rows in a folder."""
    sharing = Sharing(folder, key, open_control(folder, key), is_known)
    with sharing:
        return sharing
