"""Reading a folder that other processes may delete, or replace by another copy, at any moment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from datasets_cli.errors import DamagedDataset

Result = TypeVar("Result")

Identity = tuple[int, int] | None
"""What tells a folder from another one that takes its name; None where there is none."""

TRIES = 10


def read_one_copy(folder: Path, read: Callable[[], Result]) -> Result:
    """Return what a function reads in a folder, all of it of one copy."""
    # A replacement is two renames: without this, one copy's manifest could meet another's files.
    for _ in range(TRIES):
        before = identity(folder)
        try:
            found = read()
        except (DamagedDataset, FileNotFoundError):
            if identity(folder) == before:
                raise
        else:
            if identity(folder) == before:
                return found
    raise DamagedDataset(
        f"{folder} was replaced {TRIES} times while it was read. Wait for what replaces it."
    )


def identity(folder: Path) -> Identity:
    """Return what tells a folder from another one that takes its name; None where there is none."""
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns  # the number of a deleted folder is given out again
