"""What is installed: finding it and removing it."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from pathlib import Path

from datasets_cli.catalogue.names import Resolved, resolve
from datasets_cli.config import Config
from datasets_cli.errors import DatasetNotInstalled, UsageError
from datasets_cli.install.condition import check_owner, condition_of, read_sound_manifest_of
from datasets_cli.store.cache_root import CacheRoot, check_id, has_manifest
from datasets_cli.store.commit import remove as remove_dataset
from datasets_cli.store.commit import remove_empty_parents
from datasets_cli.store.lock import locked
from datasets_cli.store.manifest import Manifest
from datasets_cli.store.tables import remove_tables

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
    if is_installed(root, check_id(text)) and not options:
        return text
    resolved = resolve(text, root, options=options)
    if is_installed(root, resolved.id):
        return resolved.id
    if accept_fallback and (fallback := installed_fallback(resolved, root, options or {})):
        return fallback
    raise DatasetNotInstalled(
        f"{resolved.id} is not installed under {config.root}{_alike(text, root)}. Run: rlds "
        f"download {resolved.id} (in Python, datasets_cli.download)"
    )


def _alike(text: str, root: CacheRoot) -> str:
    """Return the installed datasets whose names begin like a text, for a message."""
    name = text.rpartition("/")[2].partition("~")[0]
    found = [id for id in root.installed() if id.rpartition("/")[2].startswith(name)]
    return f"; {' and '.join(found[:3])} {'is' if not found[1:] else 'are'}" if found else ""


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


def is_installed(root: CacheRoot, id: str) -> bool:
    """Tell whether a committed dataset has this id."""
    return has_manifest(root.dataset(id))


def installed_folder(root: CacheRoot, id: str, layout: str | None) -> Path:
    """Return the folder of an installed dataset, which must have the layout that is asked for."""
    check_asked(read_sound_manifest_of(root.dataset(id), id), id, layout)
    return root.dataset(id)


def check_asked(manifest: Manifest, id: str, layout: str | None) -> None:
    """Check that a manifest is that of the dataset that is asked for, in its layout."""
    check_owner(manifest, id)
    if layout not in (None, manifest.layout):
        raise UsageError(
            f"{id} is installed in the layout {manifest.layout}, and {layout} was asked for. "
            f"Change it: rlds convert --layout {layout} {id}"
        )


def remove(text: str, config: Config) -> str:
    """Delete an installed dataset, its tables, and what is left of its downloads; return its id."""
    root = CacheRoot(config.root)
    id = installed_id(text, config, accept_fallback=False)
    with locked(root.lock(id), id, config.lock_timeout):
        manifest = condition_of(root.dataset(id), id).manifest
        remove_dataset(root, id)
        remove_raw(root, id)
        if manifest is not None:  # what a damaged one was about is not known
            remove_tables(root, manifest.content)
    return id


def remove_raw(root: CacheRoot, id: str) -> None:
    """Delete the downloaded files of an id."""
    shutil.rmtree(root.downloads(id), ignore_errors=True)
    remove_empty_parents(root.downloads(id), root.path / "downloads")
