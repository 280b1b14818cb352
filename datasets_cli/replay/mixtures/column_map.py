"""How the columns of a member are made those of a mixture, as a user declares it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import NestedKey, key_of, keys_of
from datasets_cli.replay.mixtures.forms import ColumnForm
from datasets_cli.schema.bits import TYPE_NAMES, torch_dtype
from datasets_cli.schema.columns import Key, show_key
from datasets_cli.schema.texts import TEXT

Leaves = dict[Key, Any]
"""The columns of some rows by key, each ``[B, ...]``."""


@dataclass(frozen=True, eq=False)
class ColumnMap:
    """What is done with the columns of a member, in this order."""

    drop: tuple[Key, ...] = ()
    rename: Mapping[Key, Key] = field(default_factory=dict)
    scale: Mapping[Key, torch.Tensor] = field(default_factory=dict)
    cast: Mapping[Key, str] = field(default_factory=dict)
    fill: Mapping[Key, torch.Tensor] = field(default_factory=dict)
    pad: Mapping[Key, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any((self.drop, self.rename, self.scale, self.cast, self.fill, self.pad))

    def new_key(self, key: Key) -> Key | None:
        """Return the key that a column of the member gets; None where it is left out."""
        if any(key[: len(group)] == group for group in self.drop):
            return None
        for group, new in self.rename.items():
            if key[: len(group)] == group:
                return new + key[len(group) :]
        return key

    def apply(
        self, leaves: Mapping[Key, Any], num_rows: int, device: torch.device | None
    ) -> Leaves:
        """Return the columns of some rows as the mixture has them."""
        # leaves: what the member has, each `[B, ...]`.
        found = {new: leaf for key, leaf in leaves.items() if (new := self.new_key(key))}
        for key, factors in self.scale.items():
            found[key] = found[key] * factors.to(found[key])
        for key, name in self.cast.items():
            found[key] = found[key].to(torch_dtype(name))
        for key, row in self.fill.items():
            found[key] = row.to(device).expand(num_rows, *row.shape).clone()
        for key, size in self.pad.items():
            leaf = found[key]
            padded = leaf.new_zeros((*leaf.shape[:-1], size))
            padded[..., : leaf.shape[-1]] = leaf
            found[key] = padded
        return found

    def to_json(self) -> dict[str, Any]:
        """Return what was declared as JSON has it."""

        def shown(values: Mapping[Key, Any]) -> list[list[Any]]:
            return [[list(key), _plain(value)] for key, value in sorted(values.items())]

        return {
            "drop": [list(key) for key in self.drop],
            **{
                name: shown(getattr(self, name))
                for name in ("rename", "scale", "cast", "fill", "pad")
            },
        }


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, torch.Tensor) else value


def column_map(
    forms: Mapping[Key, ColumnForm],
    others: Mapping[Key, ColumnForm],
    name: str,
    *,
    drop: Iterable[NestedKey] = (),
    rename: Mapping[NestedKey, NestedKey] | None = None,
    scale: Mapping[NestedKey, Any] | None = None,
    cast: Mapping[NestedKey, Any] | None = None,
    fill: Mapping[NestedKey, Any] | None = None,
    pad: Mapping[NestedKey, int] | None = None,
) -> ColumnMap:
    """Return what a user declares of a member's columns, checked against them."""
    found = ColumnMap(
        drop=tuple(keys_of(list(drop))),
        rename={key_of(key): key_of(new) for key, new in (rename or {}).items()},
    )
    for group in (*found.drop, *found.rename):
        if not any(key[: len(group)] == group for key in forms):
            raise _no_column(name, group, forms)
    known: dict[Key, ColumnForm] = {}
    for key, form in forms.items():
        if (new := found.new_key(key)) is not None:
            if new in known:
                raise UsageError(f"{name}: rename gives two columns the key {show_key(new)}.")
            known[new] = form
    mapped = ColumnMap(
        found.drop,
        found.rename,
        {key: _factors(name, key, value, known) for key, value in _by_key(scale)},
        {key: _type_name(name, key, value, known) for key, value in _by_key(cast)},
        {key: _filled(name, key, value, known, others) for key, value in _by_key(fill)},
        {key_of(key): size for key, size in (pad or {}).items()},
    )
    for key, size in mapped.pad.items():
        _check_pad(name, key, size, known)
    return mapped


def _check_pad(name: str, key: Key, size: int, known: Mapping[Key, ColumnForm]) -> None:
    form = _numbers(name, key, known)
    if not form.shape or type(size) is not int or size < form.shape[-1]:
        raise UsageError(
            f"{name}: {show_key(key)} is {form}; it cannot be padded to {size!r}. Give the size of "
            "its last dimension, at least the one it has."
        )


def _by_key(values: Mapping[NestedKey, Any] | None) -> list[tuple[Key, Any]]:
    return [(key_of(key), value) for key, value in (values or {}).items()]


def _factors(name: str, key: Key, value: Any, known: Mapping[Key, ColumnForm]) -> torch.Tensor:
    form = _numbers(name, key, known)
    if not form.dtype.startswith(("float", "bfloat", "complex")):
        raise UsageError(
            f"{name}: {show_key(key)} is {form}, which a factor would round. Cast a column of "
            "whole numbers in preprocess() before it is scaled."
        )
    factors = torch.as_tensor(value, dtype=torch.float64)
    try:
        factors.expand(form.shape)
    except RuntimeError as error:
        raise UsageError(
            f"{name}: {show_key(key)} is {form}; factors {list(factors.shape)} do not fit it."
        ) from error
    return factors


def _type_name(name: str, key: Key, value: Any, known: Mapping[Key, ColumnForm]) -> str:
    _numbers(name, key, known)
    found = TYPE_NAMES.get(value, "") if isinstance(value, torch.dtype) else str(value)
    torch_dtype(found)  # refuses what is none
    return found


def _filled(
    name: str,
    key: Key,
    value: Any,
    known: Mapping[Key, ColumnForm],
    others: Mapping[Key, ColumnForm],
) -> torch.Tensor:
    """Return a row of a column that a member does not have, like that of another member."""
    if key in known:
        raise UsageError(f"{name} has {show_key(key)}, so that there is nothing to fill.")
    if key not in others:
        raise UsageError(
            f"{name}: no other member has {show_key(key)} either, which would say what it is like. "
            f"They have: {', '.join(map(show_key, others))}"
        )
    form = _numbers(name, key, others)
    row: torch.Tensor = torch.as_tensor(value, dtype=torch_dtype(form.dtype))
    try:
        return row.expand(form.shape).clone()
    except RuntimeError as error:
        raise UsageError(
            f"{name}: {show_key(key)} is {form} in another member; a row {list(row.shape)} does "
            "not fit it."
        ) from error


def _numbers(name: str, key: Key, known: Mapping[Key, ColumnForm]) -> ColumnForm:
    """Return the form of a column of numbers."""
    if key not in known:
        raise _no_column(name, key, known)
    if known[key].dtype == TEXT:
        raise UsageError(f"{name}: {show_key(key)} is text; only a column of numbers is mapped so.")
    return known[key]


def _no_column(name: str, key: Key, known: Iterable[Key]) -> UsageError:
    return UsageError(
        f"{name} has no column {show_key(key)}. It has: {', '.join(map(show_key, known))}"
    )
