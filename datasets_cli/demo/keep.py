"""Leaving a dataset of the demo under the user's cache root, marked as what it is."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from datasets_cli.config import Config
from datasets_cli.errors import DatasetNotInstalled
from datasets_cli.install.installed import installed_id
from datasets_cli.sources.disk import disk_errors, flush, make_folder
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.commit import commit, restore
from datasets_cli.store.lock import locked
from datasets_cli.store.manifest import UNVERIFIED, Manifest, read_manifest


def keep(folder: Path, about: str, config: Config) -> bool:
    """Install a copy of a demo dataset, unless something answers to its id already.

    Args:
        folder: where the demo installed it.
        about: what its files are.
        config: of the user, whose cache root is to hold the copy.

    Returns:
        False where the id was installed, or another dataset stood in for it; that one stays.

    Raises:
        DiskFull, LockedError: there is no room, or another process works on the id.
    """
    root, manifest = CacheRoot(config.root), _marked(read_manifest(folder), about)
    with locked(root.lock(manifest.id), manifest.id, config.lock_timeout):
        restore(root, manifest.id)
        try:
            installed_id(manifest.id, config)
        except DatasetNotInstalled:
            staging = root.new_staging(manifest.id)
            _copy(folder, staging, manifest)
            return commit(root, staging, manifest, replace=False)
    return False


def _marked(manifest: Manifest, about: str) -> Manifest:
    """Return the manifest of the copy: the server that vouched for the files was our own."""
    checked = f"{UNVERIFIED}: {about}; rlds demo --keep left it"
    notes = [
        f"this is {about}, and ships with rlds; for what is published: "
        f"rlds download --force {manifest.id}",
        *manifest.metadata.get("notes", ()),
    ]
    return replace(
        manifest,
        resources=tuple({**resource, "checked": checked} for resource in manifest.resources),
        metadata={**manifest.metadata, "notes": notes},
    )


def _copy(folder: Path, staging: Path, manifest: Manifest) -> None:
    """Copy and flush every file but the manifest."""
    try:
        with disk_errors(staging):
            for name in manifest.files:
                make_folder((staging / name).parent)
                shutil.copyfile(folder / name, staging / name)
                flush(staging / name)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
