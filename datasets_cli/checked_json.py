"""JSON that may say anything, checked by declaration: the hints of a dataclass say what it must be.

    @dataclass(frozen=True)
    class Leaf:
        key: Annotated[tuple[str, ...], Check("a list of names", all)]
        shape: tuple[int, ...] = ()

    decode(Leaf, {"key": ["action"], "shape": [3, "4"]})
    WrongValue: shape[1]: expected a whole number, found '4'

A hint is a type of JSON, ``bytes`` (hexadecimal digits), ``Literal``, a ``list`` or ``tuple`` of
one hint, a ``Mapping`` from ``str``, a union of hints that JSON tells apart, a dataclass, or one of
these ``Annotated`` with a ``Check``. An object may have more than its dataclass has fields, unless
that is ``CLOSED``, and less than those with a default. A ``from_json`` of a class is used.
"""

from __future__ import annotations

import reprlib
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeVar, cast

from datasets_cli.json_form import entries_of

T = TypeVar("T")
Make = Callable[[Any], Any]


class WrongValue(ValueError):
    """A value that is not what is expected, and where it is; one that is missing if not found."""

    def __init__(self, where: str, expected: str, found: object = MISSING) -> None:
        super().__init__(where, expected, found)
        self.where, self.expected, self.found = where.removeprefix("."), expected, found

    def __str__(self) -> str:
        if self.found is MISSING:
            return f"{self.where} is missing"
        told = f"expected {self.expected}, found {reprlib.repr(self.found)}"
        return f"{self.where}: {told}" if self.where else told

    def below(self, where: str) -> WrongValue:
        """Return the error of a value that is at ``where`` in another one."""
        return WrongValue(where + self.args[0], self.expected, self.found)


@dataclass(frozen=True)
class Check:
    """What a value must be beside its type, in words and as a test."""

    expected: str
    holds: Callable[[Any], object]


def whole(least: int, most: int, shown: str) -> Check:
    """Return the check of a whole number from ``least`` up to ``most``, which is left out."""
    return Check(f"a whole number from {least} to {shown}", lambda n: least <= n < most)


def has_fields_of(kind: type) -> Check:
    """Return the check of an object that stays one, and has what a dataclass would be made of."""
    return Check("an object", lambda value: _object(kind, value))


def decode(kind: type[T], value: object, where: str = "") -> T:
    """Return what a value of JSON is by a hint; ``where`` it is begins the path in an error."""
    try:
        made: T = _maker(cast(Any, kind))(value)
    except WrongValue as error:
        raise error.below(where) from None
    return made


def is_deeper(document: dict[str, Any] | list[Any], levels: int) -> bool:
    """Return whether dicts and lists are nested in more than some levels; without recursion."""
    level: list[Any] = [document]
    for _ in range(levels):
        level = [
            item
            for value in level
            for item in (value.values() if type(value) is dict else value)
            if type(item) is dict or type(item) is list
        ]
        if not level:
            return False
    return True


class _Shape(NamedTuple):
    """Types of JSON that a hint takes, in words, what is made of a value, and what that must be."""

    types: tuple[type, ...]
    expected: str
    make: Make | None = None
    holds: Callable[[Any], object] | None = None


@cache
def _maker(hint: Any) -> Make:
    return _make_by(_shape(hint))


def _make_by(shape: _Shape) -> Make:
    types, expected, make, holds = shape

    def checked(value: Any) -> Any:
        if type(value) not in types:
            raise WrongValue("", expected, value)
        made = value if make is None else make(value)
        if holds is not None and not holds(made):
            raise WrongValue("", expected, value)
        return made

    return checked


def _shape(hint: Any) -> _Shape:
    if hint in _PLAIN:
        return _PLAIN[hint]
    if shape := _GENERIC.get(typing.get_origin(hint)):
        return shape(*typing.get_args(hint))
    return _Shape((dict,), "an object", getattr(hint, "from_json", partial(_object, hint)))


def _annotated(hint: Any, check: Check) -> _Shape:
    return _shape(hint)._replace(expected=check.expected, holds=check.holds)


