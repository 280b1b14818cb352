"""Finds installed datasets, checks their condition and removes them."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from datasets_cli.catalogue.names import Resolved, resolve
from datasets_cli.config import Config
from datasets_cli.core.system_errors import repair_advice
from datasets_cli.errors import (
    DamagedDataset,
    DatasetNotInstalled,
    UnknownDataset,
    UsageError,
    by_reader,
)
from datasets_cli.store.cache_root import CacheRoot, folder_advice, has_manifest
from datasets_cli.store.check import check_sizes
from datasets_cli.store.commit import (
    Identity,
    check_same,
    read_one_copy,
    remove_empty_parents,
    restore,
)
from datasets_cli.store.commit import remove as remove_dataset
from datasets_cli.store.lock import locked
from datasets_cli.store.manifest import Manifest, read_manifest
from datasets_cli.store.tables import remove_tables

if TYPE_CHECKING:
    from datasets_cli.install.options import InstallOptions
    from datasets_cli.store.arrays import DatasetArrays

logger = logging.getLogger(__name__)


def installed_id(
    text: str,
    config: Config,
    options: Mapping[str, str] | None = None,
    *,
    accept_fallback: bool = True,
) -> str:
    """Return the id of an installed dataset by a user's name for it; it needs no recipe."""
    root = CacheRoot(config.root)
    if _is_installed_or_restored(root, text, config) and not options:
        return text
    try:
        resolved = resolve(text, root, options=options)
    except UnknownDataset:
        if options or (id := id_without_family(text, root)) is None:
            raise
        return id
    if _is_installed_or_restored(root, resolved.id, config):
        return resolved.id
    if accept_fallback and (fallback := installed_fallback(resolved, root, options or {})):
        return fallback
    in_python = by_reader("", f", or datasets_cli.download({resolved.id!r})")
    raise DatasetNotInstalled(
        f"{resolved.id} is not installed under {config.root}{_alike(text, root)}.",
        id=resolved.id,
        path=config.root,
        advice=f"Run: rlds download {resolved.id}{in_python}",
    )


def open_installed(text: str, config: Config) -> DatasetArrays:
    """Open a dataset, by id or folder, as numpy arrays."""
    from datasets_cli.store.arrays import open_arrays  # with numpy

    folder, id = folder_and_id(text, config)
    dataset = open_arrays(folder)
    check_owner(dataset.manifest, id)
    return dataset


def folder_and_id(text: str | os.PathLike[str], config: Config) -> tuple[Path, str]:
    """Return the folder and the id of a dataset that a user names by id or path."""
    if isinstance(text, str) and text[:1] not in ("/", "."):
        id = installed_id(text, config)
        return CacheRoot(config.root).dataset(id), id
    check_folder(folder := Path(text).absolute())
    return folder, read_manifest(folder).id


def check_folder(folder: Path) -> None:
    """Raise UsageError unless a folder is the folder of a dataset."""
    if not folder.is_dir():
        raise UsageError(
            f"{folder} is not a folder.",
            path=folder,
            expected="the folder or the id of a dataset",
            advice="Pass the folder of a dataset, or an id, which does not begin with / or a full "
            "stop.",
        )
    if not has_manifest(folder):
        raise UsageError(
            f"{folder} is not the folder of a dataset: it has no manifest.json.",
            path=folder,
            expected="a folder with manifest.json",
            advice=folder_advice(str(folder)),
        )


def id_without_family(name: str, root: CacheRoot) -> str | None:
    """Return the id of the only installed dataset with a name; None for none or several."""
    ids = [id for id in root.installed() if id.partition("/")[2] == name]
    return ids[0] if len(ids) == 1 and not ids[0].startswith("demo/") else None


def _is_installed_or_restored(root: CacheRoot, id: str, config: Config) -> bool:
    """Return whether a dataset is installed, after restoring the copy of a killed replacement."""
    if not is_installed(root, id) and root.trashed(id) and os.access(root.path, os.W_OK):
        with locked(root.lock(id), id, config.lock_timeout):
            restore(root, id)
    return is_installed(root, id)


def _alike(text: str, root: CacheRoot) -> str:
    """Return part of a message: the installed datasets whose names begin like a text."""
    name = text.rpartition("/")[2].partition("~")[0]
    alike = [id for id in root.installed() if id.rpartition("/")[2].startswith(name)]
    return f"; {' and '.join(alike[:3])} {'is' if not alike[1:] else 'are'}" if alike else ""


