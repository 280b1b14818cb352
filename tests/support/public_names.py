"""Files written from the tables of public names: a stub of each module, and tables for people.

``python -m tests.support.public_names`` writes them all.
"""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import datasets_cli
from tests.support.paths import PROJECT

PAGE = PROJECT / "docs" / "python.md"
TABLE: dict[str, str] = datasets_cli._LAZY_IMPORTS
MODULES = ("datasets_cli", *(f"datasets_cli.{name}" for name in datasets_cli._MODULES))
TABLES: dict[str, dict[str, str]] = {
    module: vars(importlib.import_module(module))["_LAZY_IMPORTS"]
    for module in MODULES
    if "_LAZY_IMPORTS" in vars(importlib.import_module(module))
}
"""For each module of names its table: the module that defines each."""

HOMES = {name: home for table in TABLES.values() for name, home in table.items()}


def find(name: str) -> Any:
    home, _, own_name = HOMES[name].partition(":")
    return getattr(importlib.import_module(f"datasets_cli.{home}"), own_name or name)


class _Everything:
    """Has every public name as an attribute, wherever it is imported from."""

    __all__ = (*HOMES,)

    def __getattr__(self, name: str) -> Any:
        if name not in HOMES:
            raise AttributeError(name)
        return find(name)


EVERYTHING: Any = _Everything()


def homes(face: ModuleType) -> dict[str, str]:
    """Return the defining module of each name of a module of names."""
    return getattr(face, "_HOMES", face._LAZY_IMPORTS)


def verbs() -> list[str]:
    return groups("datasets_cli")["commands, as functions"]


def path_of(module: str) -> Path:
    return Path(str(importlib.import_module(module).__file__))


def stub(module: str) -> str:
    """Return the stub of a module of names, before it is formatted."""
    face = importlib.import_module(module)
    lines = []
    for name, place in homes(face).items():
        home, _, own_name = place.partition(":")
        if own_name:
            lines += [f"from datasets_cli.{home} import {own_name}", f"{name} = {own_name}"]
        else:
            lines += [f"from datasets_cli.{home} import {name} as {name}"]
    lines += [f"from {module} import {name} as {name}" for name in getattr(face, "_MODULES", ())]
    if module == "datasets_cli":
        lines += ["from datasets_cli.version import __version__ as __version__"]
    variables = ["_LAZY_IMPORTS: dict[str, str]"]
    variables += ["_MODULES: tuple[str, ...]"] * hasattr(face, "_MODULES")
    imports = sorted({line for line in lines if " = " not in line})
    others = [line for line in lines if " = " in line]
    title = f'"""The names of {module}, for type checkers and editors."""'
    return "\n".join([title, "", *imports, "", *others, "", *variables]) + "\n"


def groups(module: str) -> dict[str, list[str]]:
    """Return the names that are public in a module alone, by the comments of its table."""
    face = importlib.import_module(module)
    if module not in TABLES:
        defined = {n: x for n, x in vars(face).items() if inspect.isclass(x) or callable(x)}
        listed = getattr(face, "__all__", [n for n in defined if inspect.isclass(defined[n])])
        own = [n for n in listed if n in defined and defined[n].__module__ == module]
        return {"": [name for name in own if name not in TABLE]}
    found: dict[str, list[str]] = {}
    title = ""
    source = path_of(module).read_text(encoding="utf-8").partition("\n}\n")[0]
    for comment, name, home in re.findall(r'^    (?:# (.+)|"(\w+)": "(.+)",)$', source, re.M):
        title = comment or title
        if name and ":" not in home:  # an older name of TorchRL's is not listed
            found.setdefault(title, []).append(name)
    return found


def page_tables() -> str:
    """Return the tables of docs/python.md: a sentence for each verb, and a list of all others."""
    return "\n".join(_table_lines())


def _table_lines() -> Iterator[str]:
    first, *others = groups("datasets_cli").items()
    yield "\n| commands, as functions | |\n|---|---|"
    for name in first[1]:
        yield f"| `{name}` | {_sentence(getattr(datasets_cli, name))} |"
    yield "\n| in `datasets_cli` | |\n|---|---|"
    for title, names in others:
        yield f"| {title} | {_listed(names)} |"
    yield "\n| module | names |\n|---|---|"
    for module in MODULES[1:]:
        if names := [name for listed in groups(module).values() for name in listed]:
            about = _sentence(importlib.import_module(module)).partition(". ")[0].rstrip(".")
            yield f"| `{module}`: {about} | {_listed(names)} |"


def _sentence(documented: Any) -> str:
    text = (inspect.getdoc(documented) or "").partition("\n\n")[0]
    return " ".join(text.split()).replace("``", "`").replace("|", "\\|")


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def with_tables(page: str) -> str:
    begin, end = "<!-- names: written by tests.support.public_names -->", "<!-- end of names -->"
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{page_tables()}\n\n{end}{after}"


if __name__ == "__main__":
    stubs = [path_of(module).with_suffix(".pyi") for module in TABLES]
    for module, path in zip(TABLES, stubs, strict=True):
        path.write_text(stub(module), encoding="utf-8")
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    for arguments in (["check", "--fix", "-q"], ["format", "-q"]):
        subprocess.run([sys.executable, "-m", "ruff", *arguments, *stubs], check=True)
