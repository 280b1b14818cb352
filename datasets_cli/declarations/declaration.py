"""A declaration: the data of an experiment, as a table ``[data.NAME]`` of ``rlds.toml`` has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from datasets_cli.errors import UsageError
from datasets_cli.preprocessing.functions import split_function

DRAWS = ("batch_size", "num_slices", "slice_len", "frame_stack", "replacement", "seed")
"""Keys that are arguments of ``ExperienceReplay``, by the same names."""

Views = tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Declaration:
    """The data of an experiment: one dataset, or several that are mixed.

    Args:
        name: ``NAME`` of ``[data.NAME]``.
        dataset: an id, or the file of a view; None where there are members.
        members: names of other declarations, or ids, each with its weight; empty of one dataset.
        weights: ``"rows"`` or ``"trajectories"`` where members are given without weights.
        views: what is chosen, one after the other, such as ``{"take": 0.1, "by": "return"}``.
        transforms: functions ``module:function`` of batches, one after the other.
        epoch: of a mixture without replacement; see ``Mixture``.
        draws: arguments of how batches are drawn, by name.
    """

    name: str
    dataset: str | None
    members: Mapping[str, float]
    weights: str | None
    views: Views
    transforms: tuple[str, ...]
    epoch: str | None
    draws: Mapping[str, Any]


def declaration_of(name: str, table: Mapping[str, Any]) -> Declaration:
    """Return the declaration that a table is.

    Args:
        name: of the table.
        table: its keys and values.

    Raises:
        UsageError: a key is unknown or missing, or a value is of another kind.
    """
    if unknown := [key for key in table if key not in KINDS]:
        raise UsageError(f"there is no key {', '.join(unknown)}; expected {', '.join(KINDS)}")
    for key, value in table.items():
        expected, holds = KINDS[key]
        if not holds(value):
            raise UsageError(f"{key} is {value!r}; expected {expected}")
    if ("dataset" in table) == ("members" in table):
        raise UsageError("expected either dataset, of one dataset, or members, of a mixture")
    members = table.get("members", {})
    if "members" in table and (isinstance(members, list) != ("weights" in table)):
        raise UsageError(
            "expected members with their weights, { a = 0.7, b = 0.3 }, or a list of them and "
            'weights = "rows" or "trajectories"'
        )
    only = [key for key in ("weights", "epoch") if key in table and "dataset" in table]
    only += [key for key in ("views", "frame_stack") if key in table and "members" in table]
    if only:
        where = "a mixture" if "dataset" in table else "one dataset: declare that as a member"
        raise UsageError(f"{only[0]} is of {where}")
    for text in table.get("transforms", ()):
        split_function(text)
    return Declaration(
        name=name,
        dataset=table.get("dataset"),
        members=dict.fromkeys(members, 1.0) if isinstance(members, list) else members,
        weights=table.get("weights"),
        views=tuple(map(_view_of, table.get("views", ()))),
        transforms=tuple(table.get("transforms", ())),
        epoch=table.get("epoch"),
        draws={key: table[key] for key in DRAWS if key in table},
    )


def _view_of(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a step of ``views`` that has what it needs."""
    kinds = [key for key in table if key in VIEW_KINDS]
    if len(kinds) != 1:
        raise UsageError(f"views has {table!r}; expected one of {', '.join(VIEW_KINDS)}")
    beside = {"split": {"seed", "part"}, "take": {"by", "smallest"}}.get(kinds[0], set())
    if unknown := [key for key in table if key not in {kinds[0], *beside}]:
        raise UsageError(f"views has {table!r}, and {kinds[0]} has no {unknown[0]}")
    for key, value in table.items():
        expected, holds = VIEW_KINDS[key] if key in VIEW_KINDS else BESIDE_KINDS[key]
        if not holds(value):
            raise UsageError(f"views has {key} = {value!r}; expected {expected}")
    return table


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _list_of(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and bool(value) and all(map(holds, value))


def _are_members(value: Any) -> bool:
    if isinstance(value, dict):
        return bool(value) and all(_is_number(weight) and weight > 0 for weight in value.values())
    return _list_of(_is_text)(value) and len(set(value)) == len(value)


Kind = tuple[str, Callable[[Any], bool]]
"""What is expected, for messages, and whether a value is such a thing."""

_WHOLE: Kind = ("a whole number from 0 on", _is_whole)
_FLAG: Kind = ("true or false", lambda value: isinstance(value, bool))

KINDS: dict[str, Kind] = {
    "dataset": ("an id, or the file of a view", _is_text),
    "members": ("names with weights above 0, or a list of names", _are_members),
    "weights": ('"rows" or "trajectories"', lambda value: value in ("rows", "trajectories")),
    "views": ("a list of tables", _list_of(lambda value: isinstance(value, dict))),
    "transforms": ('a list of functions, such as "mycode:scale"', _list_of(_is_text)),
    "epoch": ('"all", "first" or "last"', lambda value: value in ("all", "first", "last")),
    **{key: _FLAG if key == "replacement" else _WHOLE for key in DRAWS},
}
"""The keys of a declaration."""

VIEW_KINDS: dict[str, Kind] = {
    "episodes_at": ("a list of whole numbers", _list_of(_is_whole)),
    "filter": ("a condition, such as 'return > 300'", _is_text),
    "split": ("a list of fractions", _list_of(_is_number)),
    "take": ("a number", _is_number),
    "drop_duplicates": ("true, or a list of leaves", lambda v: v is True or _list_of(_is_text)(v)),
    "rows": ("two whole numbers", lambda value: _list_of(_is_whole)(value) and len(value) == 2),
}
"""What chooses trajectories, by the methods of ``ExperienceReplay``."""

BESIDE_KINDS: dict[str, Kind] = {
    "seed": _WHOLE,
    "part": _WHOLE,
    "by": ("a column of the table of trajectories", _is_text),
    "smallest": _FLAG,
}