def installed_fallback(
    resolved: Resolved, root: CacheRoot, options: Mapping[str, str]
) -> str | None:
    """Return the id of a dataset's fallback, if it is installed, and log a warning."""
    name = resolved.recipe.fallback(resolved.name, options)
    id = f"{resolved.recipe.family}/{name}"
    if name is None or not is_installed(root, id):
        return None
    logger.warning("%s is not installed; its fallback %s is used.", resolved.id, id)
    return id


def is_installed_already(text: str, config: Config, install_options: InstallOptions) -> bool:
    """Return whether a text is the id of an installed dataset that the options leave unchanged."""
    root = CacheRoot(config.root)
    is_plain = not (install_options.force or install_options.options)
    return is_installed(root, text) and is_plain


def is_installed(root: CacheRoot, id: str) -> bool:
    """Return whether a committed dataset has this id."""
    return has_manifest(root.dataset(id))


@dataclass(frozen=True)
class Condition:
    """The condition of an installed copy, without a look at its data."""

    manifest: Manifest | None
    problem: str = ""
    newer: bool = False

    @property
    def state(self) -> str:
        """``"installed"``, ``"unchecked"``, ``"unverified"``, ``"newer"`` or ``"damaged"``."""
        if self.newer:
            return "newer"
        return "damaged" if self.problem or self.manifest is None else self.manifest.state

    @property
    def sound_manifest(self) -> Manifest | None:
        """The manifest of an undamaged copy; None for a damaged one."""
        return None if self.problem else self.manifest


def condition_of(folder: Path, id: str) -> Condition:
    """Return the condition of the dataset in a folder; it raises no error for damage."""
    # Costs the manifest and one `lstat` a file.
    manifest = None

    def read() -> None:
        nonlocal manifest
        manifest = None
        manifest = read_manifest_of(folder, id)
        check_sizes(folder, manifest)

    try:
        read_one_copy(folder, read)
    except DamagedDataset as error:
        return Condition(manifest, str(error), error.newer)
    except OSError as error:  # such as a folder of another user
        return Condition(manifest, f"{folder} cannot be read: {error.strerror or error}")
    return Condition(manifest)


def read_sound_manifest_of(folder: Path, id: str) -> Manifest:
    """Read the manifest in the folder of an id, and check the sizes of the files there."""

    def read() -> Manifest:
        manifest = read_manifest_of(folder, id)
        check_sizes(folder, manifest)
        return manifest

    return read_one_copy(folder, read)


def read_manifest_of(folder: Path, id: str) -> Manifest:
    """Read the manifest in the folder of an id."""
    manifest = read_manifest(folder)
    check_owner(manifest, id)
    return manifest


def check_owner(manifest: Manifest, id: str) -> None:
    """Raise DamagedDataset unless a manifest has the id of its folder."""
    if manifest.id != id:
        raise DamagedDataset(
            f"{id}: its manifest is for {manifest.id!r}.",
            id=id,
            expected=id,
            found=manifest.id,
            advice=repair_advice(id),
        )


def check_layout_of(manifest: Manifest, id: str, layout: str | None) -> None:
    """Raise an error unless a manifest has an id and, if it is not None, a layout."""
    check_owner(manifest, id)
    if layout not in (None, manifest.layout):
        raise UsageError(
            f"{id} is installed in the layout {manifest.layout}, expected {layout}.",
            argument="layout",
            id=id,
            expected=layout,
            found=manifest.layout,
            advice=f"Change the layout: rlds convert --layout {layout} {id}",
        )


def remove(id: str, config: Config, copy: Identity) -> None:
    """Delete a copy of an installed dataset, its tables and its downloads."""
    root = CacheRoot(config.root)
    with locked(root.lock(id), id, config.lock_timeout):
        check_same(root, id, copy)
        manifest = condition_of(root.dataset(id), id).manifest
        remove_dataset(root, id)
        remove_raw(root, id)
        if manifest is not None:  # without a manifest the content is unknown
            remove_tables(root, manifest.content)


def remove_raw(root: CacheRoot, id: str) -> None:
    """Delete the downloaded files of an id."""
    shutil.rmtree(root.downloads(id), ignore_errors=True)
    remove_empty_parents(root.downloads(id), root.path / "downloads")
