"""The columns of members: their forms, their comparison, and how a ``Member`` maps them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import torch
from tensordict import TensorDict, is_leaf_nontensor, is_tensor_collection

from datasets_cli.errors import (
    EmptyBuffer,
    UnknownKey,
    UsageError,
    WrongRows,
    WrongSize,
    by_reader,
    wrong_value,
)
from datasets_cli.replay.arguments import NestedKey, Numbers, Rows, key_of, keys_of
from datasets_cli.replay.buffer.buffer import ReplayBuffer
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.schema.bits import TYPE_NAMES, torch_dtype
from datasets_cli.schema.columns import Key, show_key, wrong_column
from datasets_cli.schema.texts import TEXT
from datasets_cli.schema.tree import leaves_in

MAX_TABLE_LINES = 30


class ColumnForm(NamedTuple):
    """The dtype and shape of a column, for one row."""

    dtype: str
    shape: tuple[int, ...]

    @classmethod
    def of(cls, leaf: Rows) -> ColumnForm:
        """Return the form of a leaf ``[n, ...]``; a leaf that is not a tensor counts as text."""
        dtype = TEXT
        if isinstance(leaf, torch.Tensor):
            dtype = TYPE_NAMES.get(leaf.dtype, str(leaf.dtype).removeprefix("torch."))
        return cls(dtype, tuple(leaf.shape[1:]))

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


def first_row(storage: Storage, name: str) -> dict[Key, Rows]:
    """Return the leaves ``[1, ...]`` of the first row of a member."""
    if not len(storage):
        raise EmptyBuffer(
            f"{name} has no rows, so its columns are unknown.",
            argument="members",
            advice="Write rows first.",
        )
    if not storage.is_tensordict or storage.row_batch_size:
        size = storage.row_batch_size
        found = f"TensorDicts {list(size)}" if storage.is_tensordict else "not TensorDicts"
        raise WrongRows(
            f"{name}: rows of this {type(storage).__name__} are {found}; members of a mixture have "
            "TensorDicts [] of columns.",
            argument="members",
            expected="TensorDicts []",
            found=found,
            advice="Pass a dataset, or a buffer of TensorDicts.",
        )
    return dict(leaves_in(storage.gather(torch.arange(1))))


def check_columns(members: Sequence[Mapping[Key, Rows]], names: Sequence[str]) -> None:
    """Check that the first rows of all members of a mixture have the same columns."""
    first, *others = members
    if odd := sorted({key for other in others for key in different_keys(first, other)}):
        raise WrongRows(
            "The members of the mixture have different columns:\n"
            f"{difference_table(odd, names, members)}\n ",
            argument="members",
            key=odd[0],
            found=[show_key(key) for key in odd],
            advice=by_reader(
                "Give all of them the same columns first, such as: rlds preprocess ID --rename "
                "OLD=NEW --exclude KEY --cast KEY=TYPE --name NAME",
                "Map the columns: Member(buffer, rename={old: new}, drop=[key], "
                "cast={key: dtype}, fill={key: value}, pad={key: size}).",
            ),
        )


Value = TypeVar("Value")
Checked = TypeVar("Checked")


@dataclass(frozen=True, eq=False)
class Member:
    """A member of a ``Mixture``, with a mapping of its columns.

    Columns are mapped in the order of these arguments; after ``rename`` the new keys count.

    Args:
        source: a buffer, or the storage of a dataset.
        name: the name in messages and in ``Mixture.members``; the id of its dataset by default.
        drop: keys of columns or groups to drop.
        rename: new keys by old keys, of columns or groups.
        scale: factors by key: one number, or one for each number of a row.
        cast: dtypes by key.
        fill: values by key, for missing columns; dtype and shape are read from other members.
        pad: new sizes of the last dimension by key; zeros are appended.

    Raises:
        UsageError: ``drop`` is not a list of keys, or another argument is not a dict by key.
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
            raise wrong_value("drop", "a list of keys, such as ['info']", self.drop)
        for name in ("rename", "scale", "cast", "fill", "pad"):
            if not isinstance(value := getattr(self, name), Mapping):
                raise wrong_value(name, "a dict by key, {'action': ...}", value)


