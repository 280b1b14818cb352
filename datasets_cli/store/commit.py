"""Putting a finished folder in place, and taking one away, so that no half is ever seen.

A dataset exists exactly when its manifest does. A folder becomes visible by one rename on one disk.
A folder that has files cannot be renamed over, so a replacement is two renames, with the old copy
in the trash between them; a run killed there is mended by the next one (``restore``).
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from datasets_cli.sources.disk import disk_errors
from datasets_cli.store.layout import MANIFEST_FILENAME, CacheRoot
from datasets_cli.store.manifest import Manifest, write_manifest


def commit(root: CacheRoot, staging: Path, manifest: Manifest) -> bool:
    """Write the manifest and move the folder to its place, replacing an older copy.

    Args:
        root: the cache root, on whose disk ``staging`` lies.
        staging: a folder whose other files are complete and flushed.
        manifest: its manifest.

    Returns:
        False where another process put the same dataset there first; ``staging`` is then removed.
    """
    with disk_errors(staging):
        _flush(write_manifest(staging, manifest))
        for folder, _, _ in os.walk(staging):
            _flush(Path(folder))
        target = root.dataset(manifest.id)
        target.parent.mkdir(parents=True, exist_ok=True)
        trash = root.new_trash(manifest.id)
        if target.exists():
            os.rename(target, trash)
        try:
            os.rename(staging, target)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            shutil.rmtree(staging)
            return False
        _flush(target.parent)
    shutil.rmtree(trash, ignore_errors=True)
    return True


def remove(root: CacheRoot, id: str) -> None:
    """Delete a dataset: first by a rename, so that it is either there or gone."""
    target, trash = root.dataset(id), root.new_trash(id)
    trash.parent.mkdir(parents=True, exist_ok=True)
    os.rename(target, trash)
    shutil.rmtree(trash)
    remove_empty_parents(target, root.path / "datasets")


def restore(root: CacheRoot, id: str) -> None:
    """Mend what killed runs left: bring back a replaced copy, sweep stagings and trash.

    The caller holds the lock of ``id``.
    """
    for trash in root.trashed(id):
        if (trash / MANIFEST_FILENAME).is_file() and not root.dataset(id).exists():
            root.dataset(id).parent.mkdir(parents=True, exist_ok=True)
            os.rename(trash, root.dataset(id))
        else:
            shutil.rmtree(trash, ignore_errors=True)
    for staging in root.staged(id):
        shutil.rmtree(staging, ignore_errors=True)


def remove_empty_parents(folder: Path, top: Path) -> None:
    """Remove the empty folders between ``folder`` and ``top``."""
    for parent in folder.parents:
        if parent == top or top not in parent.parents:
            return
        try:
            parent.rmdir()
        except OSError:
            return


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
