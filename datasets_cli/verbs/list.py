"""Listing datasets: a record of each, without opening any data."""

from __future__ import annotations

import logging
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from datasets_cli.audit.report import gravest
from datasets_cli.catalogue.entries import all_entries, families, recipes
from datasets_cli.catalogue.entries import refresh as refresh_entries
from datasets_cli.catalogue.names import KnownIds, as_list, is_glob, match, select_known
from datasets_cli.config import Config, RootOptions
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.options import check_choice, check_numbers, takes_fields
from datasets_cli.core.progress import Note, Progress, ProgressOptions
from datasets_cli.core.progress_display import displayed
from datasets_cli.core.quantities import counted
from datasets_cli.errors import UsageError, wrong_value
from datasets_cli.install.find import Condition, condition_of
from datasets_cli.recipe import CatalogueEntry, Recipe
from datasets_cli.store.cache_root import CacheRoot

logger = logging.getLogger(__name__)

Known = tuple[Recipe, CatalogueEntry]
"""The catalogue entry of a dataset."""


@dataclass(frozen=True)
class DatasetRecord(JsonForm):
    """The record of a dataset in a list.

    Args:
        id: the full id.
        state: ``"installed"``; ``"unchecked"``: the publisher states no checksum for some file;
            ``"unverified"``: files may differ from the publisher's; ``"newer"``: written by a
            newer version of this program; ``"damaged"``: the manifest is invalid or a file
            differs from it; or ``"not installed"``.
        installed: whether an undamaged copy is installed.
        download_bytes: the size of the publisher's files, or None if unknown.
        size_bytes: the size of the installed files, or None.
        num_transitions: the number of transitions, installed or stated by the publisher, or None.
        num_trajectories: the number of trajectories, likewise.
        problem: the reason why the copy is damaged or cannot be read, or empty.
        splits: the numbers of trajectories and transitions of each split of an installed dataset;
            empty if the publisher has none.
        audit: the most severe finding of the audit: ``"wrong"``, ``"suspicious"``,
            ``"note"`` or ``"clean"``; None without an audit.
    """

    JSON = (
        "id state installed download_bytes bytes=size_bytes num_transitions num_trajectories "
        "problem|null? splits|null? audit?"
    )

    id: str
    state: str
    installed: bool
    download_bytes: int | None
    size_bytes: int | None
    num_transitions: int | None
    num_trajectories: int | None
    problem: str = ""
    splits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    audit: str | None = None


WEIGHTS = {"id": 8, "title": 4, "environment": 4, "tag": 3, "licence": 2, "note": 1}
"""The weight of a word by its place; twice as much where a word of the text begins with it."""

PLACES = {
    **dict.fromkeys(("env", "env_id", "env_spec"), "environment"),
    **dict.fromkeys(("about", "openml_name"), "title"),
    **dict.fromkeys(("tags", "algorithm", "algorithm_name", "author", "rl_unplugged"), "tag"),
    "licence": "licence",
}
"""The ranks of the fields in a search; any other text is a note."""

Value = str | int | None

FIELDS: dict[str, Callable[[DatasetRecord], Value]] = {
    "id": lambda record: record.id,
    "family": lambda record: record.id.partition("/")[0],
    "state": lambda record: record.state,
    "audit": lambda record: record.audit or "-",
    "size": lambda record: record.size_bytes or record.download_bytes,
    "download": lambda record: record.download_bytes,
    "disk": lambda record: record.size_bytes,
    "transitions": lambda record: record.num_transitions,
    "trajectories": lambda record: record.num_trajectories,
}
"""What lists are filtered and ordered by; ``size`` is on the disk, or else to download."""