@dataclass(frozen=True, eq=False)
class ColumnMap:
    """The checked mapping of a member's columns, applied in this order."""

    drop: tuple[Key, ...] = ()
    rename: Mapping[Key, Key] = field(default_factory=dict)
    scale: Mapping[Key, torch.Tensor] = field(default_factory=dict)
    cast: Mapping[Key, str] = field(default_factory=dict)
    fill: Mapping[Key, torch.Tensor] = field(default_factory=dict)
    pad: Mapping[Key, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(vars(self).values())

    def new_key(self, key: Key) -> Key | None:
        """Return the key of a column in the mixture, or None if the column is dropped."""
        if any(key[: len(group)] == group for group in self.drop):
            return None
        for group, new in self.rename.items():
            if key[: len(group)] == group:
                return new + key[len(group) :]
        return key

    def apply(
        self, columns: Mapping[Key, Rows], num_rows: int, device: torch.device | None
    ) -> dict[Key, Rows]:
        """Return the mapped columns ``[num_rows, ...]``."""
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
        """Return the mapping as JSON values."""
        by_key = {name: values for name, values in vars(self).items() if name != "drop"}
        return {
            "drop": [list(key) for key in self.drop],
            **{
                name: [[list(key), _json_value(value)] for key, value in sorted(values.items())]
                for name, values in by_key.items()
            },
        }


def _json_value(value: object) -> object:
    return value.tolist() if isinstance(value, torch.Tensor) else value


def column_map(
    member: Member, name: str, forms: Mapping[Key, ColumnForm], others: Mapping[Key, ColumnForm]
) -> ColumnMap:
    """Return the mapping of a member, checked against the columns of all members."""
    moved = ColumnMap(
        tuple(keys_of(list(member.drop))),
        {key_of(key): key_of(new) for key, new in member.rename.items()},
    )
    for group in (*moved.drop, *moved.rename):
        if not any(key[: len(group)] == group for key in forms):
            raise _unknown_column(name, group, forms)
    renamed: dict[Key, ColumnForm] = {}
    for key, form in forms.items():
        if (new := moved.new_key(key)) is not None:
            if new in renamed:
                raise UsageError(
                    f"{name}: rename gives two columns the key {show_key(new)}.",
                    argument="rename",
                    key=new,
                )
            renamed[new] = form
    columns = _RenamedColumns(name, renamed, others)
    return ColumnMap(
        moved.drop,
        moved.rename,
        _checked(member.scale, columns.factors),
        _checked(member.cast, columns.dtype_name),
        _checked(member.fill, columns.fill_row),
        _checked(member.pad, columns.padded_size),
    )


def _checked(
    values: Mapping[NestedKey, Value], check: Callable[[Key, Value], Checked]
) -> dict[Key, Checked]:
    return {key: check(key, value) for key, value in ((key_of(k), v) for k, v in values.items())}


@dataclass(frozen=True)
class _RenamedColumns:
    """The columns of a member after ``rename``; each method checks a value for one column."""

    name: str
    columns: Mapping[Key, ColumnForm]
    others: Mapping[Key, ColumnForm]

    def factors(self, key: Key, value: Numbers) -> torch.Tensor:
        """Return the factors of a column, float64."""
        form = self._number_form(key, self.columns)
        if not form.dtype.startswith(("float", "bfloat", "complex")):
            raise WrongRows(
                f"{self.name}: scale needs floating point numbers; {show_key(key)} is {form}.",
                argument="scale",
                key=key,
                expected="floating point numbers",
                found=form.dtype,
                advice="Cast the column in preprocess() first.",
            )
        factors = torch.as_tensor(value, dtype=torch.float64)
        try:
            factors.expand(form.shape)
        except RuntimeError as error:
            raise WrongSize(
                f"{self.name}: {show_key(key)} is {form}; factors {list(factors.shape)} do not "
                "broadcast against it.",
                argument="scale",
                key=key,
                expected=list(form.shape),
                found=list(factors.shape),
            ) from error
        return factors

    def dtype_name(self, key: Key, value: torch.dtype | str) -> str:
        """Return the name of a dtype."""
        self._number_form(key, self.columns)
        name = TYPE_NAMES.get(value, "") if isinstance(value, torch.dtype) else str(value)
        torch_dtype(name)  # rejects unknown names
        return name

    def fill_row(self, key: Key, value: Numbers) -> torch.Tensor:
        """Return a row of a column that only other members have, with their dtype and shape."""
        if key in self.columns:
            raise UsageError(
                f"{self.name} has {show_key(key)}; fill is for missing columns.",
                argument="fill",
                key=key,
            )
        if key not in self.others:
            raise UnknownKey(
                f"{self.name}: fill needs {show_key(key)} in another member. They have: "
                f"{', '.join(map(show_key, self.others))}",
                argument="fill",
                key=key,
            )
        form = self._number_form(key, self.others)
        row: torch.Tensor = torch.as_tensor(value, dtype=torch_dtype(form.dtype))
        try:
            return row.expand(form.shape).clone()
        except RuntimeError as error:
            raise WrongSize(
                f"{self.name}: {show_key(key)} is {form} in another member; a row "
                f"{list(row.shape)} does not broadcast to it.",
                argument="fill",
                key=key,
                expected=list(form.shape),
                found=list(row.shape),
            ) from error

    def padded_size(self, key: Key, size: int) -> int:
        """Return the new size of the last dimension of a column."""
        form = self._number_form(key, self.columns)
        if not form.shape or type(size) is not int or size < form.shape[-1]:
            raise WrongSize(
                f"{self.name}: {show_key(key)} is {form}; it cannot be padded to {size!r}.",
                argument="pad",
                key=key,
                expected=f"{form.shape[-1]} or more" if form.shape else "a dimension",
                found=size,
                advice="Pass the new size of the last dimension.",
            )
        return size

    def _number_form(self, key: Key, columns: Mapping[Key, ColumnForm]) -> ColumnForm:
        if key not in columns:
            raise _unknown_column(self.name, key, columns)
        if columns[key].dtype == TEXT:
            raise wrong_column(key, "numbers", TEXT, owner=self.name)
        return columns[key]


def _unknown_column(name: str, key: Key, known: Iterable[Key]) -> UnknownKey:
    keys = [show_key(each) for each in known]
    return UnknownKey(
        f"{name} has no column {show_key(key)}. It has: {', '.join(keys)}", key=key, found=keys
    )


def plain_leaves(batch: Rows) -> dict[Key, torch.Tensor] | None:
    """Return the leaves of a batch of plain TensorDicts of tensors, or None for other batches."""
    # Other batches have text, tensorclasses, or nested batch sizes.
    if type(batch) is not TensorDict:
        return None
    leaves: dict[Key, torch.Tensor] = {}
    return leaves if _collect(batch, batch.batch_size, (), leaves) else None


def _collect(
    batch: TensorDict, size: torch.Size, parent: Key, leaves: dict[Key, torch.Tensor]
) -> bool:
    """Add the leaves below a key to ``leaves``; return whether all are plain."""
    for name, entry in batch.items():
        if type(entry) is torch.Tensor:
            leaves[*parent, name] = entry
            continue
        is_plain = type(entry) is TensorDict and entry.batch_size == size
        if not is_plain or not _collect(entry, size, (*parent, name), leaves):
            return False
    return True


def batch_leaves(batch: Rows) -> dict[Key, Rows]:
    """Return the leaves of a batch of TensorDicts; an empty dict if rows are tensors."""
    if (plain := plain_leaves(batch)) is not None:
        return plain
    if not is_tensor_collection(batch):
        return {}
    leaves = batch.items(True, True, is_leaf=is_leaf_nontensor)  # text too
    return {key_of(key): leaf for key, leaf in leaves}


def different_keys(leaves: Mapping[Key, Rows], others: Mapping[Key, Rows]) -> list[Key]:
    """Return the keys that only one of two has, or whose leaves cannot be concatenated."""
    odd = leaves.keys() ^ others.keys()
    odd |= {key for key in leaves.keys() & others.keys() if not _can_join(leaves[key], others[key])}
    return sorted(odd)


def _can_join(leaf: Rows, other: Rows) -> bool:
    # Called for every batch: forms are built only for an error.
    if leaf.shape[1:] != other.shape[1:]:
        return False
    if not isinstance(leaf, torch.Tensor) or not isinstance(other, torch.Tensor):
        return isinstance(leaf, torch.Tensor) == isinstance(other, torch.Tensor)
    return leaf.dtype == other.dtype and leaf.device == other.device


def difference_table(
    keys: Sequence[Key], names: Sequence[str], members: Sequence[Mapping[Key, Rows]]
) -> str:
    """Return a table of dtypes and shapes: a line for each key, a column for each member."""
    lines = [[show_key(key), *(_cell(each.get(key)) for each in members)] for key in keys]
    rows = [["column", *names], *lines]
    num_hidden = len(rows) - MAX_TABLE_LINES
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    shown = [
        "  "
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows[:MAX_TABLE_LINES]
    ]
    return "\n".join([*shown, f"  and {num_hidden} more"] if num_hidden > 0 else shown)


def _cell(leaf: Rows | None) -> str:
    if leaf is None:
        return "-"
    on_device = isinstance(leaf, torch.Tensor) and leaf.device.type != "cpu"
    return f"{ColumnForm.of(leaf)}" + (f" on {leaf.device}" if on_device else "")
