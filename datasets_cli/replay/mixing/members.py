"""The members of a mixture: what a user gives, as storages with the same columns."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TypeVar

import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import NestedKey, Numbers, Rows, StateDict, key_of, keys_of
from datasets_cli.replay.batches.reader import BatchReader
from datasets_cli.replay.buffer.buffer import ReplayBuffer
from datasets_cli.replay.mixing.agreement import ColumnForm, check_columns, forms_of, manifest_of
from datasets_cli.replay.mixing.storage import MixtureStorage
from datasets_cli.replay.samplers.rows import RandomSampler
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.trajectories.bounds import TrajectoryIndex, TrajectoryKeys
from datasets_cli.schema.bits import TYPE_NAMES, to_array, torch_dtype
from datasets_cli.schema.columns import MEMBER, Key, show_key
from datasets_cli.schema.texts import TEXT
from datasets_cli.schema.tree import Tree, TreePlan, grow_tree, leaves_in
from datasets_cli.store.layouts.gathered import GatheredLeaves
from datasets_cli.store.layouts.protocol import GatheredRows

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


class MemberRows(Storage):
    """The rows of a dataset, or those that a buffer has at the time, as columns of a mixture.

    No row of a buffer is written while some are gathered.
    """

    def __init__(
        self,
        source: Storage | BatchReader,
        column_map: ColumnMap | None = None,
        keys: Iterable[Key] = (),
    ) -> None:
        self._source = source
        self._map = column_map
        old_keys = {key: column_map.new_key(key) for key in keys} if column_map else {}
        self._old_keys = {new: key for key, new in old_keys.items() if new}
        self.device = self._rows.device
        # Rows that change are not read ahead.
        self.row_bytes = 0 if isinstance(source, BatchReader) else source.row_bytes
        self._plan: TreePlan | None = None

    @property
    def _rows(self) -> Storage:
        return self._source.storage if isinstance(self._source, BatchReader) else self._source

    @property
    def _lock(self) -> AbstractContextManager[object]:
        return self._source.lock if isinstance(self._source, BatchReader) else nullcontext()

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"MemberRows({self._rows!r})"

    @property
    def is_tensordict(self) -> bool:  # type: ignore[override]
        """Whether rows are TensorDicts, which may not be known before the first was written."""
        return self._rows.is_tensordict

    @property
    def row_batch_size(self) -> tuple[int, ...]:  # type: ignore[override]
        """Batch size of each row."""
        return self._rows.row_batch_size

    @property
    def revision(self) -> int:  # type: ignore[override]
        """A number that changes whenever rows are written or cleared, or the buffer has others."""
        rows = self._rows
        return hash((id(rows), rows.revision))

    def reference(self) -> StateDict | None:
        """Return what names the dataset and the mapping of columns; None of a buffer's rows."""
        dataset = self._rows.reference()
        if dataset is None or self._map is None:
            return None
        return {**dataset, "columns": self._map.to_json()}

    def has(self, key: Key) -> bool:
        """Return whether rows have an entry."""
        if self._map is None:
            return self._rows.has(key)
        return key in self._old_keys or key in self._map.fill

    def gather(self, index: torch.Tensor) -> Tree:
        """Return copies ``[B, ...]`` of the rows ``index`` int64 ``[B]``, as a nested dict."""
        with self._lock:
            tree: Tree = self._rows.gather(index)
        if self._map is None:
            return tree
        return grow_tree(self._map.apply(dict(leaves_in(tree)), len(index), self.device))

    def read(self, index: torch.Tensor) -> GatheredRows | None:
        """Return copies of the rows ``index`` int64 ``[B]`` in numpy's memory, or None."""
        block = self._rows.read(index) if self.row_bytes else None
        if block is None or self._map is None:
            return block
        mapped = self._map.apply(dict(leaves_in(block.tree(0, len(block)))), len(block), None)
        if self._plan is None:
            self._plan = TreePlan(mapped)
        slots = [self._plan.slots[key] for key in mapped]
        return GatheredLeaves(self._plan, slots, [*map(to_array, mapped.values())], len(index))

    def scalar_column(self, key: Key) -> torch.Tensor:
        """Return a column of one number a row, before it is mapped: ``[T, W]``."""
        if self._map is not None and key in self._map.fill:
            return self._map.fill[key].expand(len(self), 1)
        with self._lock:
            return self._rows.scalar_column(self._old_key(key))

    def trajectories(self, keys: TrajectoryKeys) -> TrajectoryIndex:
        """Return the trajectories, as the storage knows them or as columns tell."""
        number, step = (
            None if key is None else self._old_key(key) for key in (keys.number, keys.step)
        )
        ends = tuple(self._old_key(key) for key in keys.ends)
        with self._lock:
            return self._rows.trajectories(TrajectoryKeys(number, ends, step))

    def _old_key(self, key: Key) -> Key:
        return self._old_keys.get(key, key)

    def __getstate__(self) -> StateDict:
        return {**self.__dict__, "_plan": None}


