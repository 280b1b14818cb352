"""Modules that hold names only: each name is imported from its module when it is first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

import datasets_cli


def lazy_names(
    holder: str, homes: Mapping[str, str], modules: Sequence[str] = ()
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and ``__dir__`` of a module of names.

    ``homes`` has the module below ``datasets_cli`` that defines each name: ``"specs.bounded"``, or
    ``"specs.bounded:Bounded"`` for a name that is called ``Bounded`` there.
    """
    attributes = vars(sys.modules[holder])

    def import_name(name: str) -> object:
        if name in homes:
            home, _, own_name = homes[name].partition(":")
            value = getattr(import_module(f"datasets_cli.{home}"), own_name or name)
            return attributes.setdefault(name, value)  # found without this function from now on
        if name in modules:
            return import_module(f"{holder}.{name}")
        raise AttributeError(f"module {holder!r} has no attribute {name!r}")

    return import_name, lambda: sorted([*attributes["__all__"], *modules])


def room_names(*rooms: str) -> dict[str, str]:
    """Return the names at the top of ``datasets_cli`` whose modules begin with one of the texts."""
    homes = datasets_cli._LAZY_IMPORTS
    return {name: home for name, home in homes.items() if home.startswith(rooms)}
