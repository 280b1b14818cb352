"""Nested keys as users write them: ``"reward"``, ``("next", "reward")``, or a list of such."""

from __future__ import annotations

from collections.abc import Sequence

from datasets_cli.store.columns import Key

NestedKey = str | tuple[str, ...]
NestedKeys = NestedKey | Sequence[NestedKey]
"""One key or several. A tuple of names is one nested key; several stand in a list."""


def key_of(name: NestedKey) -> Key:
    """Return one key as a tuple of names."""
    return (name,) if isinstance(name, str) else tuple(name)


def keys_of(names: NestedKeys) -> list[Key]:
    """Return one key or several as tuples of names."""
    if isinstance(names, str) or (isinstance(names, tuple) and _is_one(names)):
        return [key_of(names)]
    return [key_of(name) for name in names]


def _is_one(names: Sequence[NestedKey]) -> bool:
    return all(isinstance(name, str) for name in names)
