"""The help of every command: typer's, for terminals of every width, with examples."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable
from typing import Any

MOST_COLUMNS = 100
FEWEST_COLUMNS = 20
BESIDE_COLUMNS = 60
"""From here on there is room beside a name for what it means."""


def help_width() -> int:
    """Return the columns that help has; typer would take 50 of a narrower terminal."""
    return max(FEWEST_COLUMNS, min(MOST_COLUMNS, shutil.get_terminal_size().columns))


def write_paragraphs(formatter: Any, text: str) -> None:
    """Write paragraphs, in which no name of an option is broken at a hyphen."""
    for paragraph in text.split("\n\n"):
        formatter.write_paragraph()
        formatter.write(_wrapped(" ".join(paragraph.split()), formatter.width, "  "))


def write_options(parameters: Iterable[Any], context: Any, formatter: Any) -> None:
    """Write arguments and options with what they mean."""
    records = [(each, each.get_help_record(context)) for each in parameters]
    for title, kind in (("Arguments", "argument"), ("Options", "option")):
        rows = [record for each, record in records if record and each.param_type_name == kind]
        # Typer puts the type of an argument in Python behind its name.
        write_pairs(formatter, title, [(name.partition(" <")[0], text) for name, text in rows])


def write_pairs(formatter: Any, title: str, rows: list[tuple[str, str]]) -> None:
    """Write names with what they mean: beside them, or below them on a narrow terminal."""
    if rows:
        with formatter.section(title):
            formatter.write_dl(rows, col_max=30 if formatter.width >= BESIDE_COLUMNS else 4)


def write_examples(formatter: Any, examples: Iterable[str]) -> None:
    """Write examples; one that is too long for its line goes on further to the right."""
    with formatter.section("Examples"):
        for example in examples:
            formatter.write(_wrapped(example, formatter.width, "      "))


def _wrapped(text: str, width: int, rest: str) -> str:
    lines = textwrap.wrap(
        text, width, initial_indent="  ", subsequent_indent=rest, break_on_hyphens=False
    )
    return "\n".join([*lines, ""])
