"""Decodes untrusted JSON into dataclasses, whose type hints declare the accepted values.

    @dataclass(frozen=True)
    class Leaf:
        key: Annotated[tuple[str, ...], Check("a list of names", all)]
        shape: tuple[int, ...] = ()

    decode(Leaf, {"key": ["action"], "shape": [3, "4"]})
    WrongValue: shape[1]: expected a whole number, found '4'

A hint is a JSON type, ``bytes`` (hexadecimal digits), ``Literal``, a ``list`` or ``tuple`` of one
hint, a ``Mapping`` from ``str``, a union of hints with different JSON types, a dataclass, or one of
these ``Annotated`` with a ``Check``. An object may have entries that are not fields, unless its
dataclass is ``CLOSED``, and may lack fields with a default. A class with ``from_json`` decodes
itself.
"""

from __future__ import annotations

import json
import pickle
import re
import reprlib
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache, partial
from pathlib import PurePath
from types import NoneType, UnionType
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

Form = TypeVar("Form")
_NAME = re.compile(r"(\*?)(\w+)(?:=([\w.]+))?(\|null)?(\??)")


class FormEntry(NamedTuple):
    """One name of a JSON form, with the attribute that it is read from."""

    name: str
    path: str
    is_spread: bool
    has_null: bool
    is_optional: bool


@cache
def entries_of(kind: type) -> tuple[FormEntry, ...]:
    """Return the entries of the JSON form of a dataclass."""
    names = getattr(kind, "JSON", "").split() or [field.name for field in fields(kind)]
    entries = []
    for text in names:
        parts = _NAME.fullmatch(text)
        assert parts, text
        star, name, path, null, mark = parts.groups("")
        entries.append(FormEntry(name, path or name, bool(star), bool(null), bool(mark)))
    return tuple(entries)


def form_of(value: Any) -> dict[str, Any]:
    """Return the JSON form of a dataclass: names and values, which need not be JSON yet."""
    form: dict[str, Any] = {}
    for name, path, is_spread, has_null, is_optional in entries_of(value.__class__):
        item = value
        for part in path.split("."):
            item = None if item is None else getattr(item, part)
        if has_null and not item:
            item = None
        if is_spread:
            form |= form_of(item)
        elif item is not None or not is_optional:
            form[name] = item
    return form


class JsonForm:
    """A dataclass with a JSON form; results print it for ``--json``."""

    JSON: ClassVar[str] = ""
    """The names of the form, in order; the names of all fields if empty.

    ``name=attribute`` reads another attribute, and ``*name`` inserts the form of that attribute.
    With ``|null`` an empty value is null; with ``?`` null is left out.
    """

    def to_json(self) -> dict[str, Any]:
        """Return the object as JSON values."""
        document: dict[str, Any] = encode(self)
        return document

    json_fields = form_of


def copy_of(value: Form) -> Form:
    """Return a deep copy, ten times as fast as ``deepcopy``."""
    copy: Form = pickle.loads(pickle.dumps(value))
    return copy


def encode(value: Any) -> Any:
    """Convert to JSON values: dataclasses by their forms, paths as text, bytes as hex digits."""
    return json.loads(json.dumps(value, default=_plain))


