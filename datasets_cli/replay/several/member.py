"""A member of a mixture, and how its columns are made those of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import Numbers, Rows
from datasets_cli.replay.buffers.buffer import ReplayBuffer
from datasets_cli.replay.nested_keys import NestedKey, key_of, keys_of
from datasets_cli.replay.several.agreement import ColumnForm
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.schema.bits import TYPE_NAMES, torch_dtype
from datasets_cli.schema.columns import Key, show_key
from datasets_cli.schema.texts import TEXT

Given = TypeVar("Given")
Checked = TypeVar("Checked")


@dataclass(frozen=True, eq=False)
class Member:
    """A member of a ``Mixture``, and how its columns are made those of the others.

    Columns are mapped in the order of these arguments; after ``rename`` the new keys count.

    Args:
        source: a buffer, or the storage of a dataset.
        name: in messages and in ``Mixture.members``; the id of its dataset by default.
        drop: columns, or groups of them, to leave out.
        rename: new keys by old ones, of columns or groups.
        scale: factors by key: one number, or one for each number of a row.
        cast: element types by key.
        fill: values by key for columns that it does not have; they are as in the other members.
        pad: sizes by key that the last dimension gets, by zeros after what is there.

    Raises:
        UsageError: ``drop`` is not a list of keys, or another argument does not go by key.
    """

    source: ReplayBuffer | Storage
    name: str | None = None
    drop: Iterable[NestedKey] = ()
    rename: Mapping[NestedKey, NestedKey] = field(default_factory=dict)
    scale: Mapping[NestedKey, Numbers] = field(default_factory=dict)
    cast: Mapping[NestedKey, torch.dtype | str] = field(default_factory=dict)
    fill: Mapping[NestedKey, Numbers] = field(default_factory=dict)
    pad: Mapping[NestedKey, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.drop, str) or not isinstance(self.drop, Iterable):
            raise UsageError(f"drop is a list of columns, such as ['info'], not {self.drop!r}.")
        for name in ("rename", "scale", "cast", "fill", "pad"):
            if not isinstance(value := getattr(self, name), Mapping):
                raise UsageError(f"{name} goes by column, {{'action': ...}}, and is not {value!r}.")


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
        return any(vars(self).values())

    def new_key(self, key: Key) -> Key | None:
        """Return the key that a column of the member gets; None where it is left out."""
        if any(key[: len(group)] == group for group in self.drop):
            return None
        for group, new in self.rename.items():
            if key[: len(group)] == group:
                return new + key[len(group) :]
        return key

    def apply(
        self, columns: Mapping[Key, Rows], num_rows: int, device: torch.device | None
    ) -> dict[Key, Rows]:
        """Return the columns ``[num_rows, ...]`` of some rows as the mixture has them."""
        mapped = {new: leaf for key, leaf in columns.items() if (new := self.new_key(key))}
        for key, factors in self.scale.items():
            mapped[key] = mapped[key] * factors.to(mapped[key])
        for key, name in self.cast.items():
            mapped[key] = mapped[key].to(torch_dtype(name))
        for key, row in self.fill.items():
            mapped[key] = row.to(device).expand(num_rows, *row.shape).clone()
        for key, size in self.pad.items():
            leaf = mapped[key]
            mapped[key] = leaf.new_zeros((*leaf.shape[:-1], size))
            mapped[key][..., : leaf.shape[-1]] = leaf
        return mapped

    def to_json(self) -> dict[str, object]:
        """Return what was declared as JSON has it."""
        by_key = {name: values for name, values in vars(self).items() if name != "drop"}
        return {
            "drop": [list(key) for key in self.drop],
            **{
                name: [[list(key), _plain(value)] for key, value in sorted(values.items())]
                for name, values in by_key.items()
            },
        }


def _plain(value: object) -> object:
    return value.tolist() if isinstance(value, torch.Tensor) else value


def column_map(
    member: Member, name: str, forms: Mapping[Key, ColumnForm], others: Mapping[Key, ColumnForm]
) -> ColumnMap:
    """Return what a user declares of a member's columns, checked against them and the others'."""
    moved = ColumnMap(
        tuple(keys_of(list(member.drop))),
        {key_of(key): key_of(new) for key, new in member.rename.items()},
    )
    for group in (*moved.drop, *moved.rename):
        if not any(key[: len(group)] == group for key in forms):
            raise _no_column(name, group, forms)
    known: dict[Key, ColumnForm] = {}
    for key, form in forms.items():
        if (new := moved.new_key(key)) is not None:
            if new in known:
                raise UsageError(f"{name}: rename gives two columns the key {show_key(new)}.")
            known[new] = form
    columns = _Columns(name, known, others)
    return ColumnMap(
        moved.drop,
        moved.rename,
        _checked(member.scale, columns.factors),
        _checked(member.cast, columns.type_name),
        _checked(member.fill, columns.filled),
        _checked(member.pad, columns.padded_size),
    )


def _checked(
    values: Mapping[NestedKey, Given], check: Callable[[Key, Given], Checked]
) -> dict[Key, Checked]:
    return {key: check(key, value) for key, value in ((key_of(k), v) for k, v in values.items())}


@dataclass(frozen=True)
class _Columns:
    """The columns of a member after ``rename``, which the values that a user gives must fit."""

    name: str
    known: Mapping[Key, ColumnForm]
    others: Mapping[Key, ColumnForm]

    def factors(self, key: Key, value: Numbers) -> torch.Tensor:
        """Return the factors of a column, as float64 numbers."""
        form = self._numbers(key, self.known)
        if not form.dtype.startswith(("float", "bfloat", "complex")):
            raise UsageError(
                f"{self.name}: {show_key(key)} is {form}, which a factor would round. Cast a "
                "column of whole numbers in preprocess() before it is scaled."
            )
        factors = torch.as_tensor(value, dtype=torch.float64)
        try:
            factors.expand(form.shape)
        except RuntimeError as error:
            raise UsageError(
                f"{self.name}: {show_key(key)} is {form}; factors {list(factors.shape)} do not fit "
                "it."
            ) from error
        return factors

    def type_name(self, key: Key, value: torch.dtype | str) -> str:
        """Return the name of the element type that a column gets."""
        self._numbers(key, self.known)
        name = TYPE_NAMES.get(value, "") if isinstance(value, torch.dtype) else str(value)
        torch_dtype(name)  # refuses what is none
        return name

    def filled(self, key: Key, value: Numbers) -> torch.Tensor:
        """Return a row of a column that the member does not have, like that of another one."""
        if key in self.known:
            raise UsageError(f"{self.name} has {show_key(key)}, so that there is nothing to fill.")
        if key not in self.others:
            raise UsageError(
                f"{self.name}: no other member has {show_key(key)} either, which would say what it "
                f"is like. They have: {', '.join(map(show_key, self.others))}"
            )
        form = self._numbers(key, self.others)
        row: torch.Tensor = torch.as_tensor(value, dtype=torch_dtype(form.dtype))
        try:
            return row.expand(form.shape).clone()
        except RuntimeError as error:
            raise UsageError(
                f"{self.name}: {show_key(key)} is {form} in another member; a row "
                f"{list(row.shape)} does not fit it."
            ) from error

    def padded_size(self, key: Key, size: int) -> int:
        """Return the size that the last dimension of a column gets."""
        form = self._numbers(key, self.known)
        if not form.shape or type(size) is not int or size < form.shape[-1]:
            raise UsageError(
                f"{self.name}: {show_key(key)} is {form}; it cannot be padded to {size!r}. Give "
                "the size of its last dimension, at least the one it has."
            )
        return size

    def _numbers(self, key: Key, columns: Mapping[Key, ColumnForm]) -> ColumnForm:
        """Return the form of a column of numbers."""
        if key not in columns:
            raise _no_column(self.name, key, columns)
        if columns[key].dtype == TEXT:
            raise UsageError(
                f"{self.name}: {show_key(key)} is text; only a column of numbers is mapped so."
            )
        return columns[key]


def _no_column(name: str, key: Key, known: Iterable[Key]) -> UsageError:
    return UsageError(
        f"{name} has no column {show_key(key)}. It has: {', '.join(map(show_key, known))}"
    )
