"""Signals that end a run: SIGINT and SIGTERM raise the same exception."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(BaseException):
    """SIGINT or SIGTERM has arrived; ``code`` is the exit code of shells, 128 plus its number."""

    # Not a KeyboardInterrupt: typer turns that into an Abort, which has no code.

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.code = 128 + number


@contextmanager
def interruptible() -> Iterator[None]:
    """Have SIGINT and SIGTERM raise ``Interrupted``."""
    handlers = {
        number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted(number)
