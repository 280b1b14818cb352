"""Temporary folders of a process, which locks them; the kernel frees the locks at its end."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import stat
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from datasets_cli.errors import DamagedDataset
from datasets_cli.sources.new_files import (
    IN_MEMORY,
    TEMPORARY,
    is_abandoned,
    new_temporary_folder,
)
from datasets_cli.sources.regular_file import open_regular

_OWNER = ".owner"
_owned: dict[Path, int] = {}  # descriptors of the locked files; a forked process shares the locks
_names: dict[int, str] = {}  # by process number; a forked process inherits its parent's name too


def this_process() -> str:
    """Return the unique name of this process. A later process with the same number differs."""
    number = os.getpid()
    if number not in _names:
        _names[number] = f"{number}-{secrets.token_hex(8)}"
    return _names[number]


def temporary_folder(*, in_memory: bool) -> Path:
    """Create a temporary folder on a disk, or in shared memory where the system has it."""
    is_memory = in_memory and IN_MEMORY.is_dir()
    folder = new_temporary_folder("rows", IN_MEMORY if is_memory else Path(tempfile.gettempdir()))
    with suppress(OSError):  # without the lock, `prune` leaves the folder of a killed process
        _owned[folder] = os.open(folder / _OWNER, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(_owned[folder], fcntl.LOCK_EX)
    return folder


def is_in_memory(folder: Path) -> bool:
    """Return whether the files of a folder use memory instead of a disk."""
    return folder.parent == IN_MEMORY


def delete_with(owner: object, folder: Path) -> None:
    """Delete a folder when its owner, an object of this process, is deleted."""
    weakref.finalize(owner, _delete, folder, this_process())


def _delete(folder: Path, maker: str) -> None:
    if maker == this_process():  # a forked process has a copy of the owner
        shutil.rmtree(folder, ignore_errors=True)
    if folder in _owned:
        os.close(_owned.pop(folder))


def abandoned_folders() -> Iterator[Path]:
    """Yield the temporary folders of this user's processes that have ended."""
    for place in sorted({IN_MEMORY, Path(tempfile.gettempdir())}):
        yield from filter(_is_abandoned, sorted(place.glob(f"{TEMPORARY}*")))


def _is_abandoned(folder: Path) -> bool:
    # Everybody may write there: no link is followed, and only the user's own folders are touched.
    try:
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            return False
        if os.path.lexists(folder / _OWNER):  # forked processes hold the lock, too
            with open_regular(folder / _OWNER) as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (OSError, DamagedDataset):
        return False
    return is_abandoned(folder)
