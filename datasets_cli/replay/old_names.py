"""Parts of a buffer that were written to the names of version 0.1, for one release."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

STORAGE_NAMES = {
    "apart": "flatten",
    "empty": "clear",
    "inner": "row_batch_size",
    "numbers": "scalar_column",
    "placement": "device_options",
    "runs": "trajectories",
    "tree": "gather",
}
SAMPLER_NAMES = {"emptied": "on_clear", "written": "on_write"}
WRITER_NAMES = {"emptied": "on_clear", "place": "write"}
"""What each method was called, and what it is called now."""


def members_of(protocol: type) -> frozenset[str]:
    """Return the names of all public members of a protocol, ``__len__`` included."""
    return frozenset(
        name
        for base in protocol.__mro__
        if getattr(base, "_is_protocol", False)
        for name in (*vars(base), *getattr(base, "__annotations__", ()))
        if not name.startswith("_") or name == "__len__"
    )


def lacks(part: object, protocol: type) -> list[str]:
    """Return the members of a protocol that a part does not have, sorted."""
    if protocol in type(part).__mro__:
        return []
    return sorted(name for name in members_of(protocol) if not hasattr(part, name))


def adapt(part: Any, protocol: type, renamed: Mapping[str, str], **known: Any) -> Any:
    """Return a part written to the old names as one that has all members of a protocol.

    Args:
        part: what was written; it must have the members without a default.
        protocol: the base class whose defaults stand for what it lacks.
        renamed: what each old name is called now.
        known: members of the class that follow from which methods the part has.

    Raises:
        TypeError: it lacks a member without a default.
    """
    old_names = {new: old for old, new in renamed.items()}
    found = {
        name: name if hasattr(part, name) else old_names.get(name, name)
        for name in members_of(protocol)
    }
    found = {new: old for new, old in found.items() if hasattr(part, old)}
    kind = type(part).__name__
    if changed := [f"{old} is {new} now" for new, old in sorted(found.items()) if old != new]:
        warnings.warn(
            f"{kind} is written to the names of rlds-cli 0.1: {', '.join(changed)}. Rename them, "
            f"and derive from {protocol.__name__}; the next release takes the new names alone.",
            DeprecationWarning,
            stacklevel=4,
        )
    forwarded: dict[str, Any] = {new: _forward(old) for new, old in found.items()}
    if "__len__" in forwarded:
        forwarded["__len__"] = lambda self: len(self.part)
    forwarded["__repr__"] = lambda self: repr(self.part)
    forwarded["__reduce__"] = lambda self: (partial(adapt, **known), (part, protocol, renamed))
    adapter = type(kind, (protocol,), {**forwarded, **known})()
    adapter.part = part
    return adapter


def old_attribute(renamed: Mapping[str, str]) -> Callable[[object, str], Any]:
    """Return a ``__getattr__`` that finds members under their old names, with a warning."""

    def find(owner: object, name: str) -> Any:
        if name not in renamed:
            raise AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}")
        warnings.warn(
            f"{type(owner).__name__}.{name} is {renamed[name]} now; the next release has no "
            f"{name}.",
            DeprecationWarning,
            stacklevel=2,
        )
        return getattr(owner, renamed[name])

    return find


def _forward(name: str) -> property:
    def read(adapter: Any) -> Any:
        return getattr(adapter.part, name)

    def write(adapter: Any, value: Any) -> None:
        setattr(adapter.part, name, value)

    return property(read, write)
