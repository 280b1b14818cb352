"""The destination of a run: free, or filled by the same run, or refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

from datasets_cli.errors import DamagedDataset, UsageError
from datasets_cli.preprocessing.origin import Origin
from datasets_cli.sources.disk import MAX_NAME_BYTES, short_names
from datasets_cli.store.cache_root import has_manifest
from datasets_cli.store.check import check_sizes
from datasets_cli.store.manifest import read_manifest


def is_made(dest: Path, origin: Origin, replaces: bool = False) -> bool:
    """Tell whether a destination already holds what a run would make."""
    if not has_manifest(dest):
        check_destination(dest)
        return False
    manifest = read_manifest(dest)
    if manifest.parent is None:
        refuse_used(dest)
    differences = origin.differences(manifest)
    if differences and replaces:
        return False
    if differences:
        raise UsageError(
            f"{dest} is not empty: it has {manifest.id}, made otherwise from "
            f"{'; '.join(differences)}. Delete it first, or choose another destination."
        )
    try:
        check_sizes(dest, manifest)
    except DamagedDataset:
        if replaces:
            return False
        raise
    return True


def check_destination(dest: Path) -> None:
    """Refuse a destination that holds something, or is within a dataset."""
    if (size := len(os.fsencode(dest.name))) > MAX_NAME_BYTES:
        raise UsageError(
            f"{dest} cannot be a dataset's folder: its name has {size} bytes; expected "
            f"{MAX_NAME_BYTES} or fewer. Choose a shorter one."
        )
    with short_names(dest):
        if dest.exists() and any(dest.iterdir()):
            refuse_used(dest)
    for parent in dest.parents:
        if has_manifest(parent):
            raise UsageError(f"{dest} is within the dataset {parent}. Choose another destination.")


def refuse_used(dest: Path) -> NoReturn:
    """Refuse a destination that holds something."""
    raise UsageError(f"{dest} is not empty. Delete it first, or choose another destination.")
