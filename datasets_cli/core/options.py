"""Options: shared arguments, declared once as the fields of a frozen dataclass.

    @dataclass(frozen=True)
    class OpenOptions:          # its docstring has Args
        id: str
        _: KW_ONLY
        text: bool = False

    @takes_fields(OpenOptions)
    def open_rows(options: OpenOptions) -> Rows: ...    # its docstring has no Args

    open_rows("demo/iris", text=True)

`inspect.signature`, `help()` and type checkers see `open_rows(id: str, *, text: bool = False)`; the
docstring gets the Args of the dataclass, and the error of a misspelt keyword names `open_rows`.
A method or an `__init__` is written `(self, options)`; a class has the Args of its `__init__`.

A value whose type differs from the declared one is a UsageError that names the argument.

A dataclass may inherit fields from several bases, each `kw_only=True`; `part_of` returns the fields
of one base: `part_of(options, PreprocessOptions)`. Its own keywords precede inherited ones, and the
fields in `FIRST` precede both. The metadata of a field may have the `least` value of a whole
number, advice to write `instead` of a wrong type, and the option of the command line:
`cli/parser/fields.py`.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from difflib import get_close_matches
from numbers import Integral
from types import NoneType, UnionType
from typing import (
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
    overload,
)

from datasets_cli.errors import wrong_value

P = ParamSpec("P")
Options = TypeVar("Options")
Owner = TypeVar("Owner")
Result = TypeVar("Result")

DRY_RUN = {"help": "Print what would be done, without doing it."}
"""The metadata of every ``dry_run`` field."""

_SECTION = re.compile(r"^(?:Attributes|Returns|Yields|Raises):$", re.MULTILINE)
_ARGUMENT = re.compile(r" {4}(\w+): ")

KINDS: dict[object, str] = {
    bool: "True or False",
    str: "text",
    os.PathLike: "a path",
    Mapping: "a mapping",
    Iterable: "a list",
    Callable: "a function",
    NoneType: "None",
}
"""The types that are checked, with their names; other types check themselves."""


def takes_fields(
    kind: Callable[P, Options], *, documented_by: type = object
) -> _Taking[P, Options]:
    """Return a decorator that replaces the dataclass argument of a function by its fields.

    The docs of fields that the dataclass does not document come from the class ``documented_by``.
    """
    return _Taking(kind, documented_by)


def suggests_keywords(function: Callable[P, Result]) -> Callable[P, Result]:
    """Return the function with an error for unknown keywords that suggests the nearest one."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*positional: P.args, **named: P.kwargs) -> Result:
        for name in named:
            if name not in signature.parameters:
                raise TypeError(f"{_called(function, positional)}() {_unknown(name, signature)}")
        return function(*positional, **named)

    return call


def part_of(options: Any, kind: type[Options]) -> Options:
    """Return the fields of one base of a dataclass as an object of that base."""
    return kind(**{field.name: getattr(options, field.name) for field in fields(kind)})  # type: ignore[arg-type]


def parameters_of(kind: type) -> list[inspect.Parameter]:
    """Return the parameters of a dataclass: positional, ``FIRST``, its own, inherited."""
    places = {
        name: place
        for place, each in reversed([*enumerate(kind.__mro__)])
        for name in inspect.get_annotations(each)
    }
    first: tuple[str, ...] = getattr(kind, "FIRST", ())
    places |= {name: place - len(first) for place, name in enumerate(first)}
    parameters = inspect.signature(kind).parameters.values()
    by_place = [each for each in parameters if each.kind is not each.KEYWORD_ONLY]
    keywords = [each for each in parameters if each.kind is each.KEYWORD_ONLY]
    return [*by_place, *sorted(keywords, key=lambda each: places[each.name])]


def check_types(options: Any) -> None:
    """Check each field whose hint consists of ``KINDS`` and runtime protocols."""
    for name, kinds in _checked_fields(options.__class__):
        value = getattr(options, name)
        if isinstance(value, kinds):
            continue
        if bool not in kinds or type(value).__name__ not in ("bool", "bool_"):  # numpy has its own
            *others, last = [KINDS.get(kind) or f"a {kind.__name__}" for kind in kinds]
            expected = f"{', '.join(others)} or {last}" if others else last
            instead = options.__dataclass_fields__[name].metadata.get("instead", "")
            raise wrong_value(name, expected, value, instead)


@functools.cache
def _checked_fields(kind: type) -> list[tuple[str, tuple[type, ...]]]:
    """Return the fields that ``check_types`` checks, each with its accepted types."""
    checked = []
    for name, hint in hints_of(kind).items():
        several = isinstance(hint, UnionType) or get_origin(hint) is Union
        hints = get_args(hint) if several else (hint,)
        kinds = [get_origin(each) or each for each in hints]
        others = [each for each in kinds if each not in KINDS]
        if not others or all(getattr(each, "_is_runtime_protocol", False) for each in others):
            checked.append((name, tuple(kinds)))
    return checked


def hints_of(kind: type) -> dict[str, Any]:
    """Return the types of the fields of a dataclass, except for types of ``TYPE_CHECKING``."""
    spaces = {
        name: vars(sys.modules[each.__module__])
        for each in reversed(kind.__mro__)
        for name in inspect.get_annotations(each)
    }
    hints = {}
    for field in fields(kind):
        with suppress(NameError):
            hints[field.name] = eval(str(field.type), spaces[field.name])
    return hints


