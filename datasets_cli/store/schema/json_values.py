"""Reading JSON that may say anything: a value that is not as expected is named by where it is."""

from __future__ import annotations

import reprlib
from typing import Any

from datasets_cli.store.schema.columns import Column, Key
from datasets_cli.store.schema.element_types import ITEM_BYTES

LARGEST = 2**48
"""What a number of rows, bytes or dimensions stays below, so that no product of two overflows."""

MOST_NAMES = 64  # of one key: every level of a batch is a call in a call
MOST_DIMENSIONS = 62  # of one row: numpy's arrays have at most 64, and the rows are one


def wrong(where: str, expected: str, found: object) -> ValueError:
    """Return the error of a value that is not what it must be."""
    return ValueError(f"{where}: expected {expected}, found {reprlib.repr(found)}")


def object_at(value: Any, where: str) -> dict[str, Any]:
    """Return a JSON object."""
    if not isinstance(value, dict):
        raise wrong(where, "an object", value)
    return value


def list_at(value: Any, where: str) -> list[Any]:
    """Return a JSON list; see ``object_at``."""
    if not isinstance(value, list):
        raise wrong(where, "a list", value)
    return value


def number_at(value: Any, where: str, least: int = 0) -> int:
    """Return a whole number from ``least`` up to ``LARGEST``; see ``object_at``."""
    if type(value) is not int or not least <= value < LARGEST:
        raise wrong(where, f"a whole number from {least} to 2**48", value)
    return value


def key_at(value: Any, where: str) -> Key:
    """Return a key from its list of names; see ``object_at``."""
    key = tuple(list_at(value, where))
    if not _is_key(key):
        raise _wrong_key(key, where)
    return key


def column_at(entry: dict[str, Any], where: str) -> Column:
    """Return the column of an entry with ``key``, ``dtype`` and ``shape``; see ``object_at``."""
    key, shape = entry.get("key"), entry.get("shape")
    if not isinstance(key, list) or not isinstance(shape, list):
        raise ValueError(
            f"{where}: expected lists as key and shape, found {reprlib.repr(key)} and "
            f"{reprlib.repr(shape)}"
        )
    column = Column(tuple(key), entry.get("dtype", ""), tuple(shape))
    check_column(column, where)
    return column


def check_column(column: Column, where: str) -> None:
    """Check that a column is one that could have been written; see ``object_at``."""
    if not _is_key(column.key):
        raise _wrong_key(column.key, f"{where}.key")
    if not isinstance(column.dtype, str) or column.dtype not in ITEM_BYTES:
        raise wrong(f"{where}.dtype", f"one of {', '.join(sorted(ITEM_BYTES))}", column.dtype)
    if len(column.shape) > MOST_DIMENSIONS:
        raise ValueError(
            f"{where}.shape: expected at most {MOST_DIMENSIONS} dimensions, found "
            f"{len(column.shape)}"
        )
    for number, size in enumerate(column.shape):
        if type(size) is not int or not 0 <= size < LARGEST:
            number_at(size, f"{where}.shape[{number}]")


def is_deeper(document: dict[str, Any] | list[Any], levels: int) -> bool:
    """Tell whether dicts and lists are nested in more than some levels; without recursion.

    Args:
        document: the first level.
        levels: how many there may be.
    """
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


def _is_key(key: tuple[Any, ...]) -> bool:
    return 1 <= len(key) <= MOST_NAMES and all(isinstance(name, str) and name for name in key)


def _wrong_key(key: tuple[Any, ...], where: str) -> ValueError:
    return wrong(where, f"a list of 1 to {MOST_NAMES} names", list(key))
