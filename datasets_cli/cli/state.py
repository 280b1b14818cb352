"""The global options, and the output of commands for people and programs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from datasets_cli.cli.terminal import fitting, has_colour, table, terminal_width
from datasets_cli.config import Config
from datasets_cli.core.quantities import printable
from datasets_cli.core.system_errors import is_full
from datasets_cli.errors import DiskFull, RldsError, UsageError

if TYPE_CHECKING:
    from datasets_cli.core.progress import Progress

Results = TypeVar("Results")

COUNTED = "with manifest, tables and raw files"
"""The parts of the disk usage of a dataset besides its data."""

ASCII: dict[int, Any] = {
    **dict.fromkeys(range(0x2500, 0x2580), "+"),  # lines, blocks, braille
    **dict.fromkeys(range(0x2580, 0x25A0), "#"),
    **dict.fromkeys(range(0x2800, 0x2900), ":"),
    **str.maketrans("─│░▚…", "-|.%~"),
}
"""The characters of plots, by the capabilities of the terminal."""

COLOUR = re.compile(r"(\x1b\[(?:0|3[1-3])m)")  # the colour codes of a state


@dataclass(frozen=True)
class State:
    """The global options of one run."""

    config: Config
    json: bool = False  # stdout has one document, and stderr an object a line
    quiet: bool = False  # print only ids or paths, without notes

    def with_limits(self, texts: Sequence[str] | None) -> State:
        """Return the state with further limits; see ``Config.with_limits``."""
        return replace(self, config=self.config.with_limits(texts or ()))

    def emit(self, document: Any, lines: Sequence[str], brief: Sequence[str] = ()) -> None:
        """Print a result: as JSON, briefly, or for people."""
        shown = brief if self.quiet else lines
        plain = "\n".join(map(_printable_row, shown))
        text = json.dumps(document, indent=1, default=str) if self.json else plain
        if text:
            write(text)

    def emit_all(self, work: Callable[[], Results], emit: Callable[[Results], None]) -> None:
        """Work on several datasets, and print the results even if some failed."""
        try:
            results = work()
        except RldsError as error:
            if error.results is not None:
                emit(error.results)
            raise
        emit(results)

    def print_part(self, lines: Sequence[str]) -> None:
        """Print part of a result immediately for people; ``emit`` prints it for programs."""
        if not (self.json or self.quiet):
            write("\n".join(map(_printable_row, lines)))

    def note(self, text: str) -> None:
        """Print a note for people that is not part of the result."""
        if not (self.quiet or self.json):
            print(fitting(printable_message(text)), file=sys.stderr)

    def table(self, rows: Sequence[Mapping[str, str]], spare: Sequence[str]) -> list[str]:
        """Return the lines of a table, and note the columns that do not fit."""
        lines = table(rows, self.width, spare)
        names = [heading.lstrip(">") for heading in spare if lines]
        if omitted := [name for name in names if name not in lines[0]]:
            self.note(f"Not shown, because the terminal is narrow: {', '.join(omitted)}.")
        return lines

    @property
    def width(self) -> int | None:
        """The width of the terminal of the result; None if lines are not cut."""
        return None if self.json or self.quiet else terminal_width()

    def progress(self) -> Progress | None:
        """Return the progress display: none in a quiet run, JSON on stderr for programs."""
        from datasets_cli.core.progress import silent
        from datasets_cli.core.progress_display import JsonLines

        return silent if self.quiet else JsonLines() if self.json else None

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments of a long-running verb: its progress and the configuration."""
        return {"progress": self.progress(), "config": self.config}

    @property
    def interactive(self) -> bool:
        """Whether a person can answer questions."""
        return sys.stdin.isatty() and sys.stderr.isatty()

    def confirm(self, question: str, *, yes: bool) -> None:
        """Return if the user agrees."""
        if yes:
            return
        if not self.interactive:
            raise UsageError(
                f"{question} Cannot ask, because stdin is not a terminal.",
                argument="yes",
                advice="Add --yes to agree.",
            )
        if not typer.confirm(question, err=True):
            raise typer.Exit(1)


def write(text: str) -> None:
    """Print on stdout and flush."""
    try:
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"  # stdout may be closed
        try:
            text.encode(encoding)
        except UnicodeEncodeError:
            text = text.translate(ASCII).encode(encoding, "replace").decode(encoding)
        print(text, flush=True)
    except BrokenPipeError:
        raise ReaderGone from None
    except OSError as error:
        raise output_error(error) from error


def output_error(error: OSError) -> RldsError:
    """Return the error of a failed write to stdout."""
    text = f"The output cannot be written: {error.strerror or error}. Nothing else is affected."
    return DiskFull(text) if is_full(error) else RldsError(text)


class ReaderGone(BaseException):
    """The reader of our output has closed it; the option parser would call that an error."""


def state_of(context: typer.Context) -> State:
    """Return the state from the global options."""
    state = context.obj
    assert isinstance(state, State)
    return state


def _printable_row(text: str) -> str:
    """Return one line of a result as ``printable`` does, but with the colours of a terminal."""
    if not has_colour():
        return printable(text)
    return "".join(
        part if number % 2 else printable(part) for number, part in enumerate(COLOUR.split(text))
    )


def printable_message(text: str) -> str:
    """Return a message for a terminal; it may have several lines, all but the first indented."""
    return "\n  ".join(map(printable, text.split("\n  ")))