OF_TEXT: dict[str, Callable[..., bool]] = {
    **{"=": operator.eq, "!=": operator.ne, "~": operator.contains}
}
OF_NUMBERS: dict[str, Callable[..., bool]] = {
    **{"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt},
    **{"=": operator.eq, "!=": operator.ne},
}
STATES = ("installed", "unchecked", "unverified", "newer", "damaged", "not installed")
TEXTS = ("id", "family", "state", "audit")
UNITS = {"": 1, "b": 1} | {
    f"{prefix}{ending}": base**power
    for power, prefix in enumerate("kmgt", 1)
    for ending, base in (("", 1000), ("b", 1000), ("ib", 1024))
}
_FILTER = re.compile(r"\s*(\w+)\s*([<>]=?|!=|==?|~)\s*(\S.*?)\s*")
_NUMBER = re.compile(r"(\d[\d_,]*(?:\.\d+)?)\s*([a-zA-Z]*)")


def all_datasets(
    root: CacheRoot, family: str | None
) -> dict[str, tuple[Known | None, Condition | None]]:
    """Return the catalogue entry and the condition of every dataset of a family, or of all."""
    ids = [id for id in root.installed() if family in (None, id.partition("/")[0])]
    copies = {id: condition_of(root.dataset(id), id) for id in ids}
    known = all_entries(root, family)
    return {id: (known.get(id), copies.get(id)) for id in sorted(known.keys() | copies.keys())}


def filtered(records: Sequence[DatasetRecord], filters: Iterable[str]) -> list[DatasetRecord]:
    """Return the records that match all filters."""
    left = [*records]
    for text in filters:
        field, holds = _filter(text)
        value_of = FIELDS[field]
        known = [record for record in left if value_of(record) is not None]
        if num_unknown := len(left) - len(known):
            logger.warning("%s is not known of %s.", field, counted(num_unknown, "dataset"))
        left = [record for record in known if holds(value_of(record))]
    return left


def in_order(records: list[DatasetRecord], sort: str | None) -> list[DatasetRecord]:
    """Return records sorted by a field; those whose value is not known come last."""
    if sort is None:
        return records
    field = sort.removeprefix("-")
    check_choice("sort", field, FIELDS)
    value_of: Callable[[DatasetRecord], Any] = FIELDS[field]
    known = [record for record in records if value_of(record) is not None]
    unknown = [record for record in records if value_of(record) is None]
    return sorted(known, key=value_of, reverse=sort.startswith("-")) + unknown


def _filter(text: str) -> tuple[str, Callable[[Value], bool]]:
    """Return the field of a filter, and whether the filter takes a value."""
    parts = _FILTER.fullmatch(text)
    field, sign, typed = parts.groups() if parts else ("", "", "")
    signs = OF_TEXT if field in TEXTS else OF_NUMBERS
    number = None if field in TEXTS else _NUMBER.fullmatch(typed)
    is_known = field in TEXTS or (number and number[2].lower() in UNITS)
    sign = "=" if sign == "==" else sign
    typed = "not installed" if field == "state" and typed == "-" else typed
    if field not in FIELDS or sign not in signs or not is_known:
        wrong = f": unknown value {typed!r}" if sign in signs else f": unknown operator {sign}"
        wrong = wrong if field in FIELDS else f": unknown field {field!r}" * bool(parts)
        raise UsageError(
            f"Filter {text!r} is not FIELD OPERATOR VALUE{wrong}. Fields of text are "
            f"{', '.join(TEXTS)}, with {' '.join(OF_TEXT)}, such as 'id~hopper'; fields of numbers "
            f"are {', '.join(name for name in FIELDS if name not in TEXTS)}, with "
            f"{' '.join(OF_NUMBERS)}, such as 'size>1GB' or 'transitions<=10k'.",
            argument="filter",
            expected="FIELD OPERATOR VALUE",
            found=text,
        )
    if field == "state" and sign != "~" and typed.casefold() not in STATES:
        raise wrong_value("filter", [*STATES], typed)
    if number is None:
        return field, lambda value: signs[sign](str(value).casefold(), typed.casefold())
    limit = float(re.sub("[_,]", "", number[1])) * UNITS[number[2].lower()]
    return field, lambda value: signs[sign](value, limit)


def record_fields(
    id: str, known: Known | None, condition: Condition | None, root: CacheRoot
) -> dict[str, Any]:
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
        "splits": copy.splits if copy else {},
        "audit": gravest(root, copy.content) if copy else None,
    }


