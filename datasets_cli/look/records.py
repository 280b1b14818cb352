"""Records of datasets, a line of a list each: what they have, filters and orders of them."""

from __future__ import annotations

import logging
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from datasets_cli.audit.report import gravest
from datasets_cli.catalogue.entries import all_entries
from datasets_cli.errors import UsageError
from datasets_cli.install.installed import Condition, condition_of
from datasets_cli.json_form import JsonForm
from datasets_cli.options import check_choice
from datasets_cli.quantities import counted
from datasets_cli.recipe import CatalogueEntry, Recipe
from datasets_cli.store.cache_root import CacheRoot

logger = logging.getLogger(__name__)

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
        audit: the gravest that the audit found in its rows: ``"wrong"``, ``"suspicious"``,
            ``"note"`` or ``"clean"``; None where it was not audited.
    """

    JSON = (
        "id state installed download_bytes bytes=size_bytes num_transitions num_trajectories "
        "problem|null? audit?"
    )

    id: str
    state: str
    installed: bool
    download_bytes: int | None
    size_bytes: int | None
    num_transitions: int | None
    num_trajectories: int | None
    problem: str = ""
    audit: str | None = None


Value = str | int | None

FIELDS: dict[str, Callable[[DatasetRecord], Value]] = {
    "id": lambda record: record.id,
    "family": lambda record: record.id.partition("/")[0],
    "state": lambda record: record.state,
    "audit": lambda record: record.audit or "-",
    "size": lambda record: record.size_bytes or record.download_bytes,
    "download": lambda record: record.download_bytes,
    "disk": lambda record: record.size_bytes,
    "steps": lambda record: record.num_transitions,
    "episodes": lambda record: record.num_trajectories,
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


def all_datasets(root: CacheRoot) -> dict[str, tuple[Known | None, Condition | None]]:
    """Return what is known of every dataset, in the order of ids, and how its copy is."""
    copies = {id: condition_of(root.dataset(id), id) for id in root.installed()}
    known = all_entries(root)
    return {id: (known.get(id), copies.get(id)) for id in sorted(known.keys() | copies.keys())}


def filtered(records: Sequence[DatasetRecord], filters: Iterable[str]) -> list[DatasetRecord]:
    """Return the records that all filters are true of, and tell what is not known."""
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
    """Return records by a field, numbers the largest first; what is not known comes last."""
    if sort is None:
        return records
    field = sort.removeprefix("-")
    check_choice("sort", field, FIELDS)
    value_of: Callable[[DatasetRecord], Any] = FIELDS[field]
    known = [record for record in records if value_of(record) is not None]
    is_reversed = (field not in TEXTS) != sort.startswith("-")
    unknown = [record for record in records if value_of(record) is None]
    return sorted(known, key=value_of, reverse=is_reversed) + unknown


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
        wrong = f"the value {typed!r}" if sign in signs else f"the operator {sign}"
        wrong = wrong if field in FIELDS else f"the field {field!r}" if parts else "no such form"
        raise UsageError(
            f"Filter {text!r} cannot be read: it has {wrong}. "
            "Expected a field, an operator and a value: "
            f"{', '.join(TEXTS)} with {' '.join(OF_TEXT)} and text, such as 'id~hopper'; "
            f"{', '.join(name for name in FIELDS if name not in TEXTS)} with "
            f"{' '.join(OF_NUMBERS)} and a number, such as 'size>1GB' or 'steps<=10k'."
        )
    if field == "state" and sign != "~" and typed.casefold() not in STATES:
        raise UsageError(f"There is no state {typed!r}. Expected: {', '.join(STATES)}.")
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
        "audit": gravest(root, copy.content) if copy else None,
    }