def _literal(*values: Any) -> _Shape:
    words = f"one of {', '.join(map(str, values))}"
    return _annotated(type(values[0]), Check(words, values.__contains__))


def _union(*hints: Any) -> _Shape:
    shapes = [_shape(hint) for hint in hints]
    makes = {kind: _make_by(shape) for shape in shapes for kind in shape.types}
    *words, last = [shape.expected for shape in shapes]
    expected = f"{', '.join(words)} or {last}"

    def make(value: Any) -> Any:
        try:
            return makes[type(value)](value)
        except WrongValue as error:
            if error.where or type(value) is dict:
                raise
            raise WrongValue("", expected, value) from None  # in the words of all hints

    return _Shape(tuple(makes), expected, make)


def _list(kind: Any, make: Make, value: list[Any]) -> Any:
    made: list[Any] = []
    try:
        for each in value:
            made.append(make(each))
    except WrongValue as error:
        raise error.below(f"[{len(made)}]") from None
    return kind(made)


def _mapping(make: Make, value: dict[str, Any]) -> dict[str, Any]:
    made, name = {}, ""
    try:
        for name, each in value.items():
            made[name] = make(each)
    except WrongValue as error:
        raise error.below(f".{name}") from None
    return made


def _object(kind: Any, value: dict[str, Any]) -> Any:
    """Return the dataclass that an object of JSON is."""
    made: dict[str, Any] = {}
    known, is_closed = _fields(kind)
    name = ""
    try:
        for name, attribute, make, is_needed in known:
            if not name or name in value:
                made[attribute] = make(value[name] if name else value)
            elif is_needed:
                raise WrongValue("", "a value")
    except WrongValue as error:
        raise error.below(f".{name}" if name else "") from None
    names = [field.name for field in known] if is_closed else []
    if is_closed and (unknown := [name for name in value if name not in names]):
        raise WrongValue("", f"some of {', '.join(names)}", ", ".join(unknown))
    return kind(**made)


class _Field(NamedTuple):
    """A field: its name in JSON, empty where its value's own names stand there, and in Python."""

    name: str
    attribute: str
    make: Make
    is_needed: bool


@cache
def _fields(kind: Any) -> tuple[list[_Field], bool]:
    """Return the fields of a dataclass, and whether an object has no others."""
    hints = typing.get_type_hints(kind, include_extras=True)
    needed = {each.name: each.default is each.default_factory is MISSING for each in fields(kind)}
    known = [
        _Field("" if is_spread else name, path, _maker(hints[path]), needed[path])
        for name, path, is_spread in (entry[:3] for entry in entries_of(kind))
        if path in needed
    ]
    return known, getattr(kind, "CLOSED", False)


def _digits(value: str) -> bytes:
    try:
        return bytes.fromhex(value)
    except ValueError:
        raise WrongValue("", "hexadecimal digits", value) from None


_PLAIN = {
    Any: _Shape((dict, list, str, int, float, bool, NoneType), "a value"),
    str: _Shape((str,), "a text"),
    int: _Shape((int,), "a whole number"),
    # No float is as large as some whole numbers.
    float: _Shape((float, int), "a number", holds=lambda n: type(n) is float or abs(n) < 2**1023),
    bool: _Shape((bool,), "true or false"),
    bytes: _Shape((str,), "hexadecimal digits", _digits),
    NoneType: _Shape((NoneType,), "null"),
}

_GENERIC: dict[Any, Callable[..., _Shape]] = {
    typing.Annotated: _annotated,
    typing.Literal: _literal,
    typing.Union: _union,
    UnionType: _union,
    list: lambda hint: _Shape((list,), "a list", partial(_list, list, _maker(hint))),
    tuple: lambda hint, _: _Shape((list,), "a list", partial(_list, tuple, _maker(hint))),
    dict: lambda _, hint: _Shape((dict,), "an object", partial(_mapping, _maker(hint))),
    Mapping: lambda _, hint: _Shape((dict,), "an object", partial(_mapping, _maker(hint))),
}
