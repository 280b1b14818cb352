"""The JSON form of dataclasses: one encoder, and a line where a form has other names than fields.

    @dataclass(frozen=True)
    class Usage(JsonForm):
        JSON = "path bytes=size_bytes id|null problem?"

        path: Path
        size_bytes: int
        id: str = ""
        problem: str | None = None

    Usage(Path("x"), 9).to_json()   {"path": "x", "bytes": 9, "id": None}

Without the line the form has the fields, in their order. ``checked_json`` reads what is written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import PurePath
from typing import Any, ClassVar, NamedTuple

_ENTRY = re.compile(r"(\*?)(\w+)(?:=([\w.]+))?(\|null)?(\??)")


class JsonForm:
    """A dataclass that has a JSON form; results print theirs under ``--json``."""

    JSON: ClassVar[str] = ""
    """The names of the form, in order; of its fields where empty.

    ``name=attribute`` is another attribute's value, ``*name`` all names of that attribute's form;
    with ``|null`` an empty value is null, and with ``?`` null is left out.
    """

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return _form(self)


class Entry(NamedTuple):
    """A name of a form, the attribute that stands there, and how."""

    name: str
    path: str
    is_spread: bool
    has_null: bool
    is_optional: bool


@cache
def entries_of(kind: type) -> tuple[Entry, ...]:
    """Return the names of the form of a dataclass."""
    names = getattr(kind, "JSON", "").split() or [field.name for field in fields(kind)]
    return tuple(_entry(name) for name in names)


def encode(value: Any) -> Any:
    """Return a value as JSON values: dataclasses by their forms, paths as text, bytes as digits."""
    if hasattr(value, "to_json"):
        return value.to_json()
    if is_dataclass(value):
        return _form(value)
    if isinstance(value, Mapping):
        return {name: encode(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [encode(each) for each in value]
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if isinstance(value, PurePath) else value


def _form(value: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for entry in entries_of(value.__class__):
        each = value
        for name in entry.path.split("."):
            each = None if each is None else getattr(each, name)
        if entry.is_spread:
            found |= encode(each)
        elif entry.has_null and not each:
            each = None
        if not entry.is_spread and not (entry.is_optional and each is None):
            found[entry.name] = encode(each)
    return found


def _entry(text: str) -> Entry:
    parts = _ENTRY.fullmatch(text)
    assert parts, text
    star, name, path, null, mark = parts.groups("")
    return Entry(name, path or name, bool(star), bool(null), bool(mark))
