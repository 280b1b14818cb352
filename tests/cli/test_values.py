"""Typed values become what typer makes of them; see also test_floors."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from datasets_cli.cli.main import app
from datasets_cli.cli.parser.fields import LazyConversion, convert_lazily

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
