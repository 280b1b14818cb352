"""Displays of progress on stderr: bars on a terminal, lines of text, lines of JSON."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from datasets_cli.core.progress import File, Note, Progress, Rows
from datasets_cli.core.quantities import human_bytes

OTHER_COLUMNS = 65  # of a line with a name: numbers, and a bar that still says something
SECONDS_A_LINE = 1.0


def displayed(
    progress: Progress | None, label: str = "transitions written"
) -> AbstractContextManager[Progress]:
    """Return the progress for a ``with`` statement; None is a display on stderr."""
    if progress is not None:
        return nullcontext(progress)
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    has_bars = is_terminal and os.environ.get("TERM") != "dumb"
    return Bars(label) if has_bars else nullcontext(PlainLines())


class PlainLines:
    """A ``Progress`` that prints a line when a file begins and ends, and notes."""

    def __init__(self) -> None:
        self._began: dict[tuple[str, str], float | None] = {}  # None once the file is complete

    def __call__(self, event: File | Rows | Note) -> None:
        """Print an event, unless it is of rows."""
        if isinstance(event, Note):
            _print(event.text)
        elif isinstance(event, File) and event.done is not None:
            self._print_file(event, event.done)

    def _print_file(self, event: File, done: int) -> None:
        key, now = (event.id, event.name), time.monotonic()
        began, is_new, is_done = self._began.get(key), key not in self._began, done == event.total
        size = "size unknown" if event.total is None else human_bytes(event.total)
        self._began[key] = None if is_done else began or now
        if not is_done and began is None:
            present = f", {human_bytes(done)} of it here" if done else ""
            _print(f"{event.id}: fetching {event.name} ({size}{present})")
        elif is_done and began is not None:
            _print(f"{event.id}: fetched {event.name} ({size}) in {now - began:.1f} s")
        elif is_new:
            _print(f"{event.id}: {event.name} is here already ({size})")


class JsonLines:
    """A ``Progress`` that prints events as JSON: at the start, once a second, at the end."""

    # A line has `event`: "file" with `id`, `file`, `bytes`, `total`, `bytes_per_second` and
    # `eta_seconds`; "rows" with `id`, `rows`, `total`, `rows_per_second` and `eta_seconds`, all
    # null while they are not known; or "note" with `text`.

    def __init__(self) -> None:
        self._tallies: dict[tuple[str, ...], Tally] = {}

    def __call__(self, event: File | Rows | Note) -> None:
        """Print an event if it is due."""
        if isinstance(event, Note):
            _print(json.dumps({"event": "note", "text": event.text}))
        elif isinstance(event, Rows):
            about = {"event": "rows", "id": event.id}
            self._print_tally(about, "rows", event.done, event.total)
        elif event.done is not None:
            about = {"event": "file", "id": event.id, "file": event.name}
            self._print_tally(about, "bytes", event.done, event.total)

    def _print_tally(self, about: dict[str, str], unit: str, done: int, total: int | None) -> None:
        key = tuple(about.values())
        tally = self._tallies.get(key)
        if tally is None or done < tally.done:  # other work, or a file from its start
            tally = self._tallies[key] = Tally(done)
        if tally.is_due(done, total):
            _print(json.dumps({**about, **tally.figures(unit, total)}))


class Tally:
    """An amount of work: due at the first report, then once a second, and at the end."""

    def __init__(self, done: int) -> None:
        self.done = self._initial = done
        self._began = time.monotonic()
        self._reported: tuple[float, int] | None = None  # when, and how much

    def is_due(self, done: int, total: int | None) -> bool:
        """Update the amount, and return whether to report it now."""
        self.done, now = done, time.monotonic()
        if self._reported is not None:
            last, reported = self._reported
            if done == reported or (now - last < SECONDS_A_LINE and done != total):
                return False
        self._reported = now, done
        return True

    def figures(self, unit: str, total: int | None) -> dict[str, Any]:
        """Return the amount, the total, the speed and the remaining time."""
        gained, seconds = self.done - self._initial, time.monotonic() - self._began
        # A shorter time gives no speed: the first block is counted from its end on.
        speed = gained / seconds if gained > 0 and seconds >= SECONDS_A_LINE else None
        rest = (total - self.done) / speed if speed and total is not None else None
        return {
            unit: self.done,
            "total": total,
            f"{unit}_per_second": None if speed is None else round(speed, 1),
            "eta_seconds": None if rest is None else round(rest, 1),
        }


class Bars:
    """A ``Progress`` that draws one bar at a time; use it in a ``with`` statement."""

    # All files share one bar, those of several datasets too. Rows have another one, once all files
    # are here; until then their number is beside the bar of the files.

    def __init__(self, label: str = "transitions written") -> None:
        self._label = label
        self._files = Files()
        self._rows: dict[str, Rows] = {}
        self._bar: Any = None

    def __enter__(self) -> Bars:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def __call__(self, event: File | Rows | Note) -> None:
        """Draw an event."""
        if isinstance(event, Note):
            self._print(event.text)
        elif isinstance(event, Rows):
            # The rows of another dataset count as long as they are incomplete.
            others = {id: each for id, each in self._rows.items() if each.done != each.total}
            self._rows = others | {event.id: event}
            self._draw_rows()
        elif event.done is not None:
            initial = self._files.advance(event)
            self._draw_files(self._files.title(event), initial)
            if event.done == event.total:
                self._bar.refresh()
        else:
            self._files.expect(event)
            if not event.name:
                self._clear(event.id)

    def _print(self, text: str) -> None:
        """Print one line above the bar."""
        if self._bar is None:
            _print(text)
        else:
            self._bar.write(text, file=sys.stderr)

    def _clear(self, id: str) -> None:
        """Erase the bar until the next event: the result of a dataset may be printed."""
        self._rows.pop(id, None)
        if self._bar is not None:
            self._bar.clear()

    def _draw_files(self, about: str, initial: int = 0) -> None:
        files = self._files
        text = f"file {files.number} of {len(files.sizes)}"
        if room := max(0, shutil.get_terminal_size().columns - OTHER_COLUMNS):
            # Files of a set differ at their ends.
            text += f", {about if len(about) <= room else f'...{about[3 - room :]}'}"
        self._draw("B", sum(files.done.values()), files.total, initial=initial, text=text)

    def _draw_rows(self) -> None:
        done = sum(each.done for each in self._rows.values())
        if self._files.are_unfinished:
            self._draw_files(f"{done:,} {self._label}")
            return
        totals = [each.total for each in self._rows.values() if each.total is not None]
        total = sum(totals) if len(totals) == len(self._rows) else None
        self._draw("", done, total, label=self._label)

    def _draw(
        self,
        unit: str,
        done: int,
        total: int | None,
        *,
        label: str = "",
        initial: int = 0,
        text: str = "",
    ) -> None:
        """Draw the amount of work, of which an earlier run may have done some."""
        if self._bar is None or self._bar.unit != unit or self._bar.n > done:
            self._end()
            # The amount at the start has no speed.
            self._bar = _bar_class()(
                desc=label, total=total, initial=done, unit=unit, unit_scale=True, file=sys.stderr,
                leave=False, smoothing=0, miniters=0,
            )  # fmt: skip
        else:
            self._bar.initial += initial
        self._bar.total = total
        self._bar.set_postfix_str(text, refresh=False)
        self._bar.update(done - self._bar.n)

    def _end(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


@cache
def _bar_class() -> Any:
    """Return tqdm's bar with our settings; it is imported only to draw."""
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


