"""Listing datasets: a record of each, without opening any data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from datasets_cli.catalogue.entries import all_entries
from datasets_cli.catalogue.entries import refresh as refresh_entries
from datasets_cli.catalogue.names import is_glob, match
from datasets_cli.catalogue.registry import families, recipes
from datasets_cli.catalogue.selection import KnownIds, as_list, select_known
from datasets_cli.config import Config, RootOptions
from datasets_cli.errors import UsageError
from datasets_cli.install.installed import Condition, condition_of
from datasets_cli.json_form import JsonForm
from datasets_cli.options import takes_fields
from datasets_cli.progress import Progress, ProgressOptions
from datasets_cli.progress_bars import shown
from datasets_cli.recipe import CatalogueEntry, Recipe
from datasets_cli.store.cache_root import CacheRoot

Known = tuple[Recipe, CatalogueEntry]
"""What the catalogue has on a dataset."""


@dataclass(frozen=True)
class DatasetRecord(JsonForm):
    """What a list shows of a dataset.

    Args:
        id: the full id.
        state: ``"installed"``; ``"unchecked"``, where the publisher states no checksum for some
            file; ``"unverified"``, of files that are not known to be the publisher's;
            ``"newer"``, where a newer version of this program wrote it; ``"damaged"``, where the
            manifest is not valid or a file is not as it says; or ``"not installed"``.
        installed: whether there is a copy without damage.
        download_bytes: of the publisher's files; None where unknown.
        size_bytes: of the installed files; None without a copy.
        num_transitions: rows of the copy, or that the publisher states; None where unknown.
        num_trajectories: trajectories, likewise.
        problem: why the copy is damaged or cannot be read; empty where it is not.
    """

    JSON = (
        "id state installed download_bytes bytes=size_bytes num_transitions num_trajectories "
        "problem|null?"
    )

    id: str
    state: str
    installed: bool
    download_bytes: int | None
    size_bytes: int | None
    num_transitions: int | None
    num_trajectories: int | None
    problem: str = ""


@dataclass(frozen=True)
class ListCall(ProgressOptions, RootOptions):
    """What ``list_datasets`` takes.

    Args:
        patterns: globs and words, such as ``"hopper-*"``; all datasets without any. A word finds
            every id that contains it.
        family: only this family.
        installed: only what is installed under the root.
        refresh: ask publishers for their newest catalogues first.
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


@takes_fields(ListCall)
def list_datasets(call: ListCall) -> list[DatasetRecord]:
    """Return a record of every known dataset, sorted by id; works offline.

    Raises:
        UsageError: there is no such family.
        NetworkError: with ``refresh``, a publisher does not answer.
    """
    config, family = call.chosen_config(), call.family
    place = CacheRoot(config.root)
    if family is not None and family not in families():
        raise UsageError(f"There is no family {family!r}. Known: {', '.join(families())}.")
    if call.refresh:
        _refresh_all(config, family, call.progress)
    copies = {id: condition_of(place.dataset(id), id) for id in place.installed()}
    known = all_entries(place)
    ids = sorted(copies if call.installed else known.keys() | copies.keys())
    ids = [id for id in ids if family in (None, id.partition("/")[0])]
    if globs := [_as_glob(pattern) for pattern in as_list(call.patterns)]:
        ids = match(globs, ids)
    return [DatasetRecord(**record_fields(id, known.get(id), copies.get(id))) for id in ids]


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


def record_fields(id: str, known: Known | None, condition: Condition | None) -> dict[str, Any]:
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
