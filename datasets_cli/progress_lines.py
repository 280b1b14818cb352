"""Progress for programs, such as schedulers: one JSON object a line."""

from __future__ import annotations

import json
import math
import sys
import time
from dataclasses import dataclass
from typing import Any

from datasets_cli.progress import Silent

SECONDS_A_LINE = 1.0


@dataclass(frozen=True)
class RowRate:
    """How fast all workers together write the rows of a dataset."""

    had: int
    total: int
    began: float

    def per_second(self, done: int, now: float) -> float | None:
        """Return rows per second since the beginning; None while that is not known."""
        seconds = now - self.began
        return (done - self.had) / seconds if seconds > 0 and done > self.had else None

    def seconds_left(self, done: int, now: float) -> float | None:
        """Return the remaining time at that speed; None while that is not known."""
        speed = self.per_second(done, now)
        return (self.total - done) / speed if speed else None


class JsonLines(Silent):
    """A ``Progress`` that prints the rows written, and notes, on stderr."""

    # A line of rows has `event` ("rows"), `id`, `rows`, `total`, `rows_per_second` and
    # `eta_seconds`, which are null while they are not known; there is at most one a second, and a
    # last one. A note has `event` ("note") and `text`.

    def __init__(self) -> None:
        self._id, self._rate, self._printed_at = "", RowRate(0, 0, 0.0), -math.inf

    def expecting_rows(self, id: str, done: int, total: int) -> None:
        """Learn which rows there are to write."""
        now = time.monotonic()
        self._id, self._rate, self._printed_at = id, RowRate(done, total, now), now

    def writing(self, num_transitions: int) -> None:
        """Print the rows that are written, their speed, and the remaining time."""
        now = time.monotonic()
        if now - self._printed_at < SECONDS_A_LINE and num_transitions != self._rate.total:
            return
        self._printed_at = now
        speed = self._rate.per_second(num_transitions, now)
        left = self._rate.seconds_left(num_transitions, now)
        _print(
            event="rows",
            id=self._id,
            rows=num_transitions,
            total=self._rate.total,
            rows_per_second=None if speed is None else round(speed, 1),
            eta_seconds=None if left is None else round(left, 1),
        )

    def note(self, text: str) -> None:
        """Print a note."""
        _print(event="note", text=text)


def _print(**event: Any) -> None:
    print(json.dumps(event), file=sys.stderr, flush=True)
