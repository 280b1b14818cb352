"""``rlds`` and ``python -m datasets_cli`` begin here, before anything that takes time to import."""

from __future__ import annotations

import os
import signal
from types import FrameType


def run() -> None:
    """Run the command line and exit with its code."""
    # Until the command line has handlers of its own, and after it has given them back.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _exit)
    from datasets_cli.cli.main import run as run_command_line

    run_command_line()


def _exit(number: int, frame: FrameType | None) -> None:
    """End at once with the code that shells have: nothing has begun, and a traceback says less."""
    os._exit(128 + number)


if __name__ == "__main__":
    run()
