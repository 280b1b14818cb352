"""What can be done with installed datasets: find, verify, delete, change the layout."""

from __future__ import annotations

from collections.abc import Iterable

from datasets_cli.catalogue.selection import select_installed
from datasets_cli.config import Config
from datasets_cli.errors import IntegrityError
from datasets_cli.install.installed import installed_id, remove, verify
from datasets_cli.install.outcomes import (
    ConvertedDataset,
    DatasetFolder,
    DeletedDataset,
    VerifiedDataset,
)
from datasets_cli.progress import Progress, shown
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.check import folder_size
from datasets_cli.store.manifest import read_manifest


def find_folder(id: str, config: Config) -> DatasetFolder:
    """Return where an installed dataset is.

    Raises:
        DatasetNotInstalled: it is known, but not under this root.
        UnknownDataset: no recipe and no folder has that name.
    """
    id = installed_id(id, config)
    return DatasetFolder(id, CacheRoot(config.root).dataset(id))


def verify_all(
    ids: str | Iterable[str], config: Config, *, quick: bool = False
) -> list[VerifiedDataset]:
    """Compare installed datasets with their manifests, all of them, and return what came of it.

    Args:
        ids: ids, names that resolve to one, or globs.
        config: the root.
        quick: compare sizes only, not the sha256 of every file.

    Raises:
        IntegrityError: some are damaged; ``results`` has every dataset.
    """
    results = [_verify(id, config, quick) for id in select_installed(ids, config)]
    damaged = [result for result in results if not result.ok]
    if damaged:
        error = IntegrityError(
            f"Damaged: {', '.join(result.id for result in damaged)}. "
            "Install again with download --force."
        )
        error.results = results
        raise error from damaged[0].error
    return results


def _verify(id: str, config: Config, quick: bool) -> VerifiedDataset:
    try:
        manifest = verify(id, config, quick=quick)
    except IntegrityError as error:
        return VerifiedDataset(id, error=error)
    return VerifiedDataset(manifest.id, len(manifest.files), tuple(manifest.unverified))


def delete_all(
    ids: str | Iterable[str], config: Config, *, dry_run: bool = False
) -> list[DeletedDataset]:
    """Delete installed datasets and what is left of their downloads; return what they were.

    Args:
        ids: ids, names that resolve to one, or globs.
        config: the root.
        dry_run: delete nothing.

    Raises:
        DatasetNotInstalled: one is not there; nothing is deleted.
    """
    root = CacheRoot(config.root)
    selected = select_installed(ids, config)
    found = [installed_id(id, config, accept_fallback=False) for id in selected]
    sizes = {id: folder_size(root.dataset(id)) + folder_size(root.downloads(id)) for id in found}
    if not dry_run:
        for id in sizes:
            remove(id, config)
    return [DeletedDataset(id, size, deleted=not dry_run) for id, size in sizes.items()]


def convert(
    id: str, layout: str, config: Config, progress: Progress | None = None
) -> ConvertedDataset:
    """Change the layout of an installed dataset; every value stays the same bit for bit.

    Args:
        id: an id, or a name that resolves to one.
        layout: ``"ted"`` or ``"compact"``.
        config: the root.
        progress: told of the rows done; None draws a bar on a terminal.

    Raises:
        UsageError: there is no such layout.
        SourceError: ``compact``, and a frame's successor is not the following row's frame.
        DiskFull: no room for a second copy.
    """
    from datasets_cli.install.change_layout import change_layout

    with shown(progress) as told:
        folder = change_layout(id, layout, config, told)
    manifest = read_manifest(folder)
    return ConvertedDataset(manifest.id, folder, manifest.layout, manifest.size_bytes)
