"""Which datasets the ids and globs of one call mean."""

from __future__ import annotations

from collections.abc import Iterable

from datasets_cli.catalogue.entries import all_entries
from datasets_cli.catalogue.names import is_glob, match
from datasets_cli.config import Config
from datasets_cli.errors import UnknownDataset
from datasets_cli.store.cache_root import CacheRoot


def as_list(texts: str | Iterable[str]) -> list[str]:
    """Return one text, or several, as a list."""
    return [texts] if isinstance(texts, str) else list(texts)


def select_known(ids: str | Iterable[str], config: Config) -> list[str]:
    """Return the ids with every glob replaced by what it matches in the catalogue.

    Args:
        ids: ids, names that resolve to one, or globs.
        config: the root, for cached catalogues.

    Raises:
        UnknownDataset: a glob matches nothing.
    """
    selected: list[str] = []
    for id in as_list(ids):
        found = match([id], all_entries(CacheRoot(config.root))) if is_glob(id) else [id]
        if not found:
            raise UnknownDataset(f"No known dataset matches {id!r}. See: rlds list")
        selected += found
    return list(dict.fromkeys(selected))


def select_installed(ids: str | Iterable[str], config: Config) -> list[str]:
    """Return the ids with every glob replaced by the installed datasets that it matches.

    Args:
        ids: ids, names that resolve to one, or globs; ``"*"`` may match nothing.
        config: the root.

    Raises:
        UnknownDataset: a glob matches nothing.
    """
    installed = list(CacheRoot(config.root).installed())
    selected: list[str] = []
    for id in as_list(ids):
        found = match([id], installed) if is_glob(id) else [id]
        if not found and id != "*":
            raise UnknownDataset(f"No installed dataset matches {id!r}. See: rlds list --installed")
        selected += found
    return list(dict.fromkeys(selected))
