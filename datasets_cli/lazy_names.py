"""Lazy names of modules: each is imported from its defining module at the first access."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

import datasets_cli


def lazy_names(
    holder: str, homes: Mapping[str, str], modules: Sequence[str] = ()
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and ``__dir__`` of a module with lazy names.

    ``homes`` maps each name to the module below ``datasets_cli`` that defines it:
    ``"specs.bounded"``, or ``"specs.bounded:Bounded"`` if the name there is ``Bounded``.
    """
    attributes = vars(sys.modules[holder])

    def import_name(name: str) -> object:
        if name in homes:
            home, _, own_name = homes[name].partition(":")
            value = getattr(import_module(f"datasets_cli.{home}"), own_name or name)
            return attributes.setdefault(name, value)  # later accesses do not call this function
        if name in modules:
            return import_module(f"{holder}.{name}")
        raise AttributeError(f"module {holder!r} has no attribute {name!r}")

    return import_name, lambda: sorted([*attributes["__all__"], *modules])


def room_names(*rooms: str) -> dict[str, str]:
    """Return the public names of ``datasets_cli`` that are defined in these rooms."""
    homes = datasets_cli._LAZY_IMPORTS
    return {name: home for name, home in homes.items() if home.startswith(rooms)}
