"""The folder of a dump: a newer one takes an older one's place, as a whole at every moment.

PATH/.partial          a dump that is being written, of no use to others
PATH/.next             the dump that PATH holds, wherever its parts are: it was renamed when whole
PATH/.next/parts.json  the names of its parts, and of an older dump's that go

Parts are moved from ``.next`` into PATH, and ``.next`` goes. Where a process was killed in between,
whoever opens or writes the dump next finishes that first; what else a user has in PATH stays.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from datasets_cli.checked_json import Check
from datasets_cli.errors import UsageError
from datasets_cli.replay.storages.state_files import (
    SETTINGS_BYTES,
    check_folder,
    checked,
    read_state,
    write_state,
)
from datasets_cli.sources.disk import disk_errors, flush, flush_all

PARTIAL = ".partial"
NEXT = ".next"
PARTS = "parts.json"

ROWS = "storage"
SAMPLER = "sampler"
WRITER = "writer"
GENERATOR = "rng_state"
DATASET = "dataset.json"
SEAL = "buffer_metadata.json"
BUFFER_PARTS = {ROWS, SAMPLER, WRITER, GENERATOR, DATASET, SEAL, "transform.t", "prefetch.pkl"}
"""The parts of a buffer's dump; the last two are TorchRL's."""

PAIR_PARTS = {"offline", "online", "share.json"}


def is_member(name: str) -> bool:
    """Return whether a part is a member of an ensemble, by its name."""
    return name.isdecimal()


def _are_parts(names: tuple[str, ...]) -> bool:
    # Nothing else is moved or removed, whatever the file says.
    return all(name in BUFFER_PARTS | PAIR_PARTS or is_member(name) for name in names)


_Names = Annotated[tuple[str, ...], Check("names of parts of a dump", _are_parts)]


@dataclass(frozen=True)
class _Parts:
    """The names of a dump's parts, and of an older dump's that are not among them."""

    new: _Names
    old: _Names


@dataclass(frozen=True)
class DumpFolder:
    """The folder of a dump, from which its parts are read."""

    path: Path
    moving: _Parts | None = None
    """The parts of a dump that could not be moved from ``.next``."""

    def __truediv__(self, name: str) -> Path:
        """Return where a part is, or would be."""
        new = self.path / NEXT / name
        is_moved = not self.moving or (name in self.moving.new and not os.path.lexists(new))
        return self.path / name if is_moved else new


def open_dump(folder: Path) -> DumpFolder:
    """Return the folder of a dump, with its parts in their place where it can be written."""
    try:
        _finish(folder)
    except OSError:
        return DumpFolder(folder, _parts_in(folder / NEXT))
    return DumpFolder(folder)


@contextmanager
def new_dump(folder: Path, is_part: Callable[[str], object]) -> Iterator[Path]:
    """Yield a new folder for parts, which take the place of those in ``folder`` when all are there.

    ``is_part`` says which names in ``folder`` are parts of an older dump.
    """
    with disk_errors(folder), _new_dump(folder, is_part) as partial:
        yield partial


@contextmanager
def _new_dump(folder: Path, is_part: Callable[[str], object]) -> Iterator[Path]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise UsageError(
            f"{folder} cannot be the folder of a dump: expected a folder, or a path where there is "
            f"nothing, found a file ({error}). Choose another path."
        ) from error
    _finish(folder)
    partial = folder / PARTIAL
    _remove(partial)  # of a dump that was killed
    partial.mkdir()
    try:
        yield partial
        new = sorted(path.name for path in partial.iterdir())
        old = sorted({path.name for path in folder.iterdir() if is_part(path.name)} - {*new})
        write_state(partial / PARTS, asdict(_Parts(tuple(new), tuple(old))))
        flush_all(partial)
        partial.rename(folder / NEXT)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    _finish(folder)


def _finish(folder: Path) -> None:
    """Move the parts of a dump that is whole to their place, and remove an older one's."""
    if not os.path.lexists(folder / NEXT):
        return
    with _locked(folder):
        if not os.path.lexists(folder / NEXT):
            return  # another process was first
        parts = _parts_in(folder / NEXT)
        flush(folder)  # the rename is on the disk before the older dump is gone
        not_moved = [name for name in parts.new if os.path.lexists(folder / NEXT / name)]
        for name in (*parts.old, *not_moved):
            _remove_older(folder / name, folder / NEXT / name)
        for name in not_moved:
            (folder / NEXT / name).rename(folder / name)
        flush(folder)
        _remove(folder / PARTIAL)
        (folder / NEXT).rename(folder / PARTIAL)  # one moment, unlike the removal of a folder
        _remove(folder / PARTIAL)


def _parts_in(folder: Path) -> _Parts:
    check_folder(folder)
    path = folder / PARTS
    return checked(_Parts, read_state(path, SETTINGS_BYTES), path)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process at a time move parts: several may load a dump at once."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # file systems without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _remove_older(path: Path, new: Path) -> None:
    """Remove a part of an older dump; what else a user has in a member's folder stays there."""
    if not (is_member(path.name) or path.name in PAIR_PARTS) or not _is_folder(path):
        _remove(path)
        return
    for inside in path.iterdir():
        if inside.name in BUFFER_PARTS:
            _remove(inside)
        elif new.is_dir():
            inside.rename(new / inside.name)
    if new.is_dir() or not any(path.iterdir()):
        path.rmdir()


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _remove(path: Path) -> None:
    """Remove a file or a folder, if there is one."""
    if _is_folder(path):
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
