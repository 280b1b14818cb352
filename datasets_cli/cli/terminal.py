"""The width and colours of the terminal, and text that fits its width."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence

from datasets_cli.errors import UsageError

COLOURS = {"installed": "32", "unchecked": "33", "unverified": "33", "newer": "33", "damaged": "31"}
NARROWEST = 20


def terminal_width() -> int | None:
    """Return the width of the terminal, or None if stdout is not a terminal."""
    # `COLUMNS` overrides the width of the terminal, as in other programs.
    if not _is_terminal():
        return None
    text = os.environ.get("COLUMNS", "")
    if text and not text.isdecimal():
        raise UsageError(
            f"COLUMNS is {text!r}; expected a number of columns, such as 80.",
            argument="COLUMNS",
            expected="a number",
            found=text,
        )
    return max(NARROWEST, shutil.get_terminal_size().columns)


def has_colour() -> bool:
    """Return whether stdout shows colour: a terminal that is not dumb, and no ``NO_COLOR``."""
    return _is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def coloured(state: str) -> str:
    """Return the name of a state in its colour, if stdout shows colour."""
    return _painted(state) if has_colour() else state


def _painted(state: str) -> str:
    return f"\x1b[{COLOURS[state]}m{state}\x1b[0m" if state in COLOURS else state


def cut(text: str, width: int) -> str:
    """Return a text of at most ``width`` columns; ``…`` replaces the rest."""
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"


def wrapped(text: str, width: int | None, first: str = "", rest: str = "") -> list[str]:
    """Return the lines of a text, wrapped between words."""
    if width is None:
        return [f"{first}{text}"]
    lines = textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
    )
    return lines or [first.rstrip()]


def fitted(lines: Iterable[str], width: int | None) -> list[str]:
    """Return the lines with long ones wrapped and indented."""
    # Without colours, whose codes have no width.
    shown = []
    for line in lines:
        indent = line[: len(line) - len(line.lstrip())]
        is_short = width is None or len(line) <= width
        shown += [line] if is_short else wrapped(line.strip(), width, indent, f"{indent}    ")
    return shown


def fitting(text: str) -> str:
    """Return a text for stderr, wrapped between words if stderr is a terminal."""
    if not sys.stderr.isatty():
        return text
    width = max(NARROWEST, shutil.get_terminal_size().columns)
    indented = [(line, line[: len(line) - len(line.lstrip())]) for line in text.split("\n")]
    lines = [wrapped(line.strip(), width, blank, f"{blank}  ") for line, blank in indented]
    return "\n".join(line for several in lines for line in several)


def fact(name: str, text: str, width: int | None) -> list[str]:
    """Return the lines of one fact: its name, with the text beside it.

    >>> fact("licence", "CC BY 4.0", None)
    ['licence            CC BY 4.0']
    """
    # On a narrow terminal the text has the whole line below the name.
    indent = 19 if width is None or width >= 60 else 2
    if width is not None and text and 19 + len(text.split(maxsplit=1)[0]) > width:
        # An address is not broken where it fits into one line.
        return [name, *wrapped(text, width, "  ", "  ")]
    return wrapped(text, width, f"{name:18} ", " " * indent)


def table(
    rows: Sequence[Mapping[str, str]],
    width: int | None = None,
    spare: Sequence[str] = (),
) -> list[str]:
    """Return aligned lines under a heading; ``spare`` columns are left out if they do not fit."""
    # A heading that begins with `>` is aligned to the right; a width of None cuts nothing.
    if not rows:
        return []
    headings = list(rows[0])
    widths = {
        heading: max(len(heading.lstrip(">")), *(len(row[heading]) for row in rows))
        for heading in headings
    }
    for heading in spare:
        if width is None or _total(widths) <= width:
            break
        del widths[heading]
    if width is not None and spare and _total(widths) > width:
        # Not aligned either: a cut id cannot be copied.
        widths = dict.fromkeys(widths, 0)
    return [*_lines(rows, widths, width)]


def _total(widths: Mapping[str, int]) -> int:
    # Two blanks between columns; a column without a heading has reasons, which may be cut.
    return sum(width + 2 for heading, width in widths.items() if heading) - 2


def _lines(
    rows: Sequence[Mapping[str, str]], widths: Mapping[str, int], width: int | None
) -> Iterator[str]:
    in_colour = has_colour()
    for row in [{heading: heading.lstrip(">") for heading in widths}, *rows]:
        cells = [
            row[heading].rjust(size) if heading.startswith(">") else row[heading].ljust(size)
            for heading, size in widths.items()
        ]
        line = "  ".join(cells).rstrip(" -" if widths.get("ID") == 0 else None)
        line = line if width is None else cut(line, width)
        # Colour comes last: its codes have no width.
        state = row.get("STATE", "")
        yield line.replace(f"  {state}", f"  {_painted(state)}", 1) if in_colour else line