@dataclass(frozen=True)
class ListCall(ProgressOptions, RootOptions):
    """The arguments of ``list_datasets``.

    Args:
        patterns: globs or words, such as ``"hopper-*"``; all datasets by default. A word matches
            every id that contains it.
        family: list only datasets of this family.
        installed: list only installed datasets.
        refresh: fetch the newest catalogues from the publishers first.
        search: list only datasets that contain all these words, in any order and case, in their
            id, title, environments, tags, licence or notes; the best matches come first.
        filter: list only datasets that match, such as ``"size>1GB"`` or ``"state=installed"``;
            several filters must all match. An unknown value never matches.
        sort: the field to sort by, ascending; ``"-size"`` sorts descending. Unknown values come
            last.
        n: the maximum number of datasets.
    """

    patterns: str | Iterable[str] = field(
        default=(),
        metadata={
            "argument": True,
            "metavar": "GLOB",
            "complete": "known_ids",
            "help": "Globs or words that select datasets, e.g. 'hopper-*'.",
        },
    )
    _: KW_ONLY
    family: str | None = field(
        default=None,
        metadata={
            "metavar": "NAME",
            "complete": "family_names",
            "help": "List only datasets of this family.",
        },
    )
    installed: bool = field(default=False, metadata={"help": "List only installed datasets."})
    refresh: bool = field(
        default=False, metadata={"help": "Fetch the newest catalogues from the publishers first."}
    )
    search: str | None = field(
        default=None,
        metadata={
            "metavar": "TEXT",
            "help": (
                "List only datasets that contain all these words in their id, title, "
                "environments, tags, licence or notes."
            ),
        },
    )
    filter: str | Iterable[str] = field(
        default=(),
        metadata={
            "metavar": "CONDITION",
            "help": (
                "List only datasets that match, e.g. 'size>1GB' or state=installed; may be "
                "repeated."
            ),
        },
    )
    sort: str | None = field(
        default=None,
        metadata={
            "metavar": "FIELD",
            "help": "Sort by this field, ascending; -FIELD sorts descending.",
        },
    )
    n: int | None = field(
        default=None,
        metadata={"least": 1, "flag": ("-n", "--num"), "help": "List at most N datasets."},
    )

    def __post_init__(self) -> None:
        check_numbers(self)


@takes_fields(ListCall)
def list_datasets(call: ListCall) -> list[DatasetRecord]:
    """Return a record of every known dataset, sorted by id; works offline.

    Raises:
        UsageError: a family or field is unknown, a search is empty, or a filter is not
            FIELD OPERATOR VALUE.
        NetworkError: with ``refresh``, a publisher does not respond.
    """
    config, family = call.chosen_config(), call.family
    if family is not None:
        check_choice("family", family, families())
    if call.refresh:
        _refresh_all(config, family, call.progress)
    root = CacheRoot(config.root)
    known = all_datasets(root, family)
    ids = [id for id in known if known[id][1] or not call.installed]
    if globs := [_as_glob(pattern) for pattern in as_list(call.patterns)]:
        ids = match(globs, ids)
    if call.search is not None:
        ids = _found(call.search, {id: known[id] for id in ids})
    records = [DatasetRecord(**record_fields(id, *known[id], root)) for id in ids]
    return in_order(filtered(records, as_list(call.filter)), call.sort)[: call.n]


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
    with displayed(progress) as display:
        for recipe in recipes(family):
            if recipe.dynamic:
                count = refresh_entries(recipe, CacheRoot(config.root), http)
                display(Note(f"{recipe.family}: {count} datasets"))


def _found(text: str, known: Mapping[str, tuple[Known | None, Condition | None]]) -> list[str]:
    """Return the ids of datasets that contain all words of a text, the best matches first."""
    words = text.casefold().split()
    if not words:
        raise UsageError("A search needs a word, such as hopper.", argument="search", found=text)
    scores = {}
    for id, about in known.items():
        texts = [*_texts(id, *about)]
        best = [_best(word, texts) for word in words]
        scores[id] = sum(best) if all(best) else 0
    return sorted((id for id in known if scores[id]), key=lambda id: (-scores[id], id))


def _best(word: str, texts: Iterable[tuple[str, str]]) -> int:
    """Return the weight of a word at its best place; 0 where it is in none of the texts."""
    begins = re.compile(rf"(?<![^\W_]){re.escape(word)}")
    scores = (
        WEIGHTS[place] * (2 if begins.search(text) else 1) for place, text in texts if word in text
    )
    return max(scores, default=0)


def _texts(id: str, known: Known | None, condition: Condition | None) -> Iterator[tuple[str, str]]:
    """Yield the lower-case texts about a dataset, each after its rank."""
    yield "id", id.casefold()
    sources: list[Mapping[str, Any]] = []
    if known:
        recipe, entry = known
        yield "title", recipe.title.casefold()
        sources += [{"licence": recipe.licence, "citation": recipe.citation}, entry.details]
    if manifest := condition and condition.manifest:
        sources += [manifest.metadata, manifest.recipe]
    for facts in sources:
        for name, value in facts.items():
            if value not in (None, ""):
                yield PLACES.get(name, "note"), str(value).casefold()


def _as_glob(pattern: str) -> str:
    """A plain word finds every id that contains it."""
    return pattern if is_glob(pattern) else f"*{pattern}*"
