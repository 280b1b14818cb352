"""What is written from the one table of public names: ``__init__.pyi``, and a table for people.

``python -m tests.support.public_names`` writes both.
"""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator

import datasets_cli
from tests.support.paths import PROJECT

STUB = PROJECT / "datasets_cli" / "__init__.pyi"
PAGE = PROJECT / "docs" / "python.md"
TABLE: dict[str, str] = datasets_cli._LAZY_IMPORTS


def verbs() -> list[str]:
    """Return the names of the functions that the command line and the face share."""
    return groups()["verbs, as the command line has them"]


def stub() -> str:
    """Return the text of ``__init__.pyi``, before it is formatted."""
    imports = [
        f"from datasets_cli.{module} import {name} as {name}" for name, module in TABLE.items()
    ]
    modules = (f"from datasets_cli import {name} as {name}" for name in datasets_cli._SUBPACKAGES)
    lines = [
        '"""Every public name, for type checkers and editors; see __init__.py."""',
        "",
        *sorted(imports),
        *modules,
        "from datasets_cli.version import __version__ as __version__",
        "",
        *(f"{alias} = {name}" for alias, name in datasets_cli._ALIASES.items()),
        "",
        "_LAZY_IMPORTS: dict[str, str]",
        "_ALIASES: dict[str, str]",
        "_SUBPACKAGES: tuple[str, ...]",
    ]
    return "\n".join(lines) + "\n"


def groups() -> dict[str, list[str]]:
    """Return the names below each comment of the table, in its order."""
    found: dict[str, list[str]] = {}
    source = (PROJECT / "datasets_cli" / "__init__.py").read_text(encoding="utf-8")
    source = source.partition("_ALIASES = {")[0]
    for comment, name in re.findall(r'^    (?:# (.+)|"(\w+)": ".+",)$', source, re.MULTILINE):
        if comment:
            title = comment
        else:
            found.setdefault(title, []).append(name)
    return found


def page_table() -> str:
    """Return the table of docs/python.md."""
    return "\n".join(_page_lines())


def _page_lines() -> Iterator[str]:
    for title, names in groups().items():
        yield f"\n| {title} | |\n|---|---|"
        for name in names:
            thing = getattr(importlib.import_module(f"datasets_cli.{TABLE[name]}"), name)
            text = inspect.getdoc(thing) or ""
            sentence = " ".join(text.partition("\n\n")[0].split()).replace("``", "`")
            yield f"| `{name}` | {sentence.replace('|', chr(92) + '|')} |"


def with_table(page: str) -> str:
    """Return the page with its table written again."""
    begin, end = "<!-- names: written by tests.support.public_names -->", "<!-- end of names -->"
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{page_table()}\n\n{end}{after}"


if __name__ == "__main__":
    STUB.write_text(stub(), encoding="utf-8")
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    for arguments in (["check", "--fix", "-q"], ["format", "-q"]):
        subprocess.run([sys.executable, "-m", "ruff", *arguments, STUB], check=True)
