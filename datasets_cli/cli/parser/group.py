"""The ``rlds`` command: a table of commands that are imported when they run."""

from __future__ import annotations

import inspect
import textwrap
from collections import UserDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import CompletionItem, TyperGroup  # type: ignore[attr-defined]

from datasets_cli.cli.parser.command import Command, write_options, write_pairs
from datasets_cli.cli.parser.values import convert_lazily
from datasets_cli.errors import UsageError

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
"""Commands of other tools, and the commands of ``rlds`` that do the same."""


@dataclass(frozen=True)
class CommandEntry:
    """A command that is not imported yet."""

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
        alone.command(name, cls=Command, help=about, epilog=epilog)(function)
        return typer.main.get_command(alone)


class Commands(UserDict[str, Any]):
    """Typer's commands by name, each built at its first use."""

    def __getitem__(self, name: str) -> Any:
        if isinstance(entry := self.data[name], CommandEntry):
            self.data[name] = entry.build(name)
        return self.data[name]


class Group(TyperGroup):
    """A group whose commands stand in a table; it suggests commands for other tools' names."""

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
        """Read the global options, which may stand before or after the command."""
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
