"""Listing datasets: a record of each, without opening any data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field

from datasets_cli.catalogue.entries import refresh as refresh_entries
from datasets_cli.catalogue.names import is_glob, match
from datasets_cli.catalogue.registry import families, recipes
from datasets_cli.catalogue.selection import KnownIds, as_list, select_known
from datasets_cli.config import Config, RootOptions
from datasets_cli.errors import UsageError
from datasets_cli.look.records import DatasetRecord, all_datasets, filtered, in_order, record_fields
from datasets_cli.options import check_numbers, takes_fields
from datasets_cli.progress import Progress, ProgressOptions
from datasets_cli.progress_bars import shown
from datasets_cli.store.cache_root import CacheRoot


@dataclass(frozen=True)
class ListCall(ProgressOptions, RootOptions):
    """What ``list_datasets`` takes.

    Args:
        patterns: globs and words, such as ``"hopper-*"``; all datasets without any. A word finds
            every id that contains it.
        family: only this family.
        installed: only what is installed under the root.
        refresh: ask publishers for their newest catalogues first.
        filter: only those that it is true of, such as ``"size>1GB"`` or ``"state=installed"``, or
            that all of several are; a value that is not known is none.
        sort: the field to order by, numbers the largest first; ``"-size"`` the other way round.
        limit: at most so many.
    """

    patterns: str | Iterable[str] = field(
        default=(), metadata={"argument": True, "metavar": "GLOB", "complete": "known_ids"}
    )
    _: KW_ONLY
    family: str | None = field(
        default=None, metadata={"metavar": "NAME", "complete": "family_names"}
    )
    installed: bool = False
    refresh: bool = False
    filter: str | Iterable[str] = field(default=(), metadata={"metavar": "CONDITION"})
    sort: str | None = field(default=None, metadata={"metavar": "FIELD"})
    limit: int | None = field(default=None, metadata={"least": 1})

    def __post_init__(self) -> None:
        check_numbers(self)


@takes_fields(ListCall)
def list_datasets(call: ListCall) -> list[DatasetRecord]:
    """Return a record of every known dataset, sorted by id; works offline.

    Raises:
        UsageError: there is no such family or field, or a filter cannot be read.
        NetworkError: with ``refresh``, a publisher does not answer.
    """
    config, family = call.chosen_config(), call.family
    if family is not None and family not in families():
        raise UsageError(f"There is no family {family!r}. Known: {', '.join(families())}.")
    if call.refresh:
        _refresh_all(config, family, call.progress)
    root = CacheRoot(config.root)
    known = all_datasets(root)
    ids = [id for id in known if family in (None, id.partition("/")[0])]
    ids = [id for id in ids if known[id][1] or not call.installed]
    if globs := [_as_glob(pattern) for pattern in as_list(call.patterns)]:
        ids = match(globs, ids)
    records = [DatasetRecord(**record_fields(id, *known[id], root)) for id in ids]
    return in_order(filtered(records, as_list(call.filter)), call.sort)[: call.limit]


@takes_fields(KnownIds)
def match_datasets(call: KnownIds) -> list[str]:
    """Return ids with every glob replaced by the known datasets that it matches.

    Raises:
        UnknownDataset: a glob matches nothing.
    """
    return select_known(call.ids, call.chosen_config())


def _refresh_all(config: Config, family: str | None, progress: Progress | None) -> None:
    from datasets_cli.sources.http import Http

    http = Http(config)
    with shown(progress) as told:
        for recipe in recipes():
            if recipe.dynamic and family in (None, recipe.family):
                count = refresh_entries(recipe, CacheRoot(config.root), http)
                told.note(f"{recipe.family}: {count} datasets")


def _as_glob(pattern: str) -> str:
    """A plain word finds every id that contains it."""
    return pattern if is_glob(pattern) else f"*{pattern}*"