def _plain(value: Any) -> Any:
    """Convert one level of a value that ``json`` cannot write."""
    if isinstance(value, JsonForm):
        return value.json_fields()
    if hasattr(value, "to_json"):
        return value.to_json()
    if is_dataclass(value):
        return form_of(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(f"{value!r} cannot be written as JSON")


T = TypeVar("T")
Make = Callable[[Any], Any]


class WrongValue(ValueError):
    """A JSON value that is missing or differs from its declaration."""

    def __init__(self, where: str, expected: str, found: object = MISSING) -> None:
        super().__init__(where, expected, found)
        self.where, self.expected, self.found = where.removeprefix("."), expected, found

    def __str__(self) -> str:
        if self.found is MISSING:
            return f"{self.where} is missing"
        problem = f"expected {self.expected}, found {reprlib.repr(self.found)}"
        return f"{self.where}: {problem}" if self.where else problem

    @property
    def details(self) -> dict[str, Any]:
        """The attributes of the ``RldsError`` that reports this error."""
        found = None if self.found is MISSING else self.found
        return {"key": self.where or None, "expected": self.expected, "found": found}

    def below(self, name: str | int) -> WrongValue:
        """Return the same error one level further up: the value is below this name or number."""
        above = f"[{name}]" if isinstance(name, int) else name and f".{name}"
        return WrongValue(above + self.args[0], self.expected, self.found)


@dataclass(frozen=True)
class Check:
    """A condition on a value besides its type, as text and as a function."""

    expected: str
    holds: Callable[[Any], object]


def whole(least: int, most: int, shown: str) -> Check:
    """Return the check of a whole number from ``least`` to ``most - 1``."""
    return Check(f"a whole number from {least} to {shown}", range(least, most).__contains__)


def has(needed: Mapping[str, Any], **others: Any) -> Check:
    """Return the check of an object with these entries; the object itself is not converted."""
    hints = {**needed, **others}
    known = [(name, name, name in needed, _shape(hint)) for name, hint in hints.items()]
    if needed:  # a valid object has attributes, and so is true
        return Check("an object", partial(_attributes, known))
    return Check("an object", lambda value: _attributes(known, value) is not None)


def decode(kind: type[T], value: object, where: str = "") -> T:
    """Decode a JSON value by a hint; ``where`` begins the path in an error."""
    made: T = _each(_shape(cast(Any, kind)), [(where, value)])[0]
    return made


def is_deeper(document: dict[str, Any] | list[Any], levels: int) -> bool:
    """Return whether dicts and lists are nested deeper than ``levels``; without recursion."""
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
    """The JSON types that a hint accepts, their name in errors, the conversion and the check."""

    types: tuple[type, ...]
    expected: str
    make: Make | None = None
    holds: Make | None = None


def _convert(shape: _Shape, value: Any) -> Any:
    """Return a value converted and checked."""
    if type(value) not in shape.types:
        raise WrongValue("", shape.expected, value)
    made = value if shape.make is None else shape.make(value)
    if shape.holds is not None and not shape.holds(made):
        raise WrongValue("", shape.expected, value)
    return made


def _each(shape: _Shape, named: Iterable[tuple[str | int, Any]]) -> list[Any]:
    """Convert values, each with its name or number for errors."""
    values = []
    for name, value in named:
        try:
            values.append(_convert(shape, value))
        except WrongValue as error:
            raise error.below(name) from None
    return values


@cache
def _shape(hint: Any) -> _Shape:
    if hint in _PLAIN:
        return _PLAIN[hint]
    if shape := _GENERIC.get(typing.get_origin(hint)):
        return shape(*typing.get_args(hint))
    return _Shape((dict,), "an object", getattr(hint, "from_json", None) or _dataclass(hint))


def _annotated(hint: Any, check: Check) -> _Shape:
    shape, holds = _shape(hint), check.holds
    if (first := shape.holds) is not None:
        return shape._replace(
            expected=check.expected, holds=lambda made: first(made) and holds(made)
        )
    return shape._replace(expected=check.expected, holds=holds)


def _literal(*values: Any) -> _Shape:
    words = f"one of {', '.join(map(str, values))}"
    return _annotated(type(values[0]), Check(words, values.__contains__))


def _union(*hints: Any) -> _Shape:
    shapes = [_shape(hint) for hint in hints]
    by_type = {kind: shape for shape in shapes for kind in shape.types}
    *words, last = [shape.expected for shape in shapes]
    expected = f"{', '.join(words)} or {last}"

    def make(value: Any) -> Any:
        if value is None:
            return None
        try:
            return _convert(by_type[type(value)], value)
        except WrongValue as error:
            if error.where or type(value) is dict:
                raise
            raise WrongValue("", expected, value) from None  # names all hints, not only one

    return _Shape(tuple(by_type), expected, make)


def _list(kind: Any, hint: Any) -> _Shape:
    return _Shape((list,), "a list", _items(kind, hint))


def _mapping(_: Any, hint: Any) -> _Shape:
    make = _items(tuple, hint)

    def make_mapping(value: dict[str, Any]) -> dict[str, Any]:
        return dict(zip(value, make(value.values(), value), strict=True))

    return _Shape((dict,), "an object", None if hint is Any else make_mapping)


def _items(kind: Any, hint: Any) -> Callable[..., Any]:
    """Return the function that converts a list, or the values of an object with their names."""
    shape = _shape(hint)

    def make(values: Collection[Any], names: Iterable[str] = ()) -> Any:
        return kind(_each(shape, zip(names or range(len(values)), values, strict=True)))

    return make


_Field = tuple[str, str, bool, _Shape]
"""A field of a dataclass: its name in JSON (empty for a ``*name``), attribute, need and shape."""


def _attributes(known: Iterable[_Field], value: dict[str, Any]) -> dict[str, Any]:
    """Return the converted values of fields from a JSON object."""
    values: dict[str, Any] = {}
    for name, attribute, is_needed, shape in known:
        try:
            if not name or name in value:
                values[attribute] = _convert(shape, value[name] if name else value)
            elif is_needed:
                raise WrongValue("", shape.expected)
        except WrongValue as error:
            raise error.below(name) from None
    return values


def _dataclass(kind: Any) -> Make:
    """Return the function that converts a JSON object to a dataclass."""

    def make(value: dict[str, Any]) -> Any:
        known = _fields(kind)
        values = _attributes(known, value)
        if getattr(kind, "CLOSED", False):
            names = [name for name, *_ in known]
            if unknown := [name for name in value if name not in names]:
                raise WrongValue("", f"some of {', '.join(names)}", ", ".join(unknown))
        return kind(**values)

    return make


@cache
def _fields(kind: Any) -> list[_Field]:
    hints = typing.get_type_hints(kind, include_extras=True)
    needed = {each.name: each.default is each.default_factory is MISSING for each in fields(kind)}
    return [
        ("" if is_spread else name, path, needed[path], _shape(hints[path]))
        for name, path, is_spread in (entry[:3] for entry in entries_of(kind))
        if path in needed
    ]


def _digits(value: str) -> bytes:
    try:
        return bytes.fromhex(value)
    except ValueError:
        raise WrongValue("", "hexadecimal digits", value) from None


_PLAIN = {
    Any: _Shape((dict, list, str, int, float, bool, NoneType), "a value"),
    str: _Shape((str,), "a text"),
    int: _Shape((int,), "a whole number"),
    # Whole numbers may exceed the largest float.
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
    list: lambda hint: _list(list, hint),
    tuple: lambda hint, _: _list(tuple, hint),
    Sequence: lambda hint: _list(tuple, hint),
    dict: _mapping,
    Mapping: _mapping,
}
