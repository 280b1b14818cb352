"""The parts that a user gives a buffer: checked, and taken under the names of version 0.1 too."""

from __future__ import annotations

import inspect
from typing import Any

from datasets_cli.errors import UsageError
from datasets_cli.replay.old_names import adapt, lacks, original
from datasets_cli.replay.samplers.priority_sampler import Prioritized
from datasets_cli.replay.samplers.protocol import PrioritySampler, Sampler
from datasets_cli.replay.storages.lists import NO_LIMIT
from datasets_cli.replay.storages.protocol import Storage, WritableStorage, is_writable
from datasets_cli.replay.writers.protocol import Writer


def as_storage(part: Any) -> Storage:
    """Return a storage that has every member."""
    if original(part) is not part:  # what it lacks was added before
        known: Storage = part
        return known
    part = _made(part, "gather", "tree")
    if not _has_any(part, "gather", "tree") or not hasattr(part, "has"):
        raise UsageError(
            f"A storage is expected, such as LazyTensorStorage(1000), not {type(part).__name__}."
        )
    is_writable = hasattr(part, "write")
    protocol = WritableStorage if is_writable else Storage
    found: Storage = _complete(part, protocol, is_writable=is_writable)
    return found


def as_sampler(part: Any) -> Sampler:
    """Return a sampler that has every member."""
    part = _made(part, "sample")
    if not callable(getattr(part, "sample", None)):
        raise UsageError(f"A sampler is expected, such as RandomSampler(), not {part!r}.")
    has_priorities = hasattr(part, "update_priority")
    found: Sampler = _complete(
        part,
        PrioritySampler if has_priorities else Sampler,
        has_priorities=has_priorities,
        has_slices=getattr(part, "has_slices", hasattr(part, "truncated_key")),
    )
    return found


def check_room(sampler: Sampler, storage: Storage) -> None:
    """Check that a sampler has room for all the rows that a storage may get."""
    if isinstance(sampler, Prioritized):
        if is_writable(storage) and storage.max_size >= NO_LIMIT:
            raise UsageError("Priorities need a storage with a limit: give ListStorage a max_size.")
        sampler.follow(storage)


def as_writer(part: Any) -> Writer:
    """Return a writer that has every member."""
    part = _made(part, "write", "place")
    if not _has_any(part, "write", "place"):
        raise UsageError(f"A writer is expected, such as RoundRobinWriter(), not {part!r}.")
    found: Writer = _complete(part, Writer)
    return found


def _complete(part: Any, protocol: type, **known: bool) -> Any:
    """Return a part if it has every member of a protocol, and else with what it lacks added."""
    if not lacks(part, protocol) and all(
        getattr(part, name) == value for name, value in known.items()
    ):
        return part
    try:
        adapted = adapt(part, protocol, **known)
    except TypeError:
        adapted = part
    if missing := lacks(adapted, protocol):
        raise UsageError(
            f"{type(part).__name__} does not have {', '.join(missing)}, which a "
            f"{protocol.__name__} has. Derive from {protocol.__name__}, and add these."
        )
    return adapted


def _made(part: Any, *members: str) -> Any:
    """Return a part that is given as such, or as a class or a function that makes it."""
    if not isinstance(part, type) and (not callable(part) or _has_any(part, *members)):
        return part
    try:
        inspect.signature(part).bind()
    except (TypeError, ValueError) as error:
        name = getattr(part, "__name__", repr(part))
        raise UsageError(
            f"{name} is called to make a part of the buffer, and needs arguments: {error}. Give "
            f"what it makes, such as {name}(...), or functools.partial({name}, ...)."
        ) from error
    return part()


def _has_any(part: Any, *names: str) -> bool:
    return any(callable(getattr(type(part), name, None)) for name in names)