@dataclass
class Files:
    """The files of a run, by dataset and name; the name is empty while names are unknown."""

    sizes: dict[tuple[str, str], int | None] = field(default_factory=dict)
    done: dict[tuple[str, str], int] = field(default_factory=dict)

    def expect(self, event: File) -> None:
        """Add a file, or replace all files of a dataset that have not begun."""
        key = event.id, event.name
        self.sizes.pop((event.id, ""), None)
        if not event.name:
            # A begun file ends with its dataset.
            self.sizes = {
                each: self.done.get(each) if each[0] == event.id else size
                for each, size in self.sizes.items()
                if each[0] != event.id or each in self.done
            }
        if event.name or event.total != 0:
            self.sizes[key] = event.total

    def advance(self, event: File) -> int:
        """Update a file; return the number of its bytes from an earlier run at its start."""
        key, done = (event.id, event.name), event.done or 0
        is_new = key not in self.done
        self.done[key] = done
        self.sizes[key] = event.total if event.total is not None else self.sizes.get(key)
        return done if is_new else 0

    def title(self, event: File) -> str:
        """Return the name of a file, after the id of its dataset if there are several."""
        several = len({id for id, _ in self.sizes}) > 1
        return f"{event.id} {event.name}" if several else event.name

    @property
    def are_unfinished(self) -> bool:
        """Whether a file with a known name is incomplete."""
        return any(key[1] and self.done.get(key) != size for key, size in self.sizes.items())

    @property
    def number(self) -> int:
        """The number of the current file, from 1."""
        finished = sum(self.sizes[key] == size for key, size in self.done.items())
        return min(finished + 1, len(self.sizes))

    @property
    def total(self) -> int | None:
        """Bytes of all files; None if the size of one is unknown."""
        known = [size for size in self.sizes.values() if size is not None]
        return sum(known) if len(known) == len(self.sizes) else None


def _print(text: str) -> None:
    # In one piece: several datasets are installed at a time.
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
