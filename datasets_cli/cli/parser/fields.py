"""Options of a command that are the fields of a dataclass, which alone declares them.

    @options_of(options=PreprocessOptions)
    def preprocess(context: typer.Context, options: Given, dry_run: DryRun = False) -> None: ...

The command has an option for each field, and ``options`` is a dict of those that were given. The
help of an option is how the dataclass documents its field, up to the first semicolon or full stop;
the field's metadata may say ``help``, ``metavar`` or ``flag`` in its place.
"""

from __future__ import annotations

import functools
import inspect
import re
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import Field, fields
from types import NoneType
from typing import Annotated, Any, Literal

import typer

from datasets_cli.options import argument_docs, parameters_of

Given = dict[str, Any]
"""The options that a user gave, by the names of their fields."""

METAVARS: dict[Any, str] = {int: "N", float: "NUMBER", str: "TEXT", list[str]: "TEXT"}

_CLAUSE = re.compile(r"[;.](?:\s|$)")
_QUOTED = re.compile(r'``"(.*?)"``|``(.*?)``')


def options_of(**kinds: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator of a command that takes the fields of dataclasses as options."""

    def decorate(body: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(body, eval_str=True).parameters
        parameters: list[inspect.Parameter] = []
        for name, parameter in own.items():
            kind = kinds.get(name)
            parameters += [parameter] if kind is None else _parameters(kind)

        @functools.wraps(body)
        def command(**arguments: Any) -> None:
            given = {
                name: {
                    each.name: arguments.pop(each.name)
                    for each in fields(kind)
                    if each.name in arguments
                }
                for name, kind in kinds.items()
            }
            body(**arguments, **{name: _without_nothing(each) for name, each in given.items()})

        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        return command

    return decorate


def _without_nothing(given: Given) -> Given:
    return {
        name: value
        for name, value in given.items()
        if not (value is None or value is False or value in ([], ()))
    }


def _parameters(kind: type) -> Iterator[inspect.Parameter]:
    """Yield a parameter for each field whose values can be typed."""
    hints, docs = typing.get_type_hints(kind), argument_docs(kind)
    known = {each.name: each for each in fields(kind)}
    flags = {name: _flag(each) for name, each in known.items()}
    for each in (known[parameter.name] for parameter in parameters_of(kind)):
        typed = _typed(hints[each.name])
        if typed is not None:
            about = _help(docs.get(each.name, ""), flags)
            option = typer.Option(
                flags[each.name],
                help=each.metadata.get("help", about),
                metavar=each.metadata.get("metavar") or _metavar(typed),
            )
            annotation: Any = typed if typed is bool else typed | None
            yield inspect.Parameter(
                each.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=False if typed is bool else None,
                annotation=Annotated[annotation, option],
            )


def _flag(each: Field[Any]) -> str:
    return each.metadata.get("flag") or f"--{each.name.replace('_', '-')}"


def _typed(hint: Any) -> Any:
    """Return the type of what is typed for a hint; None for what cannot be."""
    kinds = [each for each in typing.get_args(hint) or (hint,) if each is not NoneType]
    if typing.get_origin(hint) is Literal:
        return hint
    if any(typing.get_origin(each) is Sequence for each in kinds):
        return list[str]
    return kinds[0] if kinds[0] in (bool, int, float, str) else None


def _metavar(typed: Any) -> str | None:
    if typing.get_origin(typed) is Literal:
        return "|".join(typing.get_args(typed))
    return METAVARS.get(typed)


def _help(doc: str, flags: dict[str, str]) -> str:
    """Return the first clause of a field's documentation, with values and options as typed."""

    def typed(quoted: re.Match[str]) -> str:
        value, name = quoted.groups()
        if value is None:
            return flags.get(name, name)
        return f"'{value}'" if " " in value else str(value)

    text = " ".join(doc.partition(": ")[2].split())
    shown = _QUOTED.sub(typed, _CLAUSE.split(text, maxsplit=1)[0])
    return f"{shown[:1].upper()}{shown[1:]}." if shown else ""
