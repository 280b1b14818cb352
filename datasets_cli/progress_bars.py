"""Progress on a terminal: one bar for all files of a run, and the current file below it."""

from __future__ import annotations

import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from datasets_cli.progress import Progress, RowRate
from datasets_cli.quantities import human_bytes, human_time

SECONDS_A_PICTURE = 0.1
CHUNK_BYTES = 1 << 16  # as a download reads


def shown(
    progress: Progress | None, rows_label: str = "steps written"
) -> AbstractContextManager[Progress]:
    """Return the progress of one piece of work, for a ``with`` statement."""
    if progress is not None:
        return nullcontext(progress)
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    drawn = is_terminal and os.environ.get("TERM") != "dumb"
    return Bars(shown=drawn, rows_label=rows_label)


class Bars:
    """A ``Progress`` that draws on stderr; use it in a ``with`` statement."""

    # All files share one line, those of several datasets too; the file that is fetched stands on
    # the line below. Both lines go when the work is done.

    def __init__(
        self,
        *,
        shown: bool,
        num_transitions: int | None = None,
        rows_label: str = "steps written",
    ) -> None:
        self._shown = shown
        self._num_transitions = num_transitions
        self._rows_label = rows_label
        self._rate: RowRate | None = None
        self._files = Transfer()
        self._rows = RowCount()
        self._drawn: tuple[str, str] | None = None
        self._drawn_at = -math.inf

    def __enter__(self) -> Bars:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def expecting(self, sizes: Mapping[str, int | None]) -> None:
        """Learn which files will be fetched, and their bytes where that is known."""
        self._files.sizes |= sizes

    def leaving_out(self, id: str) -> None:
        """Learn that what is not here yet of one of several datasets will not be fetched."""
        self._files.leave_out(id)

    def fetching(self, filename: str, done: int, total: int | None) -> None:
        """Draw the bytes, speed and remaining time of all files, and the current file."""
        self._files.advance(filename, done, total, time.monotonic())
        self._draw(self._files.line, filename, is_last=done == total)

    def expecting_rows(self, id: str, done: int, total: int) -> None:
        """Learn how many rows there are, and how many an earlier run wrote."""
        self._num_transitions = total
        self._rate = RowRate(done, total, time.monotonic())

    def writing(self, num_transitions: int) -> None:
        """Draw the rows written, or read where a dataset is checked; speed and remaining time."""
        total = "" if self._num_transitions is None else f" of {self._num_transitions:,}"
        text = f"{num_transitions:,}{total} {self._rows_label}"
        now = time.monotonic()
        if self._rate and (speed := self._rate.per_second(num_transitions, now)):
            left = self._rate.seconds_left(num_transitions, now) or 0.0
            text += f"  {speed:,.0f}/s  {human_time(left)} left"
        self._draw(lambda width: text[:width], "")

    def writing_beside(self, id: str, num_transitions: int) -> None:
        """Draw the rows of several datasets that are written at the same time."""
        self._rows.advance(id, num_transitions, time.monotonic())
        if self._files.is_done:
            self._draw(lambda width: self._rows.line(self._rows_label)[:width], "")
        else:
            self._draw(self._files.line, self._rows.line(self._rows_label))

    def note(self, text: str) -> None:
        """Print one line above what is drawn."""
        self.clear()
        print(text, file=sys.stderr, flush=True)

    def _draw(self, line: Callable[[int], str], below: str, *, is_last: bool = False) -> None:
        now = time.monotonic()
        if not self._shown or (now - self._drawn_at < SECONDS_A_PICTURE and not is_last):
            return
        # The last column stays free: some terminals would begin another line.
        width = shutil.get_terminal_size().columns - 1
        upper, lower = line(width), _shortened(below, width)
        self.clear()
        end = f"\n{lower}\x1b[A\r" if lower else "\r"
        print(f"{upper}{end}", end="", file=sys.stderr, flush=True)
        self._drawn, self._drawn_at = (upper, lower), now

    def clear(self) -> None:
        """Take away what is drawn, until there is more to draw."""
        if self._drawn is None:
            return
        # The cursor stands on the upper line, and all that is drawn is at and below it.
        print("\r\x1b[J", end="", file=sys.stderr, flush=True)
        self._drawn, self._drawn_at = None, -math.inf


def _shortened(text: str, width: int) -> str:
    """Return the end of a text that is too wide: files of a set differ at their ends."""
    return text if len(text) <= width else f"…{text[len(text) - width + 1 :]}"


