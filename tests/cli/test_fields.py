"""Options of commands: their declarations, their values and their help."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal

import pytest
import typer
from typer.testing import CliRunner

from datasets_cli.cli.commands import Rlds
from datasets_cli.cli.main import app
from datasets_cli.cli.parser.fields import (
    GivenOptions,
    LazyConversion,
    convert_lazily,
    kinds_of,
    options_of,
    with_options,
)

ROOT: Any = typer.main.get_command(app)


def kind_of(parameter: Any) -> str:
    """Return all of a parameter that the conversion of its values depends on."""
    declared = parameter.type_descriptor
    info = declared.parameter_info
    return f"{declared.annotation} {info.min} {info.max}"


KINDS = {
    kind_of(parameter): parameter
    for command in (ROOT, *ROOT.commands.values())
    for parameter in command.params
}
VALUES = [None, "text", "7", "-1", "", 7, 1.5, True, False, "yes", [], ["a", "b"], ("a",), ("7", 8)]


def outcome(conversion: Any, value: object, parameter: Any) -> tuple[object, ...]:
    """Return a converted value with its type, or the error."""
    try:
        found = conversion.coerce(value, param=parameter, ctx=None)
    except Exception as error:
        return type(error), str(error)
    return type(found), found


@pytest.mark.parametrize("kind", KINDS)
def test_every_value_is_what_typer_makes_of_it(kind: str) -> None:
    parameter = KINDS[kind]
    typers = parameter.get_runtime_param()
    ours = convert_lazily([parameter])[0].get_runtime_param()
    for value in VALUES:
        assert outcome(ours, value, parameter) == outcome(typers, value, parameter), value


def test_parameters_that_are_asked_for_twice_are_changed_once() -> None:
    fresh: Any = typer.main.get_command(app)
    parameter = fresh.commands["download"].params[0]
    once = convert_lazily([parameter])[0].get_runtime_param()
    assert isinstance(once, LazyConversion)
    assert convert_lazily([parameter])[0].get_runtime_param() is once


def test_parameters_of_a_typer_without_pydantic_stay_as_they_are() -> None:
    parameter = object()
    assert convert_lazily([parameter]) == [parameter]


ENTRIES = {name: each for group in Rlds.groups.values() for name, each in group.items()}


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """How rows are drawn."""

    seed: int = field(default=0, metadata={"help": "Seed of the draws."})
    rate: float | None = field(default=None, metadata={"metavar": "G", "help": "Rate of draws."})
    replace: bool = field(default=False, metadata={"help": "Draw with replacement."})
    keys: str | Sequence[str] = field(default=(), metadata={"help": "Keys.", "default": "all"})
    how: Literal["one", "two"] = field(default="one", metadata={"flag": "--by", "help": "How."})
    pool: Executor | None = None
    check: bool = field(default=True, metadata={"flag": "--no-check", "help": "Skip checks."})


@dataclass(frozen=True)
class Place:
    """The path of a file."""

    path: str | None = field(default=None, metadata={"help": "Path of a file."})


def called(*arguments: str) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    app = typer.Typer(add_completion=False, rich_markup_mode=None)

    @app.command()
    @with_options
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


def test_a_command_gets_the_options_of_its_command_line_and_no_others() -> None:
    found = called("x", "--seed", "3", "--replace", "--keys", "a", "--keys", "b", "--by", "two")
    assert found["drawing"] == {"seed": 3, "replace": True, "keys": ["a", "b"], "how": "two"}
    assert (found["ids"], found["place"]) == (["x"], {})
    assert called("--no-check")["drawing"] == {"check": False}
    found = called("--path", "p", "--rate", "0.5", "--seed", "0")
    assert (found["drawing"], found["place"]) == ({"rate": 0.5, "seed": 0}, {"path": "p"})


def test_a_command_declares_no_option_that_its_verb_declares() -> None:
    twice = []
    for name, entry in ENTRIES.items():
        command: Any = entry.function()
        declared = {each.name for kind in kinds_of(command).values() for each in fields(kind)}
        twice += [
            f"{name}: {option}" for option in declared & {*inspect.signature(command).parameters}
        ]
    assert len(ENTRIES) > 14 and not twice


@pytest.mark.parametrize("name", ENTRIES)
def test_the_help_of_every_option_is_a_sentence(name: str) -> None:
    for option in ENTRIES[name].build(name).params:
        sentence = option.help.partition(" [default: ")[0]
        assert len(sentence) > 10 and sentence.endswith((".", ".)")), option.name


def test_a_value_of_the_wrong_type_is_rejected() -> None:
    assert called("--seed", "x")["code"] == called("--by", "three")["code"] == 2
    assert called("--pool", "x")["code"] == 2  # an executor cannot be typed


def test_help_is_the_sentence_of_the_field_and_its_default() -> None:
    lines = [" ".join(line.split()) for line in called("--help")["output"].splitlines()]
    assert "--seed N Seed of the draws. [default: 0]" in lines
    assert "--rate G Rate of draws." in lines
    assert "--replace Draw with replacement." in lines
    assert "--keys TEXT Keys. [default: all]" in lines
    assert "--by one|two How. [default: one]" in lines
    assert "--path TEXT Path of a file." in lines
