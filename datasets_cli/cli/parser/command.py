"""Commands and groups of the command line, and how they end."""

from __future__ import annotations

import inspect
import re
import shutil
import signal
import sys
import textwrap
import threading
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from types import FrameType
from typing import Any, ClassVar

import typer
from typer.core import CompletionItem, TyperCommand, TyperGroup  # type: ignore[attr-defined]

from datasets_cli.cli.parser.fields import convert_lazily, with_options
from datasets_cli.errors import RldsError, UsageError, arguments_named


class Interrupted(BaseException):
    """SIGINT or SIGTERM has arrived; ``code`` is the exit code of shells, 128 plus its number."""

    # Not a KeyboardInterrupt: typer turns that into an Abort, which has no code.

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.code = 128 + number


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise ``Interrupted`` for SIGINT and SIGTERM within the block."""
    original = sys.unraisablehook

    def repeat_interrupt(unraisable: sys.UnraisableHookArgs) -> None:
        # Python drops an exception that arrives in a finalizer or in a callback of a weak
        # reference, and each import has such callbacks. The signal then comes once more.
        if isinstance(unraisable.exc_value, Interrupted):
            number = unraisable.exc_value.code - 128
            main_thread = threading.main_thread().ident
            threading.Timer(_REPEAT_SECONDS, signal.pthread_kill, (main_thread, number)).start()
        else:
            original(unraisable)

    handlers = {
        number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)
    }
    sys.unraisablehook = repeat_interrupt
    try:
        yield
    finally:
        sys.unraisablehook = original
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted(number)


_REPEAT_SECONDS = 0.05
_NEGATIVE = re.compile(r"-[\d.]")
MOST_COLUMNS = 100
FEWEST_COLUMNS = 20
BESIDE_COLUMNS = 60
"""The minimum width of a terminal for descriptions in the same line as the options."""


class Command(TyperCommand):
    """A command of ``rlds``; its epilog has one example per line."""

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
    """Return an argument of a verb as users type it: ``--name value`` or ``NAME``."""
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


OTHER_WORDS = {
    **dict.fromkeys(("rm", "remove", "del", "uninstall"), "delete"),
    **dict.fromkeys(("show", "describe", "cat"), "info"),
    **dict.fromkeys(("ls",), "list"),
    **dict.fromkeys(("find", "grep"), "search"),
    **dict.fromkeys(("statistics", "summary", "head"), "stats"),
    **dict.fromkeys(("get", "install", "pull", "fetch", "add"), "download"),
    **dict.fromkeys(("where", "which"), "path"),
    **dict.fromkeys(("clean", "gc"), "prune"),
    **dict.fromkeys(("size", "usage"), "du"),
    **dict.fromkeys(("map", "process"), "preprocess"),
    **{"check": "verify", "fix": "repair", "import": "scan", "help": "--help"},
}
"""Commands of other tools, and the equivalent commands of ``rlds``."""


@dataclass(frozen=True)
class CommandEntry:
    """A command that is imported on its first use."""

    place: str  # module:function
    about: str  # the first sentence of its docstring, without the full stop

    def function(self) -> Callable[..., None]:
        """Import the function."""
        module, _, name = self.place.partition(":")
        return getattr(import_module(module), name)  # type: ignore[no-any-return]

    def build(self, name: str) -> Any:
        """Return typer's command; its help and its examples are parts of the docstring."""
        function = self.function()
        about, _, examples = inspect.cleandoc(function.__doc__ or "").partition("\n\nExamples:\n")
        alone = typer.Typer(
            add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
        )
        epilog = textwrap.dedent(examples)
        alone.command(name, cls=Command, help=about, epilog=epilog)(with_options(function))
        return typer.main.get_command(alone)


class Commands(UserDict[str, Any]):
    """Typer's commands by name, each built at its first use."""

    def __getitem__(self, name: str) -> Any:
        if isinstance(entry := self.data[name], CommandEntry):
            self.data[name] = entry.build(name)
        return self.data[name]


class Group(TyperGroup):
    """A group with a table of commands; it suggests commands for the names of other tools."""

    groups: ClassVar[Mapping[str, Mapping[str, CommandEntry]]] = {}

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        entries = {name: each for group in self.groups.values() for name, each in group.items()}
        self.commands: Any = Commands(entries)

    def list_commands(self, ctx: Any) -> list[str]:
        return [*self.commands]

    def get_params(self, ctx: Any) -> list[Any]:
        return convert_lazily(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the global options, which may come before or after the command."""
        ordered = args if ctx.resilient_parsing else in_front(args, self.get_params(ctx))
        return super().parse_args(ctx, ordered)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the global options, then the commands."""
        write_options(self.get_params(ctx), ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands in their groups, each with its first sentence."""
        longest = max(map(len, self.commands))
        for title, group in self.groups.items():
            rows = [(name.ljust(longest), each.about) for name, each in group.items()]
            write_pairs(formatter, title, rows)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Return the commands and global options that begin with a word."""
        entries = [item for group in self.groups.values() for item in group.items()]
        words = {name.partition(" ")[0]: each.about for name, each in reversed(entries)}
        commands = [CompletionItem(word, help=about) for word, about in reversed(words.items())]
        options = super(TyperGroup, self).shell_complete(ctx, incomplete)
        return [*(item for item in commands if item.value.startswith(incomplete)), *options]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the named command, or raise an error that suggests one."""
        name, path = args[0], ctx.command_path
        below = self._below(name)
        if below.commands and (
            name not in self.commands or (args[1:2] and args[1] in below.commands)
        ):
            return name, below, args[1:]
        if name not in self.commands and not name.startswith("-"):
            near = get_close_matches(name, self.commands, n=1)
            other = OTHER_WORDS.get(name, "")
            near_name = other if other in self.commands else next(iter(near), "")
            hint = f" Did you mean {path} {near_name}?" if near_name else ""
            shown = name if name.isprintable() and name.strip() else repr(name)
            raise UsageError(
                f"Unknown command {shown}.{hint}", found=name, advice=f"See: {path} --help"
            )
        return super().resolve_command(ctx, args)

    def _below(self, word: str) -> Group:
        """Return the group of the commands whose first of two words is this one."""
        start = f"{word} "
        names = [(name, each) for group in self.groups.values() for name, each in group.items()]
        entries = {name[len(start) :]: each for name, each in names if name.startswith(start)}
        below: type[Group] = type("Below", (Group,), {"groups": {"Commands": entries}})
        return below(name=word, rich_markup_mode=None)


def in_front(arguments: list[str], parameters: list[Any]) -> list[str]:
    """Return the arguments with the global options moved to the front."""
    options = {name: each for each in parameters if each.expose_value for name in each.opts}
    front: list[str] = []
    rest: list[str] = []
    waiting = iter(arguments)
    for argument in waiting:
        option = options.get(argument.partition("=")[0])
        if argument == "--":
            rest += [argument, *waiting]
        elif option is None:
            rest.append(argument)
        elif option.is_flag or "=" in argument:
            front.append(argument)
        else:
            value = next(waiting, None)
            if value is None:  # else the command would become its value
                raise UsageError(
                    f"{argument} needs a value: {argument} {option.metavar}.",
                    argument=option.name,
                    expected=option.metavar,
                )
            front += [argument, value]
    return front + rest
