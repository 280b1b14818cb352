"""A command: help that fits every terminal, and errors that name all missing arguments."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterable
from functools import partial
from typing import Any

from typer.core import TyperCommand

from datasets_cli.cli.parser.values import convert_lazily
from datasets_cli.errors import RldsError, UsageError, arguments_named

_NEGATIVE = re.compile(r"-[\d.]")
MOST_COLUMNS = 100
FEWEST_COLUMNS = 20
BESIDE_COLUMNS = 60
"""The narrowest terminal in which descriptions stand beside the names of options."""


class Command(TyperCommand):
    """A command of ``rlds``; its epilog has one example a line."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, with the global options if a line is completed."""
        own = convert_lazily(super().get_params(ctx))
        return [*own, *ctx.find_root().command.params] if ctx.resilient_parsing else own

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        for paragraph in (self.help or "").split("\n\n"):
            formatter.write_paragraph()
            formatter.write(_wrapped(" ".join(paragraph.split()), formatter.width, "  "))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        write_options(self.get_params(ctx), ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Examples"):
            for example in self._examples:  # a long one continues further to the right
                formatter.write(_wrapped(example, formatter.width, "      "))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; one error names all that are missing."""
        ctx.ignore_unknown_options = any(map(_NEGATIVE.match, args))  # else they are options
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if type(error).__name__ == "MissingParameter":
                raise self._all_missing(ctx) from error
            if "unexpected extra argument" in str(error):
                raise self._too_many(ctx, str(error)) from error
            raise

    def invoke(self, ctx: Any) -> Any:
        try:
            with arguments_named(partial(_as_typed, ctx)):
                return super().invoke(ctx)
        except SystemExit as error:  # its code would look like an exit code of rlds
            raise RldsError(
                f"User code called sys.exit({error}).",
                found=error.code,
                advice="Raise an error instead, or return.",
            ) from error

    @property
    def _examples(self) -> list[str]:
        return (self.epilog or "").splitlines()

    def _all_missing(self, ctx: Any) -> UsageError:
        # The parser stores the arguments that exist in params before it reports missing ones.
        missing = [
            f"{each.opts[0]} " * (each.param_type_name == "option") + str(each.metavar)
            for each in self.params
            if each.required and ctx.params.get(each.name) in (None, (), [])
        ]
        shown = "".join(f" Example: {example}." for example in self._examples[:1])
        path = ctx.command_path
        return UsageError(
            f"{path} needs {' and '.join(missing)}.{shown}",
            expected=missing,
            advice=f"See: {path} --help",
        )

    def _too_many(self, ctx: Any, text: str) -> UsageError:
        # The parser lists the extra arguments in brackets.
        extra = ", ".join(text.rpartition("(")[2].rstrip(").").split())
        each = [f"one {each.metavar}" for each in self.params if each.param_type_name != "option"]
        takes = " and ".join(each) or "no argument"
        return UsageError(
            f"{ctx.command_path} takes {takes}; unexpected: {extra}.",
            expected=takes,
            found=extra,
            advice=f"See: {ctx.command_path} --help",
        )


def _as_typed(ctx: Any, name: str, value: str) -> str:
    """Return an argument of a verb as it is typed: ``--name value`` or ``NAME``."""
    parameters = (*ctx.command.params, *ctx.find_root().command.params)
    parameter = next((each for each in parameters if each.name == name), None)
    if parameter is None:
        return f"{name}={value}" if value else name
    if parameter.param_type_name == "argument":
        return str(parameter.metavar)
    flag, typed = str(parameter.opts[-1]), value.strip("'\"")
    typed = typed.lower() if typed in ("True", "False") else typed
    return f"{flag} {typed}" if typed and not parameter.is_flag else flag


def help_width() -> int:
    """Return the width of help; typer would use 50 columns on a narrower terminal."""
    return max(FEWEST_COLUMNS, min(MOST_COLUMNS, shutil.get_terminal_size().columns))


def write_options(parameters: Iterable[Any], context: Any, formatter: Any) -> None:
    """Write arguments and options with their help."""
    records = [(each, each.get_help_record(context)) for each in parameters]
    for title, kind in (("Arguments", "argument"), ("Options", "option")):
        rows = [record for each, record in records if record and each.param_type_name == kind]
        # Typer puts the type of an argument in Python behind its name.
        write_pairs(formatter, title, [(name.partition(" <")[0], text) for name, text in rows])


def write_pairs(formatter: Any, title: str, rows: list[tuple[str, str]]) -> None:
    """Write names with their descriptions: beside them, or below on a narrow terminal."""
    if rows:
        with formatter.section(title):
            formatter.write_dl(rows, col_max=30 if formatter.width >= BESIDE_COLUMNS else 4)


def _wrapped(text: str, width: int, rest: str) -> str:
    # Names of options are not broken at hyphens.
    lines = textwrap.wrap(
        text, width, initial_indent="  ", subsequent_indent=rest, break_on_hyphens=False
    )
    return "\n".join([*lines, ""])