class PartOfRun:
    """The ``Progress`` of one dataset of several, whose files are named after it."""

    # Use it in a `with` statement: at its end nothing is left on the terminal, so that what became
    # of the dataset can be printed.

    def __init__(self, id: str, bars: Bars, *, beside: bool = False) -> None:
        self._id, self._bars, self._beside = id, bars, beside

    def __enter__(self) -> PartOfRun:
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.leaving_out(self._id)
        self._bars.clear()

    def expecting(self, sizes: Mapping[str, int | None]) -> None:
        """Learn which files the dataset has."""
        self._bars.leaving_out(self._id)
        self._bars.expecting({self._named(name): size for name, size in sizes.items()})

    def fetching(self, filename: str, done: int, total: int | None) -> None:
        """Pass on, with the dataset's id before the file's name."""
        self._bars.fetching(self._named(filename), done, total)

    def writing(self, num_transitions: int) -> None:
        """Pass on."""
        if self._beside:
            self._bars.writing_beside(self._id, num_transitions)
        else:
            self._bars.writing(num_transitions)

    def note(self, text: str) -> None:
        """Pass on."""
        self._bars.note(text)

    def _named(self, filename: str) -> str:
        return f"{self._id} {filename}"


@dataclass
class RowCount:
    """How many rows the datasets of a run have, those that are done included."""

    rows: dict[str, int] = field(default_factory=dict)
    _began: float | None = None
    _now: float = 0.0

    def advance(self, id: str, num_rows: int, now: float) -> None:
        """Learn how many rows of a dataset there are at a time in seconds."""
        self._began = now if self._began is None else self._began
        self.rows[id], self._now = num_rows, now

    def line(self, label: str) -> str:
        """Return the rows of all, and how many came in a second."""
        total = sum(self.rows.values())
        seconds = self._now - (self._began or 0.0)
        speed = f"  {round(total / seconds):,}/s" if seconds >= 1 and total else ""
        return f"{total:,} {label}{speed}"


@dataclass
class Transfer:
    """How far the files of a run are."""

    sizes: dict[str, int | None] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)
    _began: float = 0.0
    _now: float = 0.0
    _had: int = 0

    def advance(self, filename: str, done: int, total: int | None, now: float) -> None:
        """Learn that ``done`` of ``total`` bytes of a file are here at a time in seconds."""
        if not self.done:
            self._began = now
        if filename not in self.done:
            # What an earlier run fetched has no speed; a first chunk is no earlier run.
            self._had += done if done > CHUNK_BYTES or done == total else 0
        self.done[filename] = done
        self.sizes[filename] = total if total is not None else self.sizes.get(filename)
        self._now = now

    def leave_out(self, id: str) -> None:
        """Forget a dataset, and those of its files of which nothing is here yet."""
        self.sizes = {
            name: size
            for name, size in self.sizes.items()
            if name in self.done or name.partition(" ")[0] != id  # as PartOfRun names them
        }

    @property
    def is_done(self) -> bool:
        """Whether every file is here whole."""
        return all(self.done.get(name) == size for name, size in self.sizes.items())

    @property
    def total(self) -> int | None:
        """Bytes of all files; None where one is unknown."""
        known = [size for size in self.sizes.values() if size is not None]
        return sum(known) if len(known) == len(self.sizes) else None

    def line(self, width: int) -> str:
        """Return bytes, files, speed and remaining time, as much as fits into ``width``."""
        done, total = sum(self.done.values()), self.total
        finished = sum(self.sizes[name] == size for name, size in self.done.items())
        num_files = max(finished, 1) if len(self.sizes) == 1 else min(finished + 1, len(self.sizes))
        files = f"file {num_files} of {len(self.sizes)}"
        seconds = self._now - self._began
        speed = (done - self._had) / seconds if seconds > 0 else 0.0
        share = done / total if total else None
        bytes_text = human_bytes(done) + ("" if total is None else f" of {human_bytes(total)}")
        parts = [
            (0, "" if share is None else f"{share:4.0%}"),
            (0, bytes_text),
            (2, files),
            (3, f"{human_bytes(round(speed))}/s" if speed > 0 else ""),
            (1, f"{human_time((total - done) / speed)} left" if total and speed > 0 else ""),
        ]
        text = ""
        for most in (3, 2, 1, 0):
            text = "  ".join(part for rank, part in parts if part and rank <= most)
            if len(text) <= width:
                break
        # The bar takes what is left; a bar of few characters says nothing.
        room = width - len(text) - 2
        if share is not None and room >= 10:
            size = min(room, 30)
            filled = round(min(share, 1.0) * size)
            text = f"{'━' * filled}{'╌' * (size - filled)}  {text}"
        return text[:width]
