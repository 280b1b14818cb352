"""The members of a mixture: what a user gives, as storages with the same columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import NestedKey
from datasets_cli.replay.buffers.buffer import ReplayBuffer
from datasets_cli.replay.draws.random import RandomSampler
from datasets_cli.replay.mixtures.buffer_rows import BufferRows
from datasets_cli.replay.mixtures.column_map import ColumnMap, column_map
from datasets_cli.replay.mixtures.differences import check_columns, check_facts
from datasets_cli.replay.mixtures.facts import facts_of
from datasets_cli.replay.mixtures.forms import ColumnForm, forms_of
from datasets_cli.replay.mixtures.mapped import MappedStorage
from datasets_cli.replay.mixtures.storage import MixtureStorage
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.schema.columns import MEMBER, Key, show_key


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
        UsageError: ``drop`` is no list of keys, or another argument does not go by key.
    """

    source: ReplayBuffer | Storage
    name: str | None = None
    drop: Iterable[NestedKey] = ()
    rename: Mapping[NestedKey, NestedKey] = field(default_factory=dict)
    scale: Mapping[NestedKey, Any] = field(default_factory=dict)
    cast: Mapping[NestedKey, Any] = field(default_factory=dict)
    fill: Mapping[NestedKey, Any] = field(default_factory=dict)
    pad: Mapping[NestedKey, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.drop, str) or not isinstance(self.drop, Iterable):
            raise UsageError(f"drop is a list of columns, such as ['info'], not {self.drop!r}.")
        for name in ("rename", "scale", "cast", "fill", "pad"):
            if not isinstance(value := getattr(self, name), Mapping):
                raise UsageError(f"{name} goes by column, {{'action': ...}}, and is not {value!r}.")


Source = ReplayBuffer | Storage | Member


def mixture_storage(sources: Sequence[Source], accept: Sequence[str]) -> MixtureStorage:
    """Return the rows of members as one storage."""
    members = [one if isinstance(one, Member) else Member(one) for one in sources]
    if not members:
        raise UsageError("A mixture needs members: Mixture({buffer: weight, another: weight}).")
    storages = [_rows_of(member) for member in members]
    names = _names(members, storages)
    for name, storage in zip(names, storages, strict=True):
        if not len(storage):
            raise UsageError(
                f"{name} has no rows, so that its columns are not known. Write rows first, or "
                "leave it out."
            )
    forms = [forms_of(*pair) for pair in zip(storages, names, strict=True)]
    maps = _column_maps(members, forms, names)
    facts = [facts_of(*pair) for pair in zip(storages, maps, strict=True)]
    check_facts(facts, names, accept)
    mapped = [
        MappedStorage(storage, each, tuple(known)) if each else storage
        for storage, each, known in zip(storages, maps, forms, strict=True)
    ]
    check_columns([forms_of(*pair) for pair in zip(mapped, names, strict=True)], names)
    _check_same_device(mapped, names)
    written = [
        name
        for name, storage in zip(names, storages, strict=True)
        if isinstance(storage, BufferRows)
    ]
    return MixtureStorage(mapped, names, written)


def _rows_of(member: Member) -> Storage:
    """Return the rows of a member, which is drawn by nothing but the mixture."""
    source = member.source
    if isinstance(source, ReplayBuffer):
        _check_plain(source)
        if source.reader.storage.is_writable:
            return BufferRows(source.reader)
        return source.reader.storage
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
    if found := ", ".join(name for name, is_there in lost.items() if is_there):
        raise UsageError(
            f"A member of the mixture has {found}, which a mixture would not use: it draws rows by "
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
    found: list[str] = []
    seen: Counter[str] = Counter()
    for number, (member, storage) in enumerate(zip(members, storages, strict=True)):
        dataset: Any = getattr(storage, "dataset", None)
        name = member.name or (f"buffer {number}" if dataset is None else dataset.manifest.id)
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return found


def _column_maps(
    members: Sequence[Member], forms: Sequence[Mapping[Key, ColumnForm]], names: Sequence[str]
) -> list[ColumnMap]:
    found = []
    for number, member in enumerate(members):
        others: dict[Key, ColumnForm] = {}
        for each in (*forms[:number], *forms[number + 1 :]):
            others = {**each, **others}  # the first that has it counts
        declared = {
            name: getattr(member, name)
            for name in ("drop", "rename", "scale", "cast", "fill", "pad")
        }
        found.append(column_map(forms[number], others, names[number], **declared))
        if (key := MEMBER) in forms[number] and found[-1].new_key(key) == key:
            raise UsageError(
                f"{names[number]} has a column {show_key(key)}, where batches of a mixture say "
                "which member a row is of. Rename it: Member(..., rename={'member': 'other'})."
            )
    return found


def _check_same_device(storages: Sequence[Storage], names: Sequence[str]) -> None:
    devices = [str(storage.device or "cpu") for storage in storages]
    if len(set(devices)) > 1:
        told = ", ".join(f"{name} on {device}" for name, device in zip(names, devices, strict=True))
        raise UsageError(
            f"The members of a mixture are on one device; found {told}. Open them with the same "
            "device."
        )
