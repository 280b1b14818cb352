"""Progress on a terminal: one bar for all files of a run, or for the rows that are written."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from datasets_cli.core.progress import PlainLines, Progress

OTHER_COLUMNS = 65  # of a line with a name: numbers, and a bar that still says something


def shown(
    progress: Progress | None, rows_label: str = "steps written"
) -> AbstractContextManager[Progress]:
    """Return the progress of one piece of work, for a ``with`` statement."""
    if progress is not None:
        return nullcontext(progress)
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    drawn = is_terminal and os.environ.get("TERM") != "dumb"
    return Bars(rows_label=rows_label) if drawn else nullcontext(PlainLines())


class Bars:
    """A ``Progress`` that draws on stderr; use it in a ``with`` statement."""

    # All files share one bar, those of several datasets too. It goes when the work is done.

    def __init__(
        self, *, num_transitions: int | None = None, rows_label: str = "steps written"
    ) -> None:
        self._num_transitions = num_transitions
        self._rows_label = rows_label
        self._files = Files()
        self._rows: dict[str, int] = {}
        self._bar: Any = None

    def __enter__(self) -> Bars:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def expecting(self, sizes: Mapping[str, int | None]) -> None:
        """Learn which files will be fetched, and their bytes where that is known."""
        self._files.sizes |= sizes

    def leaving_out(self, id: str) -> None:
        """Learn that what is not here yet of one of several datasets will not be fetched."""
        self._files.leave_out(id)

    def fetching(self, filename: str, done: int, total: int | None) -> None:
        """Draw the bytes, speed and remaining time of all files, and the current file."""
        had = self._files.advance(filename, done, total)
        self._draw_files(filename, had)
        if done == total and self._bar is not None:
            self._bar.refresh()

    def expecting_rows(self, id: str, done: int, total: int) -> None:
        """Learn how many rows there are, and how many an earlier run wrote."""
        self._num_transitions = total
        self._end()
        self._draw_rows(done)

    def writing(self, num_transitions: int) -> None:
        """Draw the rows written, or read where a dataset is checked; speed and remaining time."""
        self._draw_rows(num_transitions)

    def writing_beside(self, id: str, num_transitions: int) -> None:
        """Draw the rows of several datasets that are written at the same time."""
        self._rows[id] = num_transitions
        total = sum(self._rows.values())
        if self._files.are_done:
            self._draw_rows(total)
        else:
            self._draw_files(f"{total:,} {self._rows_label}")

    def note(self, text: str) -> None:
        """Print one line above what is drawn."""
        if self._bar is None:
            print(text, file=sys.stderr, flush=True)
        else:
            self._bar.write(text, file=sys.stderr)

    def clear(self) -> None:
        """Take away what is drawn, until there is more to draw."""
        if self._bar is not None:
            self._bar.clear()

    def _draw_files(self, about: str, had: int = 0) -> None:
        files = self._files
        text = f"file {files.number} of {len(files.sizes)}"
        if room := max(0, shutil.get_terminal_size().columns - OTHER_COLUMNS):
            # Files of a set differ at their ends.
            text += f", {about if len(about) <= room else f'...{about[3 - room :]}'}"
        self._draw("B", sum(files.done.values()), files.total, had=had, text=text)

    def _draw_rows(self, done: int) -> None:
        self._draw(" steps", done, self._num_transitions, label=self._rows_label)

    def _draw(
        self,
        unit: str,
        done: int,
        total: int | None,
        *,
        label: str = "",
        had: int = 0,
        text: str = "",
    ) -> None:
        """Draw how much is done, of which an earlier run may have had some."""
        if self._bar is None or self._bar.unit != unit or self._bar.n > done:
            self._end()
            # What is there at the beginning has no speed.
            self._bar = _bar_class()(
                desc=label, total=total, initial=done, unit=unit, unit_scale=True, file=sys.stderr,
                leave=False, smoothing=0, miniters=0,
            )  # fmt: skip
        else:
            self._bar.initial += had
        self._bar.total = total
        self._bar.set_postfix_str(text, refresh=False)
        self._bar.update(done - self._bar.n)

    def _end(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


@cache
def _bar_class() -> Any:
    """Return tqdm's bar as it is drawn here; it is imported only where something is drawn."""
    from tqdm import tqdm

    class Bar(tqdm):
        # A thread that redraws would be forked with this process.
        monitor_interval = 0

        @property
        def format_dict(self) -> Any:
            # The last column stays free: some terminals would begin another line.
            return {**super().format_dict, "ncols": shutil.get_terminal_size().columns - 1}

    # Its own lock would decide how this process may start others.
    Bar.set_lock(threading.RLock())
    return Bar


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
class Files:
    """How far the files of a run are."""

    sizes: dict[str, int | None] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)

    def advance(self, filename: str, done: int, total: int | None) -> int:
        """Learn how many bytes of a file are here; return how many an earlier run fetched."""
        is_new = filename not in self.done
        self.done[filename] = done
        self.sizes[filename] = total if total is not None else self.sizes.get(filename)
        return done if is_new else 0

    def leave_out(self, id: str) -> None:
        """Forget a dataset, and those of its files of which nothing is here yet."""
        self.sizes = {
            name: size
            for name, size in self.sizes.items()
            if name in self.done or name.partition(" ")[0] != id  # as PartOfRun names them
        }

    @property
    def are_done(self) -> bool:
        """Whether every file is here whole."""
        return all(self.done.get(name) == size for name, size in self.sizes.items())

    @property
    def number(self) -> int:
        """The number of the file that is fetched, from 1 on."""
        finished = sum(self.sizes[name] == size for name, size in self.done.items())
        return min(finished + 1, len(self.sizes))

    @property
    def total(self) -> int | None:
        """Bytes of all files; None where one is unknown."""
        known = [size for size in self.sizes.values() if size is not None]
        return sum(known) if len(known) == len(self.sizes) else None
