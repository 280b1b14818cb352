"""Deleting installed datasets and what is left of their downloads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from datasets_cli.catalogue.selection import as_list, select_each, select_installed
from datasets_cli.config import Config, Root, choose_config
from datasets_cli.install.installed import condition_of, installed_id, remove
from datasets_cli.json_form import JsonForm
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.check import folder_size


@dataclass(frozen=True)
class DeletedDataset(JsonForm):
    """A dataset that was deleted, or would be.

    Args:
        id: the full id.
        size_bytes: of its files and of what is left of its downloads.
        deleted: False where nothing was done.
        state: that it had: ``"installed"``, ``"unchecked"``, ``"unverified"`` or ``"damaged"``.
    """

    JSON = "id bytes=size_bytes deleted state"

    id: str
    size_bytes: int
    deleted: bool
    state: str = "installed"


def delete(
    ids: str | Iterable[str],
    *,
    dry_run: bool = False,
    root: Root = None,
    config: Config | None = None,
) -> list[DeletedDataset]:
    """Delete installed datasets and what is left of their downloads, without asking.

    Args:
        ids: an id, a name that resolves to one, a glob, or several of them.
        dry_run: delete nothing, and return what would be deleted.
        root: the cache root.
        config: root, mirrors and offline mode, instead of ``root``.

    Raises:
        UnknownDataset, DatasetNotInstalled: some are not there; all of those are named, and nothing
            is deleted.
    """
    config = choose_config(root, config)
    place = CacheRoot(config.root)
    gone = [
        DeletedDataset(
            id,
            folder_size(place.dataset(id)) + folder_size(place.downloads(id)),
            deleted=not dry_run,
            state=condition_of(place.dataset(id), id).state,
        )
        for id in select_each(as_list(ids), partial(_installed_ids, config))
    ]
    if not dry_run:
        for each in gone:
            remove(each.id, config)
    return gone


def _installed_ids(config: Config, text: str) -> list[str]:
    """Return the ids of what a text means; a fallback is never deleted in its place."""
    selected = select_installed(text, config)
    return [installed_id(id, config, accept_fallback=False) for id in selected]
