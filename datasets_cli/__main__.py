"""The entry point of ``rlds`` and ``python -m datasets_cli``; slow imports come later."""

from __future__ import annotations

import os
import signal
from types import FrameType


def run() -> None:
    """Run the command line and exit with its code."""
    # For interrupts before the command line installs its handlers, and after it restores these.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _exit)
    from datasets_cli.cli.main import run as run_command_line

    run_command_line()


def _exit(number: int, frame: FrameType | None) -> None:
    """Exit at once with the shell's code for a signal: no work is in progress."""
    os._exit(128 + number)


if __name__ == "__main__":
    run()
