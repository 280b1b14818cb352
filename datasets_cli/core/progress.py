"""How long work reports what it does; the command line draws it, and a Python user may too."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from datasets_cli.core.quantities import human_bytes


@runtime_checkable
class Progress(Protocol):
    """Receives what happens while a dataset is fetched and written."""

    def fetching(self, filename: str, done: int, total: int | None) -> None:
        """``done`` of ``total`` bytes of one file are on disk; total is None where unknown."""

    def writing(self, num_transitions: int) -> None:
        """``num_transitions`` rows are written, or read to be checked, so far."""

    def note(self, text: str) -> None:
        """One line that a person should see: a choice made, a field skipped, a known trap."""


@dataclass(frozen=True, kw_only=True)
class ProgressOptions:
    """Who is told of the work.

    Args:
        progress: told of what happens; None draws bars on a terminal, prints lines on any other
            stderr as files begin and end, and notes on both.
    """

    progress: Progress | None = None


class Silent:
    """A ``Progress`` that ignores everything."""

    def fetching(self, filename: str, done: int, total: int | None) -> None:
        """Ignore."""

    def writing(self, num_transitions: int) -> None:
        """Ignore."""

    def note(self, text: str) -> None:
        """Ignore."""


def reporting_to(progress: Progress | None) -> Progress:
    """Return where to report: ``progress``, or nowhere where it is None."""
    return Silent() if progress is None else progress


def expect_files(progress: Progress, sizes: Mapping[str, int | None]) -> None:
    """Tell which files will be fetched to a ``Progress`` that has ``expecting``."""
    expecting = getattr(progress, "expecting", None)
    if expecting is not None:
        expecting(sizes)


def expect_rows(progress: Progress, id: str, done: int, total: int) -> None:
    """Tell how many rows there are to write to a ``Progress`` that has ``expecting_rows``."""
    expecting = getattr(progress, "expecting_rows", None)
    if expecting is not None:
        expecting(id, done, total)


def of_dataset(progress: Progress, id: str) -> AbstractContextManager[Progress]:
    """Return what is told of one dataset, by a ``Progress`` that has ``of_dataset``."""
    part: Any = getattr(progress, "of_dataset", None)
    return nullcontext(progress) if part is None else part(id)


SECONDS_A_LINE = 1.0


class Tally:
    """How far something is: to be told at once, then once a second, and at its end."""

    def __init__(self, done: int, told_at: float = -math.inf) -> None:
        self.done = self._had = done
        self._began, self._told_at, self._told = time.monotonic(), told_at, -1

    def is_due(self, done: int, total: int | None) -> bool:
        """Learn how much is done, and return whether that is to be told now."""
        self.done, now = done, time.monotonic()
        if done == self._told or (now - self._told_at < SECONDS_A_LINE and done != total):
            return False
        self._told_at, self._told = now, done
        return True

    def figures(self, unit: str, total: int | None) -> dict[str, Any]:
        """Return how much is done, the total, the speed and the remaining time."""
        gained, seconds = self.done - self._had, time.monotonic() - self._began
        # Of less time it says little: the first block is counted from its end on.
        speed = gained / seconds if gained > 0 and seconds >= SECONDS_A_LINE else None
        left = (total - self.done) / speed if speed and total is not None else None
        return {
            unit: self.done,
            "total": total,
            f"{unit}_per_second": None if speed is None else round(speed, 1),
            "eta_seconds": None if left is None else round(left, 1),
        }


class JsonLines(Silent):
    """A ``Progress`` that prints files fetched, rows written, and notes, as JSON."""

    # A line has `event`: "file" with `id`, `file`, `bytes`, `total`, `bytes_per_second` and
    # `eta_seconds`; "rows" with `id`, `rows`, `total`, `rows_per_second` and `eta_seconds`, all
    # null while they are not known; or "note" with `text`.

    def __init__(self, id: str | None = None) -> None:
        self._id = id
        self._total: int | None = None
        self._rows: Tally | None = None
        self._files: dict[str, Tally] = {}

    @contextmanager
    def of_dataset(self, id: str) -> Iterator[JsonLines]:
        """Give the lines of one dataset; the last of its rows comes at the end."""
        lines = JsonLines(id)
        yield lines
        if lines._rows is not None:
            lines._tell_rows(lines._rows, lines._rows.done, lines._rows.done)

    def fetching(self, filename: str, done: int, total: int | None) -> None:
        """Print the bytes of a file that are here, their speed, and the remaining time."""
        file = self._files.setdefault(filename, Tally(done))
        if file.is_due(done, total):
            _print_event("file", id=self._id, file=filename, **file.figures("bytes", total))

    def expecting_rows(self, id: str, done: int, total: int) -> None:
        """Learn which rows there are to write."""
        self._id, self._total, self._rows = id, total, Tally(done, time.monotonic())

    def writing(self, num_transitions: int) -> None:
        """Print the rows that are written, their speed, and the remaining time."""
        self._rows = self._rows or Tally(num_transitions)
        self._tell_rows(self._rows, num_transitions, self._total)

    def _tell_rows(self, rows: Tally, done: int, last: int | None) -> None:
        if rows.is_due(done, last):
            _print_event("rows", id=self._id, **rows.figures("rows", self._total))

    def note(self, text: str) -> None:
        """Print a note."""
        _print_event("note", text=text)


class PlainLines(Silent):
    """A ``Progress`` that prints a line as each file begins and as it ends, and notes."""

    def __init__(self, about: str = "") -> None:
        self._about = about
        self._began: dict[str, float | None] = {}  # None of files that are here

    @contextmanager
    def of_dataset(self, id: str) -> Iterator[PlainLines]:
        """Give the lines of one dataset, which begin with its id."""
        yield PlainLines(f"{id}: ")

    def fetching(self, filename: str, done: int, total: int | None) -> None:
        """Print that a file begins, ends, or is here already."""
        began, is_new = self._began.get(filename), filename not in self._began
        size, now = human_bytes(total) if total is not None else "size unknown", time.monotonic()
        self._began[filename] = None if done == total else began or now
        if done != total and began is None:
            here = f", {human_bytes(done)} of it here" if done else ""
            self.note(f"{self._about}fetching {filename} ({size}{here})")
        elif done == total and began is not None:
            self.note(f"{self._about}fetched {filename} ({size}) in {now - began:.1f} s")
        elif is_new:
            self.note(f"{self._about}{filename} is here already ({size})")

    def note(self, text: str) -> None:
        """Print a note."""
        _print(text)


def _print_event(event: str, **facts: Any) -> None:
    _print(json.dumps({"event": event, **facts}))


def _print(text: str) -> None:
    # In one piece: several datasets are installed at a time.
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
