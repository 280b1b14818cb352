"""What each field of a manifest must be, so that no code after the reader meets another type.

A check takes a value and where it is, such as ``files.next/reward.memmap.bytes``, and raises
ValueError where it is something else; see ``json_values``.
"""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Callable, Mapping
from typing import Any

from datasets_cli.store.schema.columns import Column, Key, show_key
from datasets_cli.store.schema.json_values import (
    LARGEST,
    column_at,
    list_at,
    number_at,
    object_at,
    wrong,
)
from datasets_cli.store.schema.texts import TextColumn

Check = Callable[[Any, str], object]

MAX_NAME_BYTES = 255
STATES = ("installed", "unchecked", "unverified")
"""How far the raw files of a dataset without damage are known to be the publisher's."""


def _is(expected: str, test: Callable[[Any], bool]) -> Check:
    def check(value: Any, where: str) -> None:
        if not test(value):
            raise wrong(where, expected, value)

    return check


def _list_of(item: Check) -> Check:
    def check(value: Any, where: str) -> None:
        for number, each in enumerate(list_at(value, where)):
            item(each, f"{where}[{number}]")

    return check


def _object_of(required: Mapping[str, Check], optional: Mapping[str, Check] = {}) -> Check:
    """Return the check of an object; keys that are named in neither mapping may be anything."""
    known = {**required, **optional}

    def check(value: Any, where: str) -> None:
        values = object_at(value, where)
        for name, item in known.items():
            if name in values:
                item(values[name], _below(where, name))
            elif name in required:
                raise ValueError(f"{_below(where, name)} is missing")

    return check


def _values_of(item: Check) -> Check:
    """Return the check of an object whose values are all alike."""

    def check(value: Any, where: str) -> None:
        for name, each in object_at(value, where).items():
            item(each, _below(where, name))

    return check


def _unless(nothing: object, item: Check) -> Check:
    """Return the check of a value that may be ``nothing`` instead."""

    def check(value: Any, where: str) -> None:
        if value != nothing:
            item(value, where)

    return check


