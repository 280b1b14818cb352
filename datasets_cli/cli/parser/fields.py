"""The fields of an option dataclass as options and arguments of a command.

Typer gives every value to pydantic, also text that stays text and options that are not given, and
to import pydantic takes as long as the rest of ``rlds list``.

    @options_of(call="verify")
    def verify(context: typer.Context, *, call: GivenOptions) -> None: ...

The command has an option for each field of the arguments of ``datasets_cli.verify`` whose values
can be typed, and ``call`` is a dict of the options in the command line. The verb is imported when
the command runs. The metadata of a field describes its option:

    help       the sentence that the help shows; every option has one
    default    the default that the help shows instead of the field's own; "" shows none
    flag       the names of the option; for a field that is True by default, it sets False
    metavar    the name of the value
    typed      the type of the value in the command line; None if the field is not an option
    argument   True for an argument without a flag
    needed     False if the option may be omitted although the field has no default
    complete   the function of ``completion`` that lists values for the Tab key
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

import datasets_cli
from datasets_cli.cli.parser import completion
from datasets_cli.core.options import hints_of, parameters_of
from datasets_cli.errors import UsageError

_WHOLE = re.compile(r"-?[0-9]{1,18}")


@dataclass(frozen=True)
class LazyConversion:
    """The conversion of one parameter's values: typer's own, made when the first is due."""

    annotation: Any  # as the command declares it, without its `| None`
    has_bounds: bool  # such as ``min=0``, which typer's own checks
    make: Callable[[], Any]  # imports pydantic

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the converted value of an option, or its default."""
        is_list = get_origin(self.annotation) is list
        if value is None:
            return () if is_list else None
        is_choice = get_origin(self.annotation) is Literal and value in get_args(self.annotation)
        is_completed = ctx is not None and ctx.resilient_parsing  # where no command is called
        if is_completed or is_choice or type(value) is self.annotation:
            return value
        if self.annotation is int and not self.has_bounds and _WHOLE.fullmatch(str(value)):
            return int(value)
        if is_list and isinstance(value, list | tuple):
            (item_type,) = get_args(self.annotation)
            if all(type(item) is item_type for item in value):
                return [*value]
        return self.make().coerce(value, param=param, ctx=ctx)


def convert_lazily(parameters: list[Any]) -> list[Any]:
    """Return the parameters of a command; they import pydantic only for a conversion."""
    # Parameters are changed in place, unless this version of typer has no pydantic.
    for parameter in parameters:
        # A command is asked for its parameters several times.
        if hasattr(parameter, "get_runtime_param") and "get_runtime_param" not in vars(parameter):
            declared = parameter.type_descriptor
            has_bounds = (declared.parameter_info.min, declared.parameter_info.max) != (None, None)
            conversion = LazyConversion(
                declared.annotation, has_bounds, parameter.get_runtime_param
            )
            parameter.get_runtime_param = lambda conversion=conversion: conversion
    return parameters


GivenOptions = dict[str, Any]
"""The options in a command line, by the names of their fields."""

Body = Callable[..., None]
"""The function of a command."""

METAVARS: dict[Any, str] = {int: "N", float: "NUMBER", str: "TEXT", list[str]: "TEXT"}

ID_COMPLETIONS = ("known_ids", "installed_ids")
"""The kinds of ids for which ``-`` reads ids from stdin, one per line."""


def options_of(**kinds: str | type) -> Callable[[Body], Body]:
    """Return a decorator that names the verbs, or dataclasses, whose fields are options."""

    def decorate(body: Body) -> Body:
        body.__kinds__ = kinds  # type: ignore[attr-defined]
        return body

    return decorate


def kinds_of(body: Body) -> dict[str, type]:
    """Return the dataclasses whose fields are options of a command, by its arguments."""
    named: dict[str, str | type] = body.__kinds__  # type: ignore[attr-defined]
    return {
        name: getattr(datasets_cli, kind).__taken__ if isinstance(kind, str) else kind
        for name, kind in named.items()
    }