MemberLike = ReplayBuffer | Storage | Member
"""What a user may give as a member."""


def mixture_storage(given: Sequence[MemberLike]) -> MixtureStorage:
    """Return the rows of members as one storage."""
    members = [one if isinstance(one, Member) else Member(one) for one in given]
    if not members:
        raise UsageError("A mixture needs members: Mixture({buffer: weight, another: weight}).")
    storages = [_rows_of(member.source) for member in members]
    names = _names(members, storages)
    forms = [_known_forms(*pair) for pair in zip(storages, names, strict=True)]
    maps = _column_maps(members, forms, names)
    mapped = [
        MemberRows(storage, each, known) if each else storage
        for storage, each, known in zip(storages, maps, forms, strict=True)
    ]
    check_columns([forms_of(*pair) for pair in zip(mapped, names, strict=True)], names)
    _check_same_device(mapped, names)
    written = [
        name for name, rows in zip(names, storages, strict=True) if isinstance(rows, MemberRows)
    ]
    return MixtureStorage(mapped, names, written)


def _known_forms(storage: Storage, name: str) -> dict[Key, ColumnForm]:
    if not len(storage):
        raise UsageError(
            f"{name} has no rows, so that its columns are not known. Write rows first, or leave it "
            "out."
        )
    return forms_of(storage, name)


def _rows_of(source: ReplayBuffer | Storage) -> Storage:
    """Return the rows of a member, which is drawn by nothing but the mixture."""
    if isinstance(source, ReplayBuffer):
        _check_plain(source)
        storage = source.reader.storage
        return MemberRows(source.reader) if storage.is_writable else storage
    if not hasattr(source, "gather") or not hasattr(source, "has"):
        raise UsageError(
            "A member of a mixture is a replay buffer, such as ExperienceReplay(id), a storage, or "
            f"a Member of one of these; not {type(source).__name__}."
        )
    if source.is_writable:
        raise UsageError(
            f"A {type(source).__name__} is written to by a buffer, which keeps writing and reading "
            "apart. Give the mixture that ReplayBuffer."
        )
    return source


def _check_plain(buffer: ReplayBuffer) -> None:
    """Check that a buffer has nothing that its rows would lose in a mixture."""
    reader = buffer.reader
    lost = {
        f"the sampler {reader.sampler!r}": type(reader.sampler) is not RandomSampler,
        f"the transform {reader.transform!r}": bool(reader.transform),
        "a collate_fn": reader.collate_fn is not None,
    }
    if named := ", ".join(name for name, is_there in lost.items() if is_there):
        raise UsageError(
            f"A member of the mixture has {named}, which a mixture would not use: it draws rows by "
            "itself. Give the buffer without it, and give the mixture a transform, collate_fn or "
            "sampler; what is for one member alone is a Member(..., rename=, scale=, cast=), or a "
            "dataset that preprocess() writes."
        )
    if buffer.shared or reader.storage.device_options.pin_memory:
        raise UsageError(
            "A member of the mixture is shared by processes, or gives page-locked memory. Give the "
            "buffer without that; pin_memory is an argument of the mixture."
        )


def _names(members: Sequence[Member], storages: Sequence[Storage]) -> list[str]:
    """Return a name for each member; of equal ones the second is called ``name (2)``."""
    names: list[str] = []
    seen: Counter[str] = Counter()
    for number, (member, storage) in enumerate(zip(members, storages, strict=True)):
        manifest = manifest_of(storage)
        name = member.name or (f"buffer {number}" if manifest is None else manifest.id)
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return names


def _column_maps(
    members: Sequence[Member], forms: Sequence[dict[Key, ColumnForm]], names: Sequence[str]
) -> list[ColumnMap]:
    maps = []
    for number, (member, name) in enumerate(zip(members, names, strict=True)):
        others = ChainMap(*forms[:number], *forms[number + 1 :])  # the first that has a key counts
        maps.append(column_map(member, name, forms[number], others))
        if MEMBER in forms[number] and maps[-1].new_key(MEMBER) == MEMBER:
            raise UsageError(
                f"{name} has a column {show_key(MEMBER)}, where batches of a mixture say which "
                "member a row is of. Rename it: Member(..., rename={'member': 'other'})."
            )
    return maps


def _check_same_device(storages: Sequence[Storage], names: Sequence[str]) -> None:
    devices = [str(storage.device or "cpu") for storage in storages]
    if len(set(devices)) > 1:
        told = ", ".join(f"{name} on {device}" for name, device in zip(names, devices, strict=True))
        raise UsageError(
            f"The members of a mixture are on one device; found {told}. Open them with the same "
            "device."
        )
