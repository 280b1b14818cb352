"""What is known of every dataset, installed or not, without opening any data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datasets_cli.catalogue.entries import all_entries, refresh
from datasets_cli.catalogue.names import is_glob, match, resolve
from datasets_cli.catalogue.registry import families, recipes
from datasets_cli.catalogue.selection import as_list
from datasets_cli.config import Config
from datasets_cli.errors import DamagedDataset, UnknownDataset, UsageError
from datasets_cli.install.records import DatasetInfo, DatasetRecord
from datasets_cli.progress import Progress, shown
from datasets_cli.recipe import CatalogueEntry, Recipe
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.check import check_sizes
from datasets_cli.store.manifest import Manifest, read_manifest

Known = tuple[Recipe, CatalogueEntry]
"""What the catalogue has on a dataset."""


def list_records(
    patterns: str | Iterable[str],
    config: Config,
    *,
    family: str | None = None,
    installed: bool = False,
    update: bool = False,
    progress: Progress | None = None,
) -> list[DatasetRecord]:
    """Return a record of every known dataset, sorted by id.

    Args:
        patterns: globs and words; all datasets without any. A word finds every id that contains it.
        config: the root; with ``update`` also mirrors and offline mode.
        family: only this family.
        installed: only what is installed under the root.
        update: ask publishers for their newest catalogues first.
        progress: told how many datasets a publisher has.

    Raises:
        UsageError: there is no such family.
        NetworkError: a publisher does not answer.
    """
    root = CacheRoot(config.root)
    if family is not None and family not in families():
        raise UsageError(f"There is no family {family!r}. Known: {', '.join(families())}.")
    if update:
        _refresh_all(config, family, progress)
    copies = {id: _sound_manifest(root, id) for id in root.installed()}
    known = all_entries(root)
    ids = sorted(copies if installed else known.keys() | copies.keys())
    ids = [id for id in ids if family in (None, id.partition("/")[0])]
    if globs := [_as_glob(pattern) for pattern in as_list(patterns)]:
        ids = match(globs, ids)
    return [DatasetRecord(**_record(id, known.get(id), id in copies, copies.get(id))) for id in ids]


def describe(id: str, config: Config) -> DatasetInfo:
    """Return everything known about a dataset, installed or not.

    Args:
        id: an id, or a name that resolves to one.
        config: the root.

    Raises:
        UnknownDataset: no recipe and no folder has that name.
        UsageError: the name exists in several families.
        DamagedDataset: its manifest cannot be read.
    """
    root = CacheRoot(config.root)
    if id in root.installed():
        known = _known(id, root)
    else:
        resolved = resolve(id, root)
        id = resolved.id
        assert resolved.entry is not None, "only unlisted datasets lack one, and none is asked for"
        known = resolved.recipe, resolved.entry
    manifest = read_manifest(root.dataset(id)) if id in root.installed() else None
    copy = manifest and _sound_manifest(root, id)
    facts: dict[str, Any] = _record(id, known, manifest is not None, copy)
    if known:
        recipe, entry = known
        facts |= recipe.to_json() | {
            "title": recipe.title,
            "details": entry.details,
            "options": recipe.options,
        }
    if manifest:
        # The manifest speaks of this dataset; a recipe speaks of its whole family.
        own = manifest.metadata
        facts |= {key: own[key] for key in ("licence", "citation") if own.get(key)}
        facts |= {"path": root.dataset(id), "manifest": manifest}
    return DatasetInfo(**facts)


def _known(id: str, root: CacheRoot) -> Known | None:
    """Return what the catalogue has on an installed dataset; its recipe may be gone."""
    try:
        resolved = resolve(id, root)
    except (UnknownDataset, UsageError):
        return None
    return (resolved.recipe, resolved.entry) if resolved.entry and resolved.id == id else None


def _refresh_all(config: Config, family: str | None, progress: Progress | None) -> None:
    from datasets_cli.sources.http import Http

    http = Http(config)
    with shown(progress) as told:
        for recipe in recipes():
            if recipe.dynamic and family in (None, recipe.family):
                count = refresh(recipe, CacheRoot(config.root), http)
                told.note(f"{recipe.family}: {count} datasets")


def _sound_manifest(root: CacheRoot, id: str) -> Manifest | None:
    """Return the manifest, or None where it is damaged: it must not hide the others."""
    try:
        manifest = read_manifest(root.dataset(id))
        check_sizes(root.dataset(id), manifest)
    except DamagedDataset:
        return None
    return manifest


def _as_glob(pattern: str) -> str:
    """A plain word finds every id that contains it."""
    return pattern if is_glob(pattern) else f"*{pattern}*"


def _record(id: str, known: Known | None, present: bool, copy: Manifest | None) -> dict[str, Any]:
    """Return the fields of a record.

    Args:
        id: the full id.
        known: what the catalogue has on it.
        present: whether a copy is installed.
        copy: the manifest of a copy without damage.
    """
    entry = known[1] if known else CatalogueEntry(id)
    return {
        "id": id,
        "state": _state(present, copy),
        "installed": copy is not None,
        "download_bytes": entry.size,
        "size_bytes": copy.size_bytes if copy else None,
        "num_transitions": copy.num_transitions if copy else entry.num_transitions,
        "num_trajectories": copy.num_trajectories if copy else entry.num_trajectories,
    }


def _state(present: bool, copy: Manifest | None) -> str:
    """Return the word for a dataset's state."""
    if not present:
        return "not installed"
    if copy is None:
        return "damaged"
    return "unverified" if copy.unverified else "installed"