def with_options(body: Body) -> Body:
    """Return a command with a parameter for each of its options."""
    kinds = kinds_of(body)
    own = inspect.signature(body, eval_str=True).parameters
    parameters: list[inspect.Parameter] = []
    for name, parameter in own.items():
        kind = kinds.get(name)
        parameters += [parameter] if kind is None else _parameters(kind)

    @functools.wraps(body)
    def command(**arguments: Any) -> None:
        options = {name: _given_options(kind, arguments) for name, kind in kinds.items()}
        own_arguments = {name: value for name, value in arguments.items() if name in own}
        body(**own_arguments, **options)

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def _given_options(kind: type, arguments: GivenOptions) -> GivenOptions:
    """Return the options of a dataclass that the command line contains."""
    given: GivenOptions = {}
    for each in fields(kind):
        value = arguments.get(each.name)
        if each.metadata.get("complete") in ID_COMPLETIONS and value:
            value = _with_stdin(value)
        if not (value is None or value is False or value in ([], ())):
            given[each.name] = False if value is True and each.default is True else value
    return given


def _with_stdin(value: Any) -> Any:
    """Return ids in which the ids on stdin replace ``-``."""
    texts = [value] if isinstance(value, str) else value
    if "-" not in texts:
        return value
    lines = [line.strip() for line in sys.stdin if line.strip()]
    if not lines:  # without any id some verbs take all
        raise UsageError(
            "- reads ids from stdin, one per line, but stdin is empty.", expected="ids"
        )
    ids = [id for text in texts for id in (lines if text == "-" else [text])]
    if not isinstance(value, str):
        return ids
    if len(ids) > 1:
        raise UsageError(
            f"This command takes one id, but stdin has {len(ids)}: {', '.join(ids[:3])}.",
            expected=1,
            found=len(ids),
        )
    return ids[0]


def _parameters(kind: type) -> Iterator[inspect.Parameter]:
    """Yield a parameter for each field whose values can be typed."""
    hints = hints_of(kind)
    known = {each.name: each for each in fields(kind)}
    for field in (known[parameter.name] for parameter in parameters_of(kind)):
        typed = field.metadata.get("typed", _typed(hints.get(field.name)))
        if typed is not None:
            yield _parameter(field, typed)


def _parameter(field: Field[Any], typed: Any) -> inspect.Parameter:
    known = field.metadata
    settings: dict[str, Any] = {
        "help": _help(field),
        "metavar": known.get("metavar") or _metavar(typed),
        "autocompletion": getattr(completion, known["complete"]) if "complete" in known else None,
    }
    has_default = not (field.default is MISSING and field.default_factory is MISSING)
    is_needed = not has_default and known.get("needed", True)
    option = (
        typer.Argument(**settings)
        if "argument" in known
        else typer.Option(*_flags(field), **settings)
    )
    is_plain = typed is bool or is_needed
    default = inspect.Parameter.empty if is_needed else False if typed is bool else None
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[typed if is_plain else typed | None, option],
    )


def _flags(field: Field[Any]) -> tuple[str, ...]:
    flags = field.metadata.get("flag", f"--{field.name.replace('_', '-')}")
    return (flags,) if isinstance(flags, str) else flags


def _typed(hint: Any) -> Any:
    """Return the type of an option for a hint; None if values of the hint cannot be typed."""
    kinds = [each for each in typing.get_args(hint) or (hint,) if each is not NoneType]
    if typing.get_origin(hint) is Literal:
        return hint
    if any(typing.get_origin(each) in (Sequence, Iterable, Mapping) for each in (hint, *kinds)):
        return list[str]
    return kinds[0] if kinds[0] in (bool, int, float, str) else None


def _metavar(typed: Any) -> str | None:
    if typing.get_origin(typed) is Literal:
        return "|".join(typing.get_args(typed))
    return METAVARS.get(typed)


def _help(field: Field[Any]) -> str:
    about = field.metadata.get("help", "")
    default = field.metadata.get("default", field.default)
    shows_none = isinstance(default, bool) or default in (MISSING, None, "", ())
    return about if shows_none else f"{about} [default: {default}]"


Limits = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="NAME=NUMBER",
        help="Raise a safety limit (the error names it).",
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be done, without doing it.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def chosen_workers(options: GivenOptions) -> GivenOptions:
    """Return the options with ``num_workers`` None, which adapts to the work, as the default."""
    count, engine = options.get("num_workers"), options.get("engine", "local")
    if count is not None and engine != "local":
        raise UsageError(
            f"--workers {count} counts processes of this machine, but --engine {engine} uses the "
            "workers of a cluster.",
            argument="num_workers",
            found=count,
            advice="Omit --workers or --engine.",
        )
    return {"num_workers": None, **options}
