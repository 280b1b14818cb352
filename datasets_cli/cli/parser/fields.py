"""Options of a command that are the fields of a dataclass, which alone declares them.

    @options_of(call=VerifyCall)
    def verify(context: typer.Context, *, call: GivenOptions) -> None: ...

The command has an option for each field whose values can be typed, and ``call`` is a dict of those
that were given: what the verb of the dataclass takes. The help of an option is how the dataclass
documents its field, up to the first semicolon or full stop, with the default. The field's metadata
may say otherwise:

    flag       the option's name or names; of a field that is True by default it is the one that
               makes it False
    help       what it means
    default    what its help says of the default; nothing where empty
    metavar    what its value is called
    typed      the type of what is typed; None where the command line has no such option
    argument   True where it has no flag
    needed     False where the command may go without it, though the dataclass has no default
    complete   what the Tab key offers: a function of ``completion``
"""

from __future__ import annotations

import functools
import inspect
import re
import shlex
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from types import NoneType
from typing import Annotated, Any, Literal

import typer

from datasets_cli.cli.parser import completion
from datasets_cli.core.options import argument_docs, hints_of, parameters_of
from datasets_cli.errors import UsageError

GivenOptions = dict[str, Any]
"""The options that a user gave, by the names of their fields."""

METAVARS: dict[Any, str] = {int: "N", float: "NUMBER", str: "TEXT", list[str]: "TEXT"}

ID_COMPLETIONS = ("known_ids", "installed_ids")
"""What the Tab key offers where ``-`` stands for ids on stdin, a line each."""

_CLAUSE = re.compile(r"[;.](?:\s|$)")
_BY_DEFAULT = re.compile(r"[;,] by default (.*?)[;.](?:\s|$)")
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
            given = {name: _given(kind, arguments) for name, kind in kinds.items()}
            own_arguments = {name: value for name, value in arguments.items() if name in own}
            body(**own_arguments, **given)

        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        command.__kinds__ = kinds  # type: ignore[attr-defined]
        return command

    return decorate


def _given(kind: type, arguments: GivenOptions) -> GivenOptions:
    """Return what was given of a dataclass's fields."""
    given = {}
    for each in fields(kind):
        value = arguments.get(each.name)
        if each.metadata.get("complete") in ID_COMPLETIONS and value:
            value = _with_stdin(value)
        if not (value is None or value is False or value in ([], ())):
            given[each.name] = False if value is True and each.default is True else value
    return given


def _with_stdin(value: Any) -> Any:
    """Return ids with those that stdin has in place of ``-``."""
    texts = [value] if isinstance(value, str) else value
    if "-" not in texts:
        return value
    lines = [line.strip() for line in sys.stdin if line.strip()]
    if not lines:  # without any id some verbs take all
        raise UsageError("- stands for the ids on stdin, a line each, and stdin has none.")
    ids = [id for text in texts for id in (lines if text == "-" else [text])]
    if not isinstance(value, str):
        return ids
    if len(ids) > 1:
        raise UsageError(f"One id is needed here, and stdin has {len(ids)}: {', '.join(ids[:3])}.")
    return ids[0]


def _parameters(kind: type) -> Iterator[inspect.Parameter]:
    """Yield a parameter for each field whose values can be typed."""
    docs, hints = argument_docs(kind), hints_of(kind)
    known = {each.name: each for each in fields(kind)}
    flags = {name: _flags(each)[-1] for name, each in known.items()}
    for field in (known[parameter.name] for parameter in parameters_of(kind)):
        typed = field.metadata.get("typed", _typed(hints.get(field.name)))
        if typed is not None:
            yield _parameter(field, typed, _help(field, docs.get(field.name, ""), flags))


def _parameter(field: Field[Any], typed: Any, about: str) -> inspect.Parameter:
    known = field.metadata
    settings: dict[str, Any] = {
        "help": about,
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
    """Return the type of what is typed for a hint; None for what cannot be."""
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


def _help(field: Field[Any], doc: str, flags: dict[str, str]) -> str:
    """Return what a field means and its default, with values and options as typed."""

    def typed(quoted: re.Match[str]) -> str:
        value, name = quoted.groups()
        return flags.get(name, name) if value is None else shlex.quote(value)

    text = _QUOTED.sub(typed, " ".join(doc.partition(": ")[2].split()))
    about = field.metadata.get("help")
    if about is None:
        clause = _CLAUSE.split(text, maxsplit=1)[0]
        about = f"{clause[:1].upper()}{clause[1:]}." if clause else ""
    default = field.metadata.get("default")
    if default is None:
        said = _BY_DEFAULT.search(text)
        is_none = isinstance(field.default, bool) or field.default in (MISSING, None, "", ())
        plain = None if is_none else field.default
        default = said[1] if said and plain is None and said[1] not in about else plain
    return about if default in (None, "") else f"{about} [default: {default}]".lstrip()
