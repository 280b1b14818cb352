"""Whole numbers that a user gives: sizes, lengths, counts, seeds."""

from __future__ import annotations

import operator
import reprlib
from typing import Any

from datasets_cli.errors import UsageError


def whole_number(name: str, value: Any, least: int | None = None) -> int:
    """Return a whole number as an int.

    Args:
        name: the argument's name, for the message.
        value: an int, or what is as good as one, such as numpy's integers; not a bool.
        least: the least that it may be; any by default.

    Raises:
        UsageError: it is something else, or less.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except (TypeError, ValueError):
        number = None
    if number is None or (least is not None and number < least):
        limit = "" if least is None else f" from {least} on"
        found = number if number is not None else f"{type(value).__name__} {reprlib.repr(value)}"
        raise UsageError(f"{name} must be a whole number{limit}, not {found}.")
    return number
