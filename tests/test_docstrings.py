"""What nobody imports has one sentence; sections are for what users and authors import."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from datasets_cli import errors, recipe
from datasets_cli.audit import rule
from tests.support import public_names
from tests.support.paths import PROJECT

SECTION = re.compile(r"^\s*(Args|Attributes|Raises|Returns|Yields):$", re.MULTILINE)


def modules() -> Iterator[ModuleType]:
    for root in ("datasets_cli", "recipes"):
        for path in sorted((PROJECT / root).rglob("*.py")):
            name = ".".join(path.relative_to(PROJECT).with_suffix("").parts)
            name = re.sub("^recipes", "datasets_cli.recipes", name).removesuffix(".__init__")
            if name != "datasets_cli.__main__":
                yield importlib.import_module(name)


def is_imported(module: ModuleType) -> bool:
    """Return whether all that a module has is for authors of recipes, formats and parts."""
    name = module.__name__
    formats = name.startswith("datasets_cli.formats.")
    return (
        formats
        or name.endswith((".protocol", "exchange.format"))
        or module in (recipe, rule, errors)
    )


def with_members(things: list[Any], private: bool = False) -> list[Any]:
    """Return things, and of those that are classes our bases and all members."""
    bases = {kind for thing in things if isinstance(thing, type) for kind in thing.__mro__}
    kinds = [kind for kind in bases if kind.__module__.startswith("datasets_cli")]
    members = [item for kind in kinds for item in vars(kind).items()]
    return [*things, *kinds, *(thing for name, thing in members if private or name[0] != "_")]


def test_what_nobody_imports_has_no_sections() -> None:
    faces = [*map(importlib.import_module, public_names.MODULES)]
    faces += [*(each for each in modules() if ".torchrl" in each.__name__)]
    public = [getattr(face, name) for face in faces for name in getattr(face, "__all__", ())]
    public += [thing for each in modules() if is_imported(each) for thing in vars(each).values()]
    taken = [getattr(thing, "__taken__", object) for thing in with_members(public, private=True)]
    imported = {id(thing) for thing in with_members([*public, *taken])}
    offenders = set()
    for module in modules():
        own = [x for x in vars(module).values() if getattr(x, "__module__", "") == module.__name__]
        for thing in with_members(own, private=True):
            text = getattr(thing, "__doc__", None) or ""
            is_inherited = text is type(thing).__doc__  # such as that of options by default
            if id(thing) not in imported and SECTION.search(text) and not is_inherited:
                offenders.add(f"{module.__name__}: {getattr(thing, '__qualname__', thing)}")
    assert not offenders, "\n".join(sorted(offenders))
