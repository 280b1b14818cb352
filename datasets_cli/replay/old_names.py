"""Parts of a buffer that were written to the names of version 0.1, for one release."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

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


class Renamed(Protocol):
    """A base of protocols whose members had other names: overrides under these are taken."""

    _renamed: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, renamed: Mapping[str, str] | None = None, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if renamed is not None:
            cls._renamed = renamed
        own = vars(cls)
        old_names = [name for name in cls._renamed if name in own]
        for old in old_names:
            new = cls._renamed[old]
            if new not in own:
                setattr(cls, new, own[old])
            for base in cls.__mro__[1:]:  # for overrides that call super()
                if new in vars(base) and old not in vars(base):
                    setattr(base, old, vars(base)[new])
        if old_names:
            _warn(cls.__name__, {old: cls._renamed[old] for old in old_names})

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name not in self._renamed:
                kind = type(self).__name__
                raise AttributeError(f"{kind!r} object has no attribute {name!r}")
            found = getattr(self, self._renamed[name])
            _warn(type(self).__name__, {name: self._renamed[name]})
            return found


def _warn(kind: str, renamed: Mapping[str, str]) -> None:
    """Warn the first caller outside of this package: Python hides what it warns libraries of."""
    frame, level = sys._getframe(1), 2
    inside = ("datasets_cli.", "abc", "typing")  # a class statement passes through the last two
    while frame.f_back and str(frame.f_globals.get("__name__")).startswith(inside):
        frame, level = frame.f_back, level + 1
    changed = ", ".join(f"{old} is {new} now" for old, new in sorted(renamed.items()))
    warnings.warn(
        f"{kind} uses the names of rlds-cli 0.1: {changed}. The next release takes the new names "
        "alone.",
        DeprecationWarning,
        stacklevel=level,
    )


def members_of(protocol: type) -> frozenset[str]:
    """Return the names of all public members of a protocol, ``__len__`` included."""
    old_names: Mapping[str, str] = getattr(protocol, "_renamed", {})
    return frozenset(
        name
        for base in protocol.__mro__
        if getattr(base, "_is_protocol", False)
        for name in (*vars(base), *getattr(base, "__annotations__", ()))
        if (not name.startswith("_") or name == "__len__") and name not in old_names
    )


def lacks(part: object, protocol: type) -> list[str]:
    """Return the members of a protocol that a part does not have, sorted."""
    names = members_of(protocol)
    if protocol in type(part).__mro__:  # all but the data that have no default
        names = frozenset(name for name in names if not hasattr(protocol, name))
    return sorted(name for name in names if not hasattr(part, name))


def adapt(part: Any, protocol: type, **known: Any) -> Any:
    """Return a part written to the old names as one that has all members of a protocol."""
    renamed: Mapping[str, str] = getattr(protocol, "_renamed", {})
    old_names = {new: old for old, new in renamed.items()}
    found = {
        name: name if hasattr(part, name) else old_names.get(name, name)
        for name in members_of(protocol)
    }
    found = {new: old for new, old in found.items() if hasattr(part, old)}
    kind = type(part).__name__
    if changed := {old: new for new, old in found.items() if old != new}:
        _warn(kind, changed)
    forwarded: dict[str, Any] = {new: _forward(old) for new, old in found.items()}
    if "__len__" in forwarded:
        forwarded["__len__"] = lambda self: len(self.part)
    forwarded["__repr__"] = lambda self: repr(self.part)
    forwarded["__reduce__"] = lambda self: (partial(adapt, **known), (part, protocol))
    adapter = type(kind, (protocol,), {**forwarded, **known, "adapts": True})()
    adapter.part = part
    return adapter


def original(part: Any) -> Any:
    """Return what the user gave: the part itself, or the one that an adapter stands for."""
    return part.part if getattr(type(part), "adapts", False) else part


def _forward(name: str) -> property:
    def read(adapter: Any) -> Any:
        return getattr(adapter.part, name)

    def write(adapter: Any, value: Any) -> None:
        setattr(adapter.part, name, value)

    return property(read, write)
