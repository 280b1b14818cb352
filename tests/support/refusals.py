"""Checks of errors, by their class and attributes or by their words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

Refusal = str | Mapping[str, Any]
"""What an error has: words, as a regular expression, or attributes."""


def check_refused(
    error: type[BaseException], calls: Iterable[tuple[Refusal, Callable[[], Any]]]
) -> list[BaseException]:
    """Make each call; list those that are refused otherwise than expected. Return the errors."""
    refusals, others = [], []
    for expected, call in calls:
        try:
            found: Any = call()
        except error as refusal:
            refusals.append(found := refusal)
        except Exception as other:
            found = other
        if not (isinstance(found, error) and _has(found, expected)):
            others.append(f"expected {expected!r}, found {found!r}")
    assert not others, "\n".join(others)
    return refusals


def _has(error: BaseException, expected: Refusal) -> bool:
    if isinstance(expected, str):
        return re.search(expected, str(error)) is not None
    return {name: getattr(error, name) for name in expected} == expected


@contextmanager
def refused(error: type[BaseException], **attributes: object) -> Iterator[None]:
    """Check that the block raises an error of this class with these attributes."""
    with pytest.raises(error) as caught:
        yield
    found = {name: getattr(caught.value, name) for name in attributes}
    assert found == attributes, str(caught.value)
