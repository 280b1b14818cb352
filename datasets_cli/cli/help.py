"""The help of every command, drawn for the width of the terminal, and what wrong calls are told."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any

from typer.core import TyperCommand, TyperGroup

from datasets_cli.cli.terminal import wrapped
from datasets_cli.cli.values import convert_lazily
from datasets_cli.errors import UsageError

MOST_COLUMNS = 100
EXAMPLES = {
    "download": ("rlds download hopper-medium-v2", "rlds download 'hopper-*-v2' --dry-run"),
    "list": ("rlds list", "rlds list 'hopper-*'", "rlds list --installed"),
    "info": ("rlds info hopper-medium-v2",),
    "path": ('cd "$(rlds path hopper-medium-v2)"',),
    "verify": ("rlds verify", "rlds verify hopper-medium-v2 --deep"),
    "delete": ("rlds delete hopper-medium-v2", "rlds delete 'derived/*' --dry-run"),
    "convert": ("rlds convert hopper-medium-v2 --layout compact",),
    "data": ("rlds data", "rlds data train --json"),
    "preprocess": (
        "rlds preprocess hopper-medium-v2 --fn mycode:scale --out scaled",
        "rlds preprocess hopper-medium-v2 --where 'return > 1000' --cast float32 --out good",
        "rlds preprocess 'hopper-*' --fn mycode:scale --out '{name}-scaled' --save",
        "rlds preprocess --workers 4",
    ),
    "record": (
        "rlds record CartPole-v1 --episodes 100 --out cartpole-random",
        "rlds record CartPole-v1 --policy mycode:act --steps 50000 --out cartpole-mine",
    ),
    "repair": ("rlds repair", "rlds repair 'd4rl/*' --dry-run"),
    "prune": ("rlds prune --dry-run", "rlds prune --older-than 0"),
    "du": ("rlds du",),
    "scan": ("rlds scan", "rlds scan /data/minari"),
    "demo": ("rlds demo", "rlds demo --keep"),
}
OTHER_WORDS = {
    "rm": "delete",
    "remove": "delete",
    "del": "delete",
    "uninstall": "delete",
    "show": "info",
    "describe": "info",
    "cat": "info",
    "ls": "list",
    "search": "list",
    "find": "list",
    "get": "download",
    "install": "download",
    "pull": "download",
    "fetch": "download",
    "add": "download",
    "check": "verify",
    "where": "path",
    "which": "path",
    "fix": "repair",
    "clean": "prune",
    "gc": "prune",
    "size": "du",
    "usage": "du",
    "import": "scan",
    "map": "preprocess",
    "process": "preprocess",
    "help": "--help",
}


class Command(TyperCommand):
    """A command whose help fits the terminal and ends with an example."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the arguments and options, with ``--help``."""
        return convert_lazily(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write usage, description, arguments, options and examples."""
        formatter.write("\n".join(_page(self, ctx, EXAMPLES.get(str(self.name), ()))))

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

    def _all_missing(self, ctx: Any) -> UsageError:
        # What was given is in params already: the parser reads it before it asks for the rest.
        missing = [
            f"{param.opts[0]} {_metavar(param)}" if _is_option(param) else _noun(param)
            for param in self.params
            if param.required and not ctx.params.get(param.name)
        ]
        example = next(iter(EXAMPLES.get(str(self.name), ())), "")
        shown = f" Example: {example}." if example else ""
        return UsageError(
            f"{ctx.command_path} needs {' and '.join(missing)}.{shown} See: {ctx.command_path} "
            "--help"
        )

    def _too_many(self, ctx: Any, text: str) -> UsageError:
        # The parser names what is too much in brackets.
        extra = ", ".join(text.rpartition("(")[2].rstrip(").").split())
        takes = [_noun(param) for param in self.params if not _is_option(param)]
        return UsageError(
            f"{ctx.command_path} takes {f'one {takes[0]}' if takes else 'no argument'}, and was "
            f"given {extra} as well. See: {ctx.command_path} --help"
        )


class Group(TyperGroup):
    """The ``rlds`` command itself; other tools' words lead to ours."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the global options, with ``--help``."""
        return convert_lazily(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write usage, description, options, commands and an example."""
        lines = [*_page(self, ctx, ())]
        names = {name: self.commands[name] for name in self.list_commands(ctx)}
        pairs = [(name, _first_sentence(command)) for name, command in names.items()]
        lines += ["", *_section("Commands", pairs)]
        lines += ["", "Begin with: rlds list, or rlds demo"]
        formatter.write("\n".join([*lines, ""]))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that is called.

        Raises:
            UsageError: there is none of that name; the message has the likely one.
        """
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            near = get_close_matches(name, self.list_commands(ctx), n=1)
            meant = OTHER_WORDS.get(name) or next(iter(near), "")
            hint = f" Did you mean rlds {meant}?" if meant else ""
            shown = name if name.isprintable() and name.strip() else repr(name)
            raise UsageError(f"There is no command {shown}.{hint} See: rlds --help")
        return super().resolve_command(ctx, args)


def _page(command: Any, ctx: Any, examples: Iterable[str]) -> Iterator[str]:
    params = command.get_params(ctx)  # with --help
    arguments = [param for param in params if not _is_option(param)]
    options = [param for param in params if _is_option(param)]
    names = [str(argument.metavar) for argument in arguments]
    names += [f"{param.opts[0]} {_metavar(param)}" for param in options if param.required]
    tail = ["COMMAND ..."] if hasattr(command, "commands") else []
    usage = " ".join([*names, "[OPTION]...", *tail])
    yield from wrapped(usage, _width(), f"Usage: {ctx.command_path} ", "  ")
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        yield ""
        yield from wrapped(" ".join(paragraph.split()), _width(), "  ", "  ")
    for title, params in (("Arguments", arguments), ("Options", options)):
        pairs = [(_name(param), str(param.help or "")) for param in params if not param.hidden]
        if pairs:
            yield ""
            yield from _section(title, pairs)
    if examples:
        yield ""
        yield "Examples:"
        for example in examples:
            yield from wrapped(example, _width(), "  ", "      ")
    yield ""


def _section(title: str, pairs: list[tuple[str, str]]) -> Iterator[str]:
    """Yield a list of names and what they mean; on a narrow terminal one below the other."""
    yield f"{title}:"
    column = min(26, max(len(name) for name, _ in pairs) + 4)
    for name, text in pairs:
        head = f"  {name}"
        if _width() < 60 or len(head) > column - 2:
            yield head
            indent = " " * (6 if _width() < 60 else column)
            yield from wrapped(text, _width(), indent, indent)
        else:
            yield from wrapped(text, _width(), head.ljust(column), " " * column)


def _name(param: Any) -> str:
    if not _is_option(param):
        return str(param.metavar)
    names = ", ".join(sorted([*param.opts], key=len))
    return names if param.is_flag else f"{names} {_metavar(param)}"


def _metavar(param: Any) -> str:
    is_number = isinstance(param.default, int | float) and not isinstance(param.default, bool)
    return param.metavar or ("N" if is_number else "TEXT")


def _noun(argument: Any) -> str:
    """Return what an argument is, as a sentence has it: without the dots of several."""
    return str(argument.metavar).rstrip(".")


def _is_option(param: Any) -> bool:
    return bool(param.param_type_name == "option")


def _first_sentence(command: Any) -> str:
    text = " ".join(inspect.cleandoc(command.help or "").split("\n\n")[0].split())
    return text.partition(";")[0].partition(":")[0].rstrip(".")


def _width() -> int:
    return max(20, min(MOST_COLUMNS, shutil.get_terminal_size().columns))
