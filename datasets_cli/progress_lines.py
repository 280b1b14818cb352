"""Progress for programs, such as schedulers: one JSON object a line."""

from __future__ import annotations

import json
import math
import sys
import time
from typing import Any

from datasets_cli.progress import Silent

SECONDS_A_LINE = 1.0


class JsonLines(Silent):
    """A ``Progress`` that prints the rows written, and notes, on stderr."""

    # A line of rows has `event` ("rows"), `id`, `rows`, `total`, `rows_per_second` and
    # `eta_seconds`, which are null while they are not known; there is at most one a second, and a
    # last one. A note has `event` ("note") and `text`.

    def __init__(self) -> None:
        self._id, self._had, self._total = "", 0, 0
        self._began, self._printed_at = 0.0, -math.inf

    def expecting_rows(self, id: str, done: int, total: int) -> None:
        """Learn which rows there are to write."""
        self._id, self._had, self._total = id, done, total
        self._began = self._printed_at = time.monotonic()

    def writing(self, num_transitions: int) -> None:
        """Print the rows that are written, their speed, and the remaining time."""
        now = time.monotonic()
        if now - self._printed_at < SECONDS_A_LINE and num_transitions != self._total:
            return
        self._printed_at = now
        written, seconds = num_transitions - self._had, now - self._began
        speed = written / seconds if written > 0 and seconds > 0 else None
        left = (self._total - num_transitions) / speed if speed else None
        _print(
            event="rows",
            id=self._id,
            rows=num_transitions,
            total=self._total,
            rows_per_second=None if speed is None else round(speed, 1),
            eta_seconds=None if left is None else round(left, 1),
        )

    def note(self, text: str) -> None:
        """Print a note."""
        _print(event="note", text=text)


def _print(**event: Any) -> None:
    print(json.dumps(event), file=sys.stderr, flush=True)
