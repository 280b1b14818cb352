"""What is installed: finding a dataset, its condition, and removing it."""

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
from datasets_cli.install.options import InstalledDataset, InstallOptions
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
    from datasets_cli.store.arrays import DatasetArrays

logger = logging.getLogger(__name__)


def installed_id(
    text: str,
    config: Config,
    options: Mapping[str, str] | None = None,
    *,
    accept_fallback: bool = True,
) -> str:
    """Return the id of an installed dataset that a user means; its recipe may be gone."""
    root = CacheRoot(config.root)
    if _is_here(root, text, config) and not options:
        return text
    try:
        resolved = resolve(text, root, options=options)
    except UnknownDataset:
        if options or (own := id_without_family(text, root)) is None:
            raise
        return own
    if _is_here(root, resolved.id, config):
        return resolved.id
    if accept_fallback and (fallback := installed_fallback(resolved, root, options or {})):
        return fallback
    raise DatasetNotInstalled(
        f"{resolved.id} is not installed under {config.root}{_alike(text, root)}. Run: rlds "
        f"download {resolved.id}{by_reader('', f', or datasets_cli.download({resolved.id!r})')}"
    )


def open_installed(text: str, config: Config) -> DatasetArrays:
    """Open the dataset that a user means, an installed one or a folder, as numpy's arrays."""
    from datasets_cli.store.arrays import open_arrays  # with numpy

    folder, id = folder_meant(text, config)
    dataset = open_arrays(folder)
    check_owner(dataset.manifest, id)
    return dataset


def folder_meant(text: str | os.PathLike[str], config: Config) -> tuple[Path, str]:
    """Return the folder of the dataset that a user means by an id or a path, and its id."""
    if isinstance(text, str) and text[:1] not in ("/", "."):
        id = installed_id(text, config)
        return CacheRoot(config.root).dataset(id), id
    check_folder(folder := Path(text).absolute())
    return folder, read_manifest(folder).id


def check_folder(folder: Path) -> None:
    """Check that a folder is that of a dataset."""
    if not folder.is_dir():
        raise UsageError(
            f"{folder} is not a folder. Give the folder of a dataset, or an id, which begins with "
            "neither / nor a full stop."
        )
    if not has_manifest(folder):
        raise UsageError(
            f"{folder} is not the folder of a dataset: it has no manifest.json."
            f"{folder_advice(str(folder))}"
        )


def id_without_family(name: str, root: CacheRoot) -> str | None:
    """Return the one installed dataset of this name, of a family that no catalogue lists."""
    ids = [id for id in root.installed() if id.partition("/")[2] == name]
    return ids[0] if len(ids) == 1 and not ids[0].startswith("demo/") else None


def _is_here(root: CacheRoot, id: str, config: Config) -> bool:
    """Return whether a dataset is installed, also where a killed run was replacing it."""
    if not is_installed(root, id) and root.trashed(id) and os.access(root.path, os.W_OK):
        with locked(root.lock(id), id, config.lock_timeout):
            restore(root, id)
    return is_installed(root, id)


def _alike(text: str, root: CacheRoot) -> str:
    """Return the installed datasets whose names begin like a text, for a message."""
    name = text.rpartition("/")[2].partition("~")[0]
    alike = [id for id in root.installed() if id.rpartition("/")[2].startswith(name)]
    return f"; {' and '.join(alike[:3])} {'is' if not alike[1:] else 'are'}" if alike else ""


def installed_fallback(
    resolved: Resolved, root: CacheRoot, options: Mapping[str, str]
) -> str | None:
    """Return the id of a dataset's fallback, if that is installed, and say so."""
    name = resolved.recipe.fallback(resolved.name, options)
    id = f"{resolved.recipe.family}/{name}"
    if name is None or not is_installed(root, id):
        return None
    logger.warning("%s is not installed, but %s is and is taken.", resolved.id, id)
    return id


def is_there(text: str, config: Config, install_options: InstallOptions) -> bool:
    """Return whether a text is the id of an installed dataset that the options do not replace."""
    root = CacheRoot(config.root)
    is_plain = not (install_options.force or install_options.options)
    return is_installed(root, text) and is_plain


def is_installed(root: CacheRoot, id: str) -> bool:
    """Return whether a committed dataset has this id."""
    return has_manifest(root.dataset(id))


@dataclass(frozen=True)
class Condition:
    """What can be told of an installed copy without opening its data."""

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
        """The manifest of a copy without damage."""
        return None if self.problem else self.manifest


def condition_of(folder: Path, id: str) -> Condition:
    """Return the condition of the dataset in a folder, whatever is there."""
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
    except OSError as error:  # such as a folder that only another user may enter
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
    """Check that a manifest is that of the id in whose folder it is."""
    if manifest.id != id:
        raise DamagedDataset(f"{id}: its manifest is that of {manifest.id!r}. {repair_advice(id)}")


def installed_dataset(root: CacheRoot, id: str, layout: str | None) -> InstalledDataset:
    """Return an installed dataset without damage, which must have the layout that is asked for."""
    manifest = read_sound_manifest_of(root.dataset(id), id)
    check_asked(manifest, id, layout)
    return InstalledDataset.of(root.dataset(id), manifest)


def check_asked(manifest: Manifest, id: str, layout: str | None) -> None:
    """Check that a manifest is that of the dataset that is asked for, in its layout."""
    check_owner(manifest, id)
    if layout not in (None, manifest.layout):
        raise UsageError(
            f"{id} is installed in the layout {manifest.layout}, and {layout} was asked for. "
            f"Change it: rlds convert --layout {layout} {id}"
        )


def remove(id: str, config: Config, copy: Identity) -> None:
    """Delete a copy of an installed dataset, its tables, and what is left of its downloads."""
    root = CacheRoot(config.root)
    with locked(root.lock(id), id, config.lock_timeout):
        check_same(root, id, copy)
        manifest = condition_of(root.dataset(id), id).manifest
        remove_dataset(root, id)
        remove_raw(root, id)
        if manifest is not None:  # what a damaged one was about is not known
            remove_tables(root, manifest.content)


def remove_raw(root: CacheRoot, id: str) -> None:
    """Delete the downloaded files of an id."""
    shutil.rmtree(root.downloads(id), ignore_errors=True)
    remove_empty_parents(root.downloads(id), root.path / "downloads")
