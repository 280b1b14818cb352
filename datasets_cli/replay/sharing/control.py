"""The control file: the numbers by which processes that share rows agree."""

from __future__ import annotations

import mmap
import os
import secrets
import shutil
import tempfile
import weakref
from pathlib import Path

from datasets_cli.errors import UsageError
from datasets_cli.replay.sharing.counters import KEY, NUM_NUMBERS
from datasets_cli.replay.sharing.lock import rows_are_gone
from datasets_cli.replay.sharing.process import this_process

SUBFOLDER = ".sharing"
"""In the folder of the rows: the control file, the form of the rows, and the journal."""

_BYTES = 8 * NUM_NUMBERS
_PREFIX = "rlds-"
_MEMORY = Path("/dev/shm")  # Linux: files that are memory


def make_control(folder: Path) -> bytes:
    """Make the control file of a storage, in place of that of an earlier one; return its key."""
    control = folder / SUBFOLDER
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(control, ignore_errors=True)
    control.mkdir(mode=0o700)
    key = secrets.token_bytes(32)
    with (control / "control").open("xb") as file:
        file.truncate(_BYTES)
    _map(folder)[KEY] = _short(key)
    return key


def open_control(folder: Path, key: bytes) -> memoryview:
    """Return the numbers int64 of a control file, which all its processes read and set."""
    try:
        numbers = _map(folder)
    except FileNotFoundError as error:
        raise rows_are_gone(folder) from error
    if numbers[KEY] != _short(key):
        raise rows_are_gone(folder)
    return numbers


def _map(folder: Path) -> memoryview:
    with (folder / SUBFOLDER / "control").open("r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), _BYTES)).cast("q")


def _short(key: bytes) -> int:
    return int.from_bytes(key[:7], "little")


def has_rows(folder: Path) -> bool:
    """Tell whether there is more in a folder than what a storage left that was never written."""
    return folder.exists() and any(path.name != SUBFOLDER for path in folder.iterdir())


def temporary_folder(*, in_memory: bool) -> Path:
    """Return a new folder for files, on a disk or in memory where the system can."""
    where = _MEMORY if in_memory and _MEMORY.is_dir() else None
    return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=where))


def delete_with(owner: object, folder: Path) -> None:
    """Delete a folder when its owner, an object of this process, is gone."""
    weakref.finalize(owner, _delete, folder, this_process())


def _delete(folder: Path, maker: str) -> None:
    if maker == this_process():  # a forked process has the owner too
        shutil.rmtree(folder, ignore_errors=True)


def check_memory(folder: Path, num_bytes: int) -> None:
    """Check that memory has room, where a folder is in it: else a write would kill the process."""
    if folder.parent != _MEMORY:
        return
    space = os.statvfs(folder)
    free = space.f_bavail * space.f_frsize
    if num_bytes > free:
        raise UsageError(
            f"The storage needs {num_bytes / 1e9:.3g} GB of shared memory; {_MEMORY} has "
            f"{free / 1e9:.3g} GB. Make it smaller, give it more (docker run --shm-size), or use a "
            "LazyMemmapStorage, whose files are on a disk."
        )
