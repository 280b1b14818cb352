"""A declaration: a table ``[data.NAME]`` of ``rlds.toml``, checked, and what it declares."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from datasets_cli.errors import UsageError
from datasets_cli.json_form import JsonForm
from datasets_cli.preprocessing.functions import split_function
from datasets_cli.store.content import canonical_json

OF_BOTH = ("batch_size", "num_slices", "slice_len", "seed")
OF_DATASETS = ("frame_stack", "replacement")
OF_MIXTURES = ("weights", "epoch", "accept")
DRAWS = (*OF_BOTH, *OF_DATASETS, *OF_MIXTURES)
"""Keys that are arguments of ``ExperienceReplay`` or ``Mixture``, by the same names."""

MAPPED = ("drop", "rename", "scale", "cast", "fill", "pad")
"""Arguments of ``Member`` that map columns."""

Views = tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class DeclaredDataset(JsonForm):
    """The data that a table ``[data.NAME]`` declares.

    Args:
        name: of the table.
        num_transitions: rows.
        num_trajectories: trajectories.
        identity: all that decides the batches, as JSON values: content of the datasets, digests of
            views and functions, weights, arguments of the draws.
    """

    JSON = "name digest num_transitions num_trajectories identity"

    name: str
    num_transitions: int
    num_trajectories: int
    identity: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """The sha256 of the identity, as 64 hexadecimal digits: equal where the batches are."""
        return hashlib.sha256(canonical_json(self.identity)).hexdigest()


@dataclass(frozen=True)
class Declaration:
    """The data of an experiment: one dataset, or several that are mixed."""

    name: str
    dataset: str | None
    members: Mapping[str, float | None]
    maps: Mapping[str, Mapping[str, Any]]
    views: Views
    transforms: tuple[str, ...]
    draws: Mapping[str, Any]


def declaration_of(name: str, table: Mapping[str, Any]) -> Declaration:
    """Return the declaration that a table is."""
    if unknown := [key for key in table if key not in KINDS]:
        raise UsageError(f"there is no key {', '.join(unknown)}; expected {', '.join(KINDS)}")
    for key, value in table.items():
        expected, holds = KINDS[key]
        if not holds(value):
            raise UsageError(f"{key} is {value!r}; expected {expected}")
    if ("dataset" in table) == ("members" in table):
        raise UsageError("expected either dataset, of one dataset, or members, of a mixture")
    what, others = "a dataset", {*OF_MIXTURES, "map"}
    if "members" in table:
        what, others = "a mixture", {*OF_DATASETS, "views"}
    if wrong := [key for key in table if key in others]:
        raise UsageError(
            f"{wrong[0]} is no key of {what}; expected some of {_keys_without(others)}"
        )
    if "num_slices" in table and "slice_len" in table:
        raise UsageError("slices are given by num_slices or by slice_len, not by both")
    members = table.get("members", {})
    if isinstance(members, dict) and "weights" in table:
        raise UsageError("members have their weights, and weights gives others")
    for member, arguments in table.get("map", {}).items():
        if member not in members:
            raise UsageError(f"map has {member}, which is no member")
        _check_map(member, arguments)
    for text in table.get("transforms", ()):
        split_function(text)
    return Declaration(
        name=name,
        dataset=table.get("dataset"),
        members=dict.fromkeys(members) if isinstance(members, list) else members,
        maps=table.get("map", {}),
        views=tuple(map(_view_of, table.get("views", ()))),
        transforms=tuple(table.get("transforms", ())),
        draws={key: table[key] for key in DRAWS if key in table},
    )


def _check_map(member: str, arguments: Mapping[str, Any]) -> None:
    """Refuse what cannot be arguments of ``Member``."""
    for name, value in arguments.items():
        if name not in MAPPED:
            raise UsageError(f"map.{member} has no {name}; expected {', '.join(MAPPED)}")
        expected, kind = ("a list", list) if name == "drop" else ("a table", dict)
        if not isinstance(value, kind):
            raise UsageError(f"map.{member}.{name} is {value!r}; expected {expected} of columns")
        if name in ("drop", "rename"):
            keys = value.values() if isinstance(value, dict) else value
            if wrong := [key for key in keys if not isinstance(key, str)]:
                raise UsageError(
                    f"map.{member}.{name} has {wrong[0]!r}; expected columns, such as 'next.reward'"
                )


def _keys_without(others: set[str]) -> str:
    return ", ".join(key for key in KINDS if key not in others)


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
    "replacement": _FLAG,
    "epoch": ('"all", "first" or "last"', lambda value: value in ("all", "first", "last")),
    "accept": ("a list of what members may differ in", _list_of(_is_text)),
    "map": (
        "tables of arguments of Member, by member",
        lambda value: (
            isinstance(value, dict) and all(isinstance(each, dict) for each in value.values())
        ),
    ),
    **dict.fromkeys(("batch_size", "num_slices", "slice_len", "frame_stack", "seed"), _WHOLE),
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
