"""What can be done with installed datasets: find, verify, delete, change the layout."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from datasets_cli.catalogue.selection import as_list, select_each, select_installed, together
from datasets_cli.config import Config
from datasets_cli.errors import (
    DamagedDataset,
    DatasetNotInstalled,
    IntegrityError,
    PartialFailure,
    RldsError,
    UnknownDataset,
    UsageError,
)
from datasets_cli.installed.condition import condition_of
from datasets_cli.installed.lookup import installed_id, remove
from datasets_cli.installed.outcomes import (
    ConvertedDataset,
    DatasetFolder,
    DeletedDataset,
    VerifiedDataset,
)
from datasets_cli.progress import Progress
from datasets_cli.progress_bars import shown
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.check import folder_size
from datasets_cli.store.manifest import read_manifest

NOT_INSTALLED = "not installed"


def find_folder(id: str, config: Config) -> DatasetFolder:
    """Return where an installed dataset is."""
    id = installed_id(id, config)
    folder = CacheRoot(config.root).dataset(id)
    condition = condition_of(folder, id)
    return DatasetFolder(id, folder, condition.state, condition.problem)


def verify_all(
    ids: str | Iterable[str],
    config: Config,
    *,
    quick: bool = False,
    deep: bool = False,
    progress: Progress | None = None,
) -> list[VerifiedDataset]:
    """Compare installed datasets with their manifests, all of them, and return what came of it."""
    if quick and deep:
        raise UsageError("quick compares sizes only and deep reads every value. Give one of them.")
    results: dict[str, VerifiedDataset] = {}
    for text in as_list(ids):
        try:
            for id in select_installed(text, config):
                known = installed_id(id, config)
                results[known] = (
                    _verify_sizes(known, config)
                    if quick
                    else _verify(known, config, deep, progress)
                )
        except (UnknownDataset, DatasetNotInstalled) as error:
            results[text] = VerifiedDataset(text, error=error, state=NOT_INSTALLED)
    if failure := _failure([*results.values()]):
        raise failure
    return [*results.values()]


def _failure(results: list[VerifiedDataset]) -> RldsError | None:
    """Return the error of results that are not all well, with these results."""
    missing = [result for result in results if result.state == NOT_INSTALLED]
    newer = [result for result in results if result.state == "newer"]
    damaged = [result for result in results if result.state == "damaged"]
    causes = [result.error for result in (*damaged, *newer, *missing) if result.error]
    if not causes:
        return None
    if len(missing) == len(results):
        return together(causes)
    named = {"Damaged": damaged, "Of a newer version": newer, "Not found": missing}
    text = " ".join(
        f"{word}: {', '.join(result.id for result in found)}."
        for word, found in named.items()
        if found
    )
    kind = IntegrityError if damaged or newer else PartialFailure
    failure = kind(f"{text} What to do is said of each.")
    failure.results, failure.__cause__ = results, causes[0]
    return failure


def _verify_sizes(id: str, config: Config) -> VerifiedDataset:
    found = find_folder(id, config)
    condition = condition_of(found.path, found.id)
    manifest = condition.sound_manifest
    if manifest is None:
        return VerifiedDataset(found.id, error=DamagedDataset(found.problem), state=condition.state)
    return VerifiedDataset(
        found.id, len(manifest.files), tuple(manifest.unverified), state=manifest.state
    )


def _verify(id: str, config: Config, deep: bool, progress: Progress | None) -> VerifiedDataset:
    from datasets_cli.installed.verification import verify, verify_deep

    report = None
    try:
        if deep:
            with shown(progress, "steps checked") as told:
                manifest, report = verify_deep(id, config, told)
        else:
            manifest = verify(id, config)
    except IntegrityError as error:
        is_newer = isinstance(error, DamagedDataset) and error.newer
        return VerifiedDataset(id, error=error, state="newer" if is_newer else "damaged")
    return VerifiedDataset(
        manifest.id,
        len(manifest.files),
        tuple(manifest.unverified),
        state=manifest.state,
        opened=True,
        report=report,
    )


def delete_all(
    ids: str | Iterable[str], config: Config, *, dry_run: bool = False
) -> list[DeletedDataset]:
    """Delete installed datasets and what is left of their downloads; return what they were."""
    root = CacheRoot(config.root)
    found = select_each(as_list(ids), partial(_installed_ids, config))
    gone = [
        DeletedDataset(
            id,
            folder_size(root.dataset(id)) + folder_size(root.downloads(id)),
            deleted=not dry_run,
            state=condition_of(root.dataset(id), id).state,
        )
        for id in found
    ]
    if not dry_run:
        for each in gone:
            remove(each.id, config)
    return gone


def _installed_ids(config: Config, text: str) -> list[str]:
    """Return the ids of what a text means; a fallback is never deleted in its place."""
    selected = select_installed(text, config)
    return [installed_id(id, config, accept_fallback=False) for id in selected]


def convert(
    id: str, layout: str, config: Config, progress: Progress | None = None
) -> ConvertedDataset:
    """Change the layout of an installed dataset; every value stays the same bit for bit."""
    from datasets_cli.installed.change_layout import change_layout

    with shown(progress) as told:
        folder = change_layout(id, layout, config, told)
    manifest = read_manifest(folder)
    return ConvertedDataset(
        manifest.id,
        folder,
        manifest.layout,
        manifest.size_bytes,
        manifest.state,
        tuple(manifest.unverified),
    )
