"""Commits and deletes datasets atomically: a reader never sees an incomplete dataset.

A dataset exists exactly when its manifest does. The manifest is written last, all files are flushed
to the disk, and one rename on the same disk makes the folder visible. A rename cannot replace a
folder with files, so a replacement is two renames, with the old copy in the trash between them. If
a run is killed between them, the next run restores the old copy (``restore``). A reader reads one
of the two copies (``read_one_copy``).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from datasets_cli.core.system_errors import MANIFEST_FILENAME, damaged
from datasets_cli.errors import ROOT, DamagedDataset, LockedError, NotWritable, RldsError, argument
from datasets_cli.sources.disk import disk_errors, flush, make_folder
from datasets_cli.sources.new_files import delete, put_in_place
from datasets_cli.store.cache_root import CacheRoot, has_manifest
from datasets_cli.store.manifest import Manifest, read_manifest, write_manifest
from datasets_cli.store.tables import remove_tables

Result = TypeVar("Result")

Identity = tuple[int, int] | None
"""Identifies a folder even if another folder takes its name; None for a missing folder."""

TRIES = 10
"""How often a folder is read again if it is replaced during the read."""


def commit(root: CacheRoot, staging: Path, manifest: Manifest, *, replace: bool = True) -> bool:
    """Commit a dataset to its folder of a cache root; ``staging`` no longer exists afterwards."""
    target, trash = root.dataset(manifest.id), root.new_trash(manifest.id)
    try:
        root.check_apart(manifest.id)
        if not replace and has_manifest(target):
            return False
        is_committed = commit_folder(staging, target, manifest, trash if replace else None)
        if not is_committed and not has_manifest(target):
            raise NotWritable(
                f"{target} exists and is not a dataset; {manifest.id} is installed in this folder.",
                id=manifest.id,
                path=target,
                advice=f"Move it away; {argument('force', 'True')} deletes it.",
            )
    finally:
        sweep(staging)
    if replace:
        discard(root, trash, manifest)
    return is_committed


def discard(root: CacheRoot, trash: Path, new: Manifest) -> None:
    """Delete a replaced copy and its tables; identical data keep their tables."""
    # Another process may have replaced the copy since the call began: read the one in the trash.
    with suppress(OSError, RldsError):
        if (content := read_manifest(trash).content) != new.content:
            remove_tables(root, content)
    sweep(trash)


def commit_folder(
    staging: Path, target: Path, manifest: Manifest, trash: Path | None = None
) -> bool:
    """Write the manifest, flush all files to the disk, and rename the folder."""
    with disk_errors(staging):
        write_manifest(staging, manifest)
        flush(staging / MANIFEST_FILENAME)
        for path, _, _ in os.walk(staging):
            flush(Path(path))
        with _one_disk(staging, target):
            is_committed = put_in_place(staging, target, trash)
        flush(target.parent)
    return is_committed


@contextmanager
def _one_disk(folder: Path, target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        raise _two_disks(folder.parent, target.parent) from error


def check_place(root: CacheRoot, id: str) -> None:
    """Check, before a dataset is written, that it can later be renamed to its folder."""
    root.check_apart(id)
    folders = (root.new_staging(id).parent, root.dataset(id).parent)
    existing = [next(each for each in (f, *f.parents) if each.exists()) for f in folders]
    if existing[0].stat().st_dev != existing[1].stat().st_dev:
        raise _two_disks(*folders)


def _two_disks(here: Path, there: Path) -> NotWritable:
    return NotWritable(
        f"{here} and {there} are on different disks, or one is in a layer of a container image. "
        "Datasets are installed and deleted by a rename.",
        path=there,
        found=str(here),
        advice="Put the whole cache root on one disk: link or mount the root itself, and of the "
        f"folders below it only downloads. {ROOT} sets the root.",
    )


def remove(root: CacheRoot, id: str) -> None:
    """Delete a dataset: a rename hides it from readers first."""
    target, trash = root.dataset(id), root.new_trash(id)
    make_folder(trash.parent)
    with _one_disk(target, trash):
        target.rename(trash)
    for folder in root.trashed(id):
        sweep(folder)
    remove_empty_parents(target, root.path / "datasets")


def restore(root: CacheRoot, id: str) -> None:
    """Clean up after killed runs: restore a replaced copy, delete stagings and trash."""
    # The caller holds the lock of `id`.
    for trash in root.trashed(id):
        if has_manifest(trash) and not root.dataset(id).exists():
            put_in_place(trash, root.dataset(id))
        sweep(trash)
    for staging in root.staged(id):
        sweep(staging)


def sweep(folder: Path) -> None:
    """Delete a folder if it exists, its manifest first: an incomplete copy is never restored."""
    if not folder.is_symlink():  # the target of a link stays
        with suppress(OSError):
            (folder / MANIFEST_FILENAME).unlink()
    delete(folder)


def remove_empty_parents(folder: Path, top: Path) -> None:
    """Remove the empty folders between ``folder`` and ``top``."""
    for parent in folder.parents:
        if parent == top or top not in parent.parents:
            return
        try:
            parent.rmdir()
        except OSError:
            return


def read_one_copy(folder: Path, read: Callable[[], Result]) -> Result:
    """Call a function that reads a folder, again if the folder is replaced meanwhile."""
    # Otherwise the manifest of one copy could be combined with the files of another.
    for _ in range(TRIES):
        before = identity(folder)
        try:
            result = read()
        except (DamagedDataset, FileNotFoundError) as error:
            if identity(folder) == before:
                if isinstance(error, RldsError):
                    raise
                what = f"{error.filename} was deleted while {folder} was read"
                raise damaged(folder, what) from error
        else:
            if identity(folder) == before:
                return result
    raise DamagedDataset(
        f"{folder} was replaced {TRIES} times while it was read.",
        path=folder,
        advice="Wait for the process that replaces it, and run again.",
    )


def check_same(root: CacheRoot, id: str, copy: Identity) -> None:
    """Check that a dataset was not replaced since the call began; the caller holds its lock."""
    if identity(root.dataset(id)) != copy:
        raise LockedError(
            f"Another process has replaced or deleted {id} since this call began. Nothing was "
            "changed.",
            id=id,
            path=root.dataset(id),
            advice="Run the command again.",
        )


def identity(folder: Path) -> Identity:
    """Return the identity of a folder, or None if it does not exist."""
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns  # inodes of deleted folders are reused
