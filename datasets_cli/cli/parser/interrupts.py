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

    # Destructors, C, and modules that try an import by a bare ``except:`` drop it on its way.
    has_arrived = False

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.code = 128 + number

    def __del__(self) -> None:
        """Send the signal again if this was dropped before it ended the run."""
        if not self.has_arrived:
            _send_later(self.args[0])  # another signal may come before it has a code


@contextmanager
def interruptible() -> Iterator[None]:
    """Have SIGINT and SIGTERM raise ``Interrupted``."""
    handlers = {
        number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)
    }
    unraisable_hook, sys.unraisablehook = sys.unraisablehook, _tell_others
    try:
        yield
    finally:
        sys.unraisablehook = unraisable_hook
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if _is_telling(frame):  # Python would tell what is raised there, with a traceback
        _send_later(number)
        return
    raise Interrupted(number)


def _tell_others(dropped: sys.UnraisableHookArgs) -> None:
    """Tell what Python drops, in a destructor or such, but for a signal, which is sent again."""
    # Every import has such a moment.
    if not isinstance(dropped.exc_value, Interrupted):
        sys.__unraisablehook__(dropped)


def _send_later(number: int) -> None:
    """Send a signal again in a moment, without the locks of a ``threading.Timer``."""

    def send() -> None:
        time.sleep(0.01)
        if sys.unraisablehook is _tell_others:  # the run has not ended
            os.kill(os.getpid(), number)

    _thread.start_new_thread(send, ())


def _is_telling(frame: FrameType | None) -> bool:
    """Return whether a frame is that of ``_tell_others``, or is called by it."""
    while frame is not None and frame.f_code is not _tell_others.__code__:
        frame = frame.f_back
    return frame is not None
