"""Keys as users write them: a name, or a tuple of names."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence

from datasets_cli.errors import UsageError
from datasets_cli.schema.columns import Key

NestedKey = str | tuple[str, ...]
NestedKeys = NestedKey | Sequence[NestedKey]
"""One key or several. A tuple of names is one nested key; several are in a list."""


def key_of(name: NestedKey) -> Key:
    """Return one key as a tuple of names."""
    if isinstance(name, str):
        return (name,)
    if not isinstance(name, Sequence):
        raise UsageError(
            f"A key is a name, or names such as ('next', 'reward'), not {reprlib.repr(name)}."
        )
    return tuple(name)


def optional_key(name: NestedKey | None) -> Key | None:
    """Return one key as a tuple of names, or None."""
    return None if name is None else key_of(name)


def keys_of(names: NestedKeys) -> list[Key]:
    """Return one key or several as tuples of names."""
    if isinstance(names, str) or (isinstance(names, tuple) and _is_one(names)):
        return [key_of(names)]
    return [key_of(name) for name in names]


def _is_one(names: Sequence[NestedKey]) -> bool:
    return all(isinstance(name, str) for name in names)
