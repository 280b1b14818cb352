"""Modules that hold names only: each name is imported from the package's face when it is used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import datasets_cli


def lazy_names(
    module: str, names: Sequence[str] = (), *, modules: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and ``__dir__`` of a module."""

    def getter(name: str) -> Any:
        if name in names:
            return getattr(datasets_cli, name)
        if name in modules:
            return import_module(f"{module}.{name}")
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return getter, lambda: sorted({*names, *modules})
