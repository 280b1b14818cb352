"""What every command shares: the global options, and how it speaks to people and programs."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import typer

from datasets_cli.config import Config
from datasets_cli.errors import UsageError
from datasets_cli.progress import Progress, Silent


@dataclass(frozen=True)
class State:
    """The global options of one run.

    Args:
        config: root, mirrors, offline mode.
        json: print one JSON document on stdout, errors as one on stderr, and nothing else.
        quiet: print only ids or paths, and no notes.
    """

    config: Config
    json: bool = False
    quiet: bool = False

    def emit(self, document: Any, lines: Sequence[str], brief: Sequence[str] = ()) -> None:
        """Print a result: as JSON, briefly, or for people.

        Args:
            document: JSON values, for ``--json``.
            lines: for people.
            brief: for ``--quiet``.
        """
        shown = brief if self.quiet else lines
        plain = "\n".join(map(printable, shown))
        text = json.dumps(document, indent=1, default=str) if self.json else plain
        try:
            if text:
                print(text, flush=True)
        except BrokenPipeError:
            raise ReaderGone from None

    def note(self, text: str) -> None:
        """Tell a person something that is not the result."""
        if not (self.quiet or self.json):
            print(printable_message(text), file=sys.stderr)

    def progress(self) -> Progress | None:
        """Return who is told of the work: no one in a quiet run, else bars on a terminal."""
        return Silent() if self.quiet or self.json else None

    @property
    def interactive(self) -> bool:
        """Whether there is a person to ask."""
        return sys.stdin.isatty() and sys.stderr.isatty()

    def confirm(self, question: str, *, yes: bool) -> None:
        """Return if the user agrees.

        Raises:
            UsageError: there is no terminal to ask on, and ``--yes`` was not given.
            typer.Exit: the user says no.
        """
        if yes:
            return
        if not self.interactive:
            raise UsageError(f"{question} There is no terminal to ask on: pass --yes.")
        if not typer.confirm(question, err=True):
            raise typer.Exit(1)


class ReaderGone(BaseException):
    """The reader of our output has closed it; the option parser would call that an error."""


def state_of(context: typer.Context) -> State:
    """Return the state that the global options made."""
    state = context.obj
    assert isinstance(state, State)
    return state


def printable(text: str) -> str:
    r"""Return one line of text for a terminal, with what is not printable as Python escapes it.

    A manifest, or a publisher, may say anything, such as what moves the cursor.

    >>> printable("a\x1b[2Jb\nc")
    'a\\x1b[2Jb\\nc'
    """
    if text.isprintable():
        return text
    # Python calls no space but " " printable; a citation may have others.
    return "".join(
        char
        if char.isprintable() or unicodedata.category(char) == "Zs"
        else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def printable_message(text: str) -> str:
    """Return a message for a terminal; it may have several lines, all but the first indented."""
    return "\n  ".join(map(printable, text.split("\n  ")))


def table(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return aligned lines under a heading; plain, because rich takes half a second over 900 rows.

    Args:
        rows: equal keys each; a heading that begins with ``>`` is aligned to the right.
    """
    if not rows:
        return []
    headings = list(rows[0])
    widths = [max(len(h.lstrip(">")), *(len(row[h]) for row in rows)) for h in headings]
    lines = []
    for row in [{heading: heading.lstrip(">") for heading in headings}, *rows]:
        cells = [
            row[heading].rjust(width) if heading.startswith(">") else row[heading].ljust(width)
            for heading, width in zip(headings, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def human_bytes(size: int | None) -> str:
    """Return a size as people read it.

    >>> human_bytes(137_721_019)
    '137.7 MB'
    """
    if size is None:
        return "?"
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def human_count(count: int | None) -> str:
    """Return a number with thousands set apart, or ``?``."""
    return "?" if count is None else f"{count:,}"
