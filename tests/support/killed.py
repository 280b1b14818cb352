"""Commands that are killed before a chosen change of the disk."""

from __future__ import annotations

import hashlib
import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from datasets_cli.cli.main import main
from tests.support.forked import Forked

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir"}


def run_killed(call: str, step: int, root: Path, folder: Path) -> int:
    """Run a command that is killed before the change of so many; return its exit code."""
    return call_killed(lambda: main([*shlex.split(call), "--root", str(root)]), step, folder)


def call_killed(function: Callable[[], int], step: int, folder: Path) -> int:
    """Call a function in a process that is killed before the change of so many."""

    def command() -> int:
        changes = iter(range(step))

        def count(event: str, arguments: tuple[Any, ...]) -> None:
            is_write = event == "open" and bool((arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR))
            is_change = is_write or event in CHANGES
            is_lock = is_change and str(arguments[0]).endswith(".lock")  # tells nothing of data
            if is_change and not is_lock and next(changes, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        return function()

    return Forked(command, folder).finish()[0]


def digests(path: Path) -> dict[str, str]:
    return {
        each.relative_to(path).as_posix(): hashlib.sha256(each.read_bytes()).hexdigest()
        for each in (path, *path.rglob("*"))
        if each.is_file()
    }


def of_dead(temporary: Path) -> Path:
    """Return the name that a temporary of this process would have had from one that has ended."""
    dead = 4_194_303  # Linux has no process of that number
    return temporary.with_name(temporary.name.replace(f"-{os.getpid()}-", f"-{dead}-"))
