"""Tables of calls that are refused, each with the words that its error has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any


def check_refused(
    error: type[BaseException], calls: Iterable[tuple[str, Callable[[], Any]]]
) -> list[BaseException]:
    """Make each call; list those that are not refused in their words. Return the errors."""
    refusals, others = [], []
    for words, call in calls:
        try:
            found: Any = call()
        except error as refusal:
            refusals.append(found := refusal)
        except Exception as other:
            found = other
        if not (isinstance(found, error) and re.search(words, str(found))):
            others.append(f"expected {words!r}, found {found!r}")
    assert not others, "\n".join(others)
    return refusals