def _below(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    # A whole number above the largest float cannot be shown as one.
    return isinstance(value, float) or (_is_whole(value) and abs(value) < 2**1023)


_HEX = re.compile("[0-9a-f]{64}").fullmatch


def is_digest(value: Any) -> bool:
    """Tell whether a value is 64 hexadecimal digits, as a sha256 is written."""
    return isinstance(value, str) and _HEX(value) is not None


TEXT = _is("a text", lambda value: isinstance(value, str))
TEXT_OR_NULL = _is("a text or null", lambda value: value is None or isinstance(value, str))
WHOLE = _is("a whole number", _is_whole)
WHOLE_OR_NULL = _is("a whole number or null", lambda value: value is None or _is_whole(value))
ARGUMENT = _is(
    "a whole number, a text or null",
    lambda value: value is None or isinstance(value, str) or _is_whole(value),
)
NUMBER_OR_NULL = _is("a number or null", lambda value: value is None or _is_number(value))
FLAG = _is("true or false", lambda value: isinstance(value, bool))
DIGEST = _is("64 hexadecimal digits", is_digest)
STATE = _is(f"one of {', '.join(STATES)}", lambda value: value in STATES)

FUNCTION = _object_of({"name": TEXT, "digest": DIGEST}, {"pipeline": object_at})
PARENT = _object_of(
    {"id": TEXT},
    {
        **{"content": DIGEST, "manifest_sha256": DIGEST, "state": STATE, "view": TEXT},
        **{"where": TEXT, "max_trajectories": number_at, "dropped": TEXT},
    },
)

FIELDS: dict[str, Check] = {
    "id": TEXT,
    "layout": TEXT,
    "num_transitions": number_at,
    "num_trajectories": number_at,
    "columns": _list_of(object_at),  # ``checked_columns`` looks into them
    "files": _values_of(_object_of({"bytes": number_at, "sha256": DIGEST})),
}
"""What every manifest has."""

OPTIONAL_FIELDS: dict[str, Check] = {
    "resources": _list_of(
        _object_of(
            {"filename": TEXT, "sha256": DIGEST},
            {
                "url": TEXT,
                "bytes": number_at,
                "validator": TEXT_OR_NULL,
                "checked": TEXT,
                "describes": FLAG,
            },
        )
    ),
    "recipe": _object_of(
        {},
        {
            "family": TEXT,
            "version": WHOLE_OR_NULL,
            "licence": TEXT_OR_NULL,
            "citation": TEXT_OR_NULL,
            "homepage": TEXT_OR_NULL,
            "identity": _list_of(TEXT),
        },
    ),
    "successors": _object_of({}, {"rule": TEXT, "version": WHOLE}),
    "metadata": _object_of(
        {},
        {
            "notes": _list_of(TEXT),
            "licence": TEXT_OR_NULL,
            "citation": TEXT_OR_NULL,
            "ref_min_score": NUMBER_OR_NULL,
            "ref_max_score": NUMBER_OR_NULL,
        },
    ),
    "statistics": _values_of(_values_of(NUMBER_OR_NULL)),
    "record": object_at,
    "texts": _list_of(object_at),
    "parent": _unless(None, PARENT),
    "function": _unless({}, FUNCTION),  # none where not derived
    "arguments": _values_of(ARGUMENT),
    "seed": WHOLE_OR_NULL,
    "tool": TEXT,
}

_FIELDS = _object_of(FIELDS, OPTIONAL_FIELDS)

IDENTITY = {"content": DIGEST}
"""What format version 2 has besides."""


def check_fields(document: Mapping[str, Any], identity: Mapping[str, Check]) -> None:
    """Check the type of every field that a manifest has."""
    for check in (_FIELDS, _object_of(identity)):
        check(document, "")
    for name in document["files"]:
        _check_filename(name)


def checked_columns(
    document: Mapping[str, Any],
) -> tuple[tuple[Column, ...], tuple[TextColumn, ...]]:
    """Return the columns, and the columns of text, of a manifest whose fields are checked."""
    num_rows, entries = document["num_transitions"], document.get("texts", [])
    columns = [column_at(each, f"columns[{n}]") for n, each in enumerate(document["columns"])]
    codes = [column_at({**each, "dtype": "int32"}, f"texts[{n}]") for n, each in enumerate(entries)]
    for column in (*columns, *codes):
        # Also where a dimension is 0 and there is no file: torch multiplies the other sizes.
        values = num_rows * math.prod(max(1, size) for size in column.shape)
        if values >= LARGEST:
            raise ValueError(
                f"{show_key(column.key)} has {values} values; expected fewer than 2**48"
            )
    _check_keys([column.key for column in (*columns, *codes)])
    return tuple(columns), tuple(TextColumn(each.key, each.shape) for each in codes)


def _check_keys(keys: list[Key]) -> None:
    """Check that there are keys, none twice, and that none is a leaf and has leaves below it."""
    known = set(keys)
    if not keys or len(known) != len(keys):
        raise ValueError(f"columns has {len(keys)} keys; expected one or more, none of them twice")
    above = {key[:depth]: key for key in keys for depth in range(1, len(key))}
    for key in above.keys() & known:
        raise ValueError(
            f"columns: expected either {show_key(key)} or {show_key(above[key])}, which is below "
            "it, found both"
        )


def _check_filename(name: str) -> None:
    """Refuse a name that no disk takes; ``check_sizes`` refuses one outside the folder."""
    longest = max(len(part.encode()) for part in name.split("/"))
    if "\0" in name or longest > MAX_NAME_BYTES or len(name) > MAX_NAME_BYTES * 8:
        raise ValueError(f"files has the name {reprlib.repr(name)}, which no file can have")
