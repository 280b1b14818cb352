"""Signals that end a run: SIGINT and SIGTERM, also where Python would drop what is raised."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(BaseException):
    """A signal asked the run to end; ``code`` is 128 plus its number, as shells have it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.code = 128 + number


@contextmanager
def interruptible() -> Iterator[None]:
    """Have SIGINT and SIGTERM raise ``Interrupted``."""
    handlers = {
        number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)
    }
    unraisable_hook, sys.unraisablehook = sys.unraisablehook, _send_again
    try:
        yield
    finally:
        sys.unraisablehook = unraisable_hook
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if _is_sending(frame):  # what is raised there is dropped, too, and nobody is told
        _send_later(number)
        return
    raise Interrupted(number)


def _send_again(dropped: sys.UnraisableHookArgs) -> None:
    """Send a signal again that came where Python drops what is raised, such as a destructor."""
    # Every import has such a moment.
    if isinstance(dropped.exc_value, Interrupted):
        _send_later(dropped.exc_value.code - 128)
    else:
        sys.__unraisablehook__(dropped)


def _send_later(number: int) -> None:
    """Send a signal again in a moment, without the locks of a ``threading.Timer``."""

    def send() -> None:
        time.sleep(0.01)
        os.kill(os.getpid(), number)

    _thread.start_new_thread(send, ())


def _is_sending(frame: FrameType | None) -> bool:
    """Return whether a frame is that of ``_send_again``, or is called by it."""
    while frame is not None and frame.f_code is not _send_again.__code__:
        frame = frame.f_back
    return frame is not None
