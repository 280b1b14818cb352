"""Options of a command that a dataclass declares: names, types and help, and what is given."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, fields
from importlib import import_module
from typing import Annotated, Any, Literal

import typer
from typer.testing import CliRunner

from datasets_cli.cli.commands import Rlds
from datasets_cli.cli.parser.fields import GivenOptions, options_of


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """How rows are drawn.

    Args:
        seed: of the draws, where ``replace`` is so; and of more.
        rate: of ``"a b"``, or ``"ab"``, as ``Sampler`` has it. Not less.
        replace: draw with replacement.
        keys: of columns; by default those of ``"Storage"``.
        how: it is done.
        pool: that draws.
        check: refuse what differs.
    """

    seed: int = 0
    rate: float | None = field(default=None, metadata={"metavar": "G"})
    replace: bool = False
    keys: str | Sequence[str] = ()
    how: Literal["one", "two"] = field(default="one", metadata={"flag": "--by", "help": "How."})
    pool: Executor | None = None
    check: bool = field(default=True, metadata={"flag": "--no-check", "help": "Take it."})


@dataclass(frozen=True)
class Place:
    """Where it is."""

    path: str | None = None


def called(*arguments: str) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    app = typer.Typer(add_completion=False, rich_markup_mode=None)

    @app.command()
    @options_of(drawing=Drawing, place=Place)
    def draw(
        *,
        ids: Annotated[list[str] | None, typer.Argument()] = None,
        drawing: GivenOptions,
        place: GivenOptions,
    ) -> None:
        """Draw rows."""
        seen.update(ids=ids, drawing=drawing, place=place)

    done = CliRunner().invoke(app, [*arguments], terminal_width=100)
    return {"code": done.exit_code, "output": done.output, **seen}


def test_a_command_gets_what_was_given_and_nothing_else() -> None:
    found = called("x", "--seed", "3", "--replace", "--keys", "a", "--keys", "b", "--by", "two")
    assert found["drawing"] == {"seed": 3, "replace": True, "keys": ["a", "b"], "how": "two"}
    assert (found["ids"], found["place"]) == (["x"], {})
    assert called("--no-check")["drawing"] == {"check": False}
    found = called("--path", "p", "--rate", "0.5", "--seed", "0")
    assert (found["drawing"], found["place"]) == ({"rate": 0.5, "seed": 0}, {"path": "p"})


def test_an_option_of_a_verb_stands_in_what_the_verb_takes_alone() -> None:
    entries = [entry for group in Rlds.groups.values() for entry in group.values()]
    twice = []
    for entry in entries:
        module, _, function = entry.place.partition(":")
        command = getattr(import_module(module), function)
        declared = {each.name for kind in command.__kinds__.values() for each in fields(kind)}
        twice += [f"{function}: {name}" for name in declared & {*own_parameters(command)}]
    assert len(entries) > 14 and not twice


def own_parameters(command: Any) -> list[str]:
    """Return the parameters that a command has besides those of dataclasses."""
    return [*inspect.signature(command.__wrapped__).parameters]


def test_a_value_of_another_type_is_refused() -> None:
    assert called("--seed", "x")["code"] == called("--by", "three")["code"] == 2
    assert called("--pool", "x")["code"] == 2  # no command line has one


def test_help_is_the_first_clause_of_what_the_dataclass_says() -> None:
    lines = [" ".join(line.split()) for line in called("--help")["output"].splitlines()]
    assert "--seed N Of the draws, where --replace is so. [default: 0]" in lines
    assert "--rate G Of 'a b', or ab, as Sampler has it." in lines
    assert "--replace Draw with replacement." in lines
    assert "--keys TEXT Of columns. [default: those of Storage]" in lines
    assert "--by one|two How. [default: one]" in lines
    assert lines[lines.index("--path TEXT") + 1] == "--help Show this message and exit."
