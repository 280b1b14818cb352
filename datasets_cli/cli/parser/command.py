"""A command: its help has examples, and a wrong call is told all that is wrong with it."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

from datasets_cli.cli.parser.help import write_examples, write_options, write_paragraphs
from datasets_cli.cli.parser.values import convert_lazily
from datasets_cli.errors import RldsError, UsageError


class Command(TyperCommand):
    """One of our commands; its epilog has an example a line."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the arguments and options; where a line is completed, the global ones, too."""
        own = convert_lazily(super().get_params(ctx))
        return [*own, *ctx.find_root().command.params] if ctx.resilient_parsing else own

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write what the command does."""
        write_paragraphs(formatter, self.help or "")

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options."""
        write_options(self.get_params(ctx), ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples."""
        write_examples(formatter, self._examples)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; all that is missing is named at once."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if type(error).__name__ == "MissingParameter":
                raise self._all_missing(ctx) from error
            if "unexpected extra argument" in str(error):
                raise self._too_many(ctx, str(error)) from error
            raise

    def invoke(self, ctx: Any) -> Any:
        """Call the function of the command."""
        try:
            return super().invoke(ctx)
        except SystemExit as error:  # its code would be taken for one of ours
            raise RldsError(
                "A function, module or recipe that was called ended the program (SystemExit: "
                f"{error}). Let it raise an error instead, or return."
            ) from error

    @property
    def _examples(self) -> list[str]:
        return (self.epilog or "").splitlines()

    def _all_missing(self, ctx: Any) -> UsageError:
        # What was given is in params already: the parser reads it before it asks for the rest.
        missing = [
            f"{each.opts[0]} " * (each.param_type_name == "option") + str(each.metavar)
            for each in self.params
            if each.required and not ctx.params.get(each.name)
        ]
        shown = "".join(f" Example: {example}." for example in self._examples[:1])
        path = ctx.command_path
        return UsageError(f"{path} needs {' and '.join(missing)}.{shown} See: {path} --help")

    def _too_many(self, ctx: Any, text: str) -> UsageError:
        # The parser names what is too much in brackets.
        extra = ", ".join(text.rpartition("(")[2].rstrip(").").split())
        takes = [f"one {each.metavar}" for each in self.params if each.param_type_name != "option"]
        return UsageError(
            f"{ctx.command_path} takes {next(iter(takes), 'no argument')}, and was given {extra} "
            f"as well. See: {ctx.command_path} --help"
        )
