"""The members of a mixture: what a user gives, as storages with the same columns."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Sequence

from datasets_cli.errors import UsageError
from datasets_cli.replay.buffers.buffer import ReplayBuffer
from datasets_cli.replay.draws.rows import RandomSampler
from datasets_cli.replay.several.agreement import (
    ColumnForm,
    check_columns,
    check_facts,
    facts_of,
    forms_of,
    manifest_of,
)
from datasets_cli.replay.several.member import ColumnMap, Member, column_map
from datasets_cli.replay.several.member_rows import MemberRows
from datasets_cli.replay.several.storage import MixtureStorage
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.schema.columns import MEMBER, Key, show_key

MemberLike = ReplayBuffer | Storage | Member
"""What a user may give as a member."""


def mixture_storage(given: Sequence[MemberLike], accept: Sequence[str]) -> MixtureStorage:
    """Return the rows of members as one storage."""
    members = [one if isinstance(one, Member) else Member(one) for one in given]
    if not members:
        raise UsageError("A mixture needs members: Mixture({buffer: weight, another: weight}).")
    storages = [_rows_of(member.source) for member in members]
    names = _names(members, storages)
    forms = [_known_forms(*pair) for pair in zip(storages, names, strict=True)]
    maps = _column_maps(members, forms, names)
    facts = [
        facts_of(storage, each.scale.get(("action",)))
        for storage, each in zip(storages, maps, strict=True)
    ]
    check_facts(facts, names, accept)
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