def check_choice(name: str, value: object, known: Iterable[str]) -> None:
    """Reject a value that is not one of the known ones."""
    if value not in (words := tuple(known)):
        near = get_close_matches(str(value), words, 1)
        raise wrong_value(name, words, value, f"Did you mean {near[0]}?" if near else None)


def check_flags(**flags: object) -> None:
    """Check that each argument is True or False, or a bool of numpy."""
    for name, value in flags.items():
        if type(value).__name__ not in ("bool", "bool_"):
            raise wrong_value(name, "True or False", value)


def check_numbers(options: Any) -> None:
    """Reject fields with ``least`` that are not a whole number from it to 64 bits."""
    for field in fields(options):
        value = getattr(options, field.name)
        if "least" in field.metadata and not (value is None and "None" in str(field.type)):
            is_whole = isinstance(value, Integral) and not isinstance(value, bool)
            if not is_whole or not (least := field.metadata["least"]) <= value < 2**64:
                number = f"{least} or more" if is_whole else "a whole number"
                expected = "64 bits at most" if is_whole and value >= 2**64 else number
                raise wrong_value(field.name, expected, value)


def argument_docs(kind: type) -> dict[str, str]:
    """Return the Args of each field in the docstrings of a dataclass and its bases."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        _, _, section = inspect.cleandoc(each.__doc__ or "").partition("\nArgs:\n")
        name = ""
        for line in section.splitlines():
            if line and not line.startswith(" "):  # the next section
                break
            if argument := _ARGUMENT.match(line):
                name = argument[1]
                found[name] = line
            elif line:
                found[name] += f"\n{line}"
    return found


@dataclass(frozen=True)
class _Taking(Generic[P, Options]):
    """The decorator of ``takes_fields``, for functions, and for methods with one more argument."""

    kind: Callable[P, Options]
    documented_by: type

    @overload
    def __call__(self, body: Callable[[Options], Result]) -> Callable[P, Result]: ...

    @overload
    def __call__(
        self, body: Callable[[Owner, Options], Result]
    ) -> Callable[Concatenate[Owner, P], Result]: ...

    def __call__(self, body: Callable[..., Any]) -> Callable[..., Any]:
        make: Any = self.kind
        own = inspect.signature(body)
        *first, _ = own.parameters.values()
        taken = parameters_of(make)
        signature = own.replace(parameters=[*first, *taken])

        @functools.wraps(body)
        def call(*positional: Any, **named: Any) -> Any:
            owner, rest = positional[: len(first)], positional[len(first) :]
            try:
                options = make(*rest, **named)
            except TypeError:  # a wrong call or value, or an owner passed by keyword
                owner, options = bound(positional, named)
            check_types(options)
            return body(*owner, options)

        # `Signature.bind` is slow, so it only explains errors.
        def bound(positional: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, Any]:
            try:
                arguments = signature.bind(*positional, **named).arguments
            except TypeError as error:
                unknown = [name for name in named if name not in signature.parameters]
                # Like Python, report an unknown keyword before missing ones.
                reason = _unknown(unknown[0], signature) if unknown else error
                raise TypeError(f"{_called(body, positional)}() {reason}") from None
            return tuple(arguments.pop(each.name) for each in first), make(**arguments)

        call.__signature__ = signature  # type: ignore[attr-defined]
        call.__taken__ = make  # type: ignore[attr-defined]
        call.__annotations__ = {
            **{name: each.annotation for name, each in signature.parameters.items()},
            "return": signature.return_annotation,
        }
        names = [each.name for each in taken]
        docs = argument_docs(self.documented_by) | argument_docs(make)
        if body.__name__ == "__init__":
            return _Constructor(call, names, docs)  # type: ignore[return-value]
        call.__doc__ = _with_arguments(body.__doc__, names, docs)
        return call


@dataclass(frozen=True)
class _Constructor:
    """An ``__init__`` until its class is made, whose docstring then gets the Args.

    The docs of arguments that the dataclass does not document come from a base of the class.
    """

    call: Callable[..., Any]
    names: list[str]
    docs: dict[str, str]

    def __set_name__(self, owner: type, name: str) -> None:
        docs = argument_docs(owner) | self.docs
        owner.__doc__ = _with_arguments(owner.__doc__, self.names, docs)
        setattr(owner, name, self.call)


def _unknown(name: str, signature: inspect.Signature) -> str:
    """Return the message for an unknown keyword."""
    near = get_close_matches(name, signature.parameters, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"got an unexpected keyword argument {name!r}{hint}"


def _called(body: Callable[..., Any], positional: tuple[Any, ...]) -> str:
    """Return the name of the called function or class, which may be a subclass."""
    if body.__name__ == "__init__" and positional:
        return f"{type(positional[0]).__name__}.__init__"
    return body.__qualname__


def _with_arguments(doc: str | None, names: list[str], docs: dict[str, str]) -> str | None:
    """Return a docstring with the Args of these names, before its other sections."""
    arguments = [docs[name] for name in names if name in docs]
    if doc is None or not arguments:
        return doc
    text = inspect.cleandoc(doc)
    section = _SECTION.search(text)
    place = len(text) if section is None else section.start()
    before, after = text[:place].rstrip(), text[place:]
    head = "" if "\nArgs:\n" in before else "\n\nArgs:"
    return "\n".join([f"{before}{head}", *arguments, *(["", after] if after else [])])
