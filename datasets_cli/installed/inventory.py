"""What is known of every dataset, installed or not, without opening any data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datasets_cli.catalogue.entries import all_entries, refresh
from datasets_cli.catalogue.names import is_glob, match, resolve
from datasets_cli.catalogue.registry import families, recipes
from datasets_cli.catalogue.selection import as_list
from datasets_cli.config import Config
from datasets_cli.errors import UnknownDataset, UsageError
from datasets_cli.installed.condition import Condition, condition_of
from datasets_cli.installed.lookup import is_installed
from datasets_cli.installed.records import DatasetInfo, DatasetRecord
from datasets_cli.progress import Progress
from datasets_cli.progress_bars import shown
from datasets_cli.recipe import CatalogueEntry, Recipe
from datasets_cli.store.audit.report import TABLE, report_from_json
from datasets_cli.store.cache_root import CacheRoot, check_id
from datasets_cli.store.tables import load_table

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
    """Return a record of every known dataset, sorted by id."""
    root = CacheRoot(config.root)
    if family is not None and family not in families():
        raise UsageError(f"There is no family {family!r}. Known: {', '.join(families())}.")
    if update:
        _refresh_all(config, family, progress)
    copies = {id: condition_of(root.dataset(id), id) for id in root.installed()}
    known = all_entries(root)
    ids = sorted(copies if installed else known.keys() | copies.keys())
    ids = [id for id in ids if family in (None, id.partition("/")[0])]
    if globs := [_as_glob(pattern) for pattern in as_list(patterns)]:
        ids = match(globs, ids)
    return [DatasetRecord(**_record(id, known.get(id), copies.get(id))) for id in ids]


def describe(id: str, config: Config) -> DatasetInfo:
    """Return everything known about a dataset, installed or not."""
    root = CacheRoot(config.root)
    if is_installed(root, check_id(id)):
        known = _known(id, root)
    else:
        resolved = resolve(id, root)
        id = resolved.id
        assert resolved.entry is not None, "only unlisted datasets lack one, and none is asked for"
        known = resolved.recipe, resolved.entry
    condition = condition_of(root.dataset(id), id) if is_installed(root, id) else None
    facts: dict[str, Any] = _record(id, known, condition)
    if known:
        recipe, entry = known
        said = recipe.to_json()
        said.pop("identity", None)  # of the manifest alone
        facts |= said | {
            "title": recipe.title,
            "details": entry.details,
            "options": recipe.options,
        }
    if condition:
        facts |= {"path": root.dataset(id)}
    if condition and (manifest := condition.manifest):
        # The manifest speaks of this dataset; a recipe speaks of its whole family, and of nothing
        # that was derived, which has its parent's licence.
        own = {**manifest.recipe, **{key: text for key, text in manifest.metadata.items() if text}}
        facts |= {key: own[key] for key in ("licence", "citation") if own.get(key)}
        table = load_table(root, manifest.content, TABLE)
        report = None if table is None else report_from_json(table)
        facts |= {"manifest": manifest, "report": report}
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


def _as_glob(pattern: str) -> str:
    """A plain word finds every id that contains it."""
    return pattern if is_glob(pattern) else f"*{pattern}*"


def _record(id: str, known: Known | None, condition: Condition | None) -> dict[str, Any]:
    """Return the fields of a record."""
    entry = known[1] if known else CatalogueEntry(id)
    copy = condition.sound_manifest if condition else None
    return {
        "id": id,
        "state": condition.state if condition else "not installed",
        "installed": copy is not None,
        "download_bytes": entry.size,
        "size_bytes": copy.size_bytes if copy else None,
        "num_transitions": copy.num_transitions if copy else entry.num_transitions,
        "num_trajectories": copy.num_trajectories if copy else entry.num_trajectories,
        "problem": condition.problem if condition else "",
    }
