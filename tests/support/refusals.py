"""Checks of errors, by their class and attributes or by their words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


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


@contextmanager
def refused(error: type[BaseException], **attributes: object) -> Iterator[None]:
    """Check that the block raises an error of this class with these attributes."""
    with pytest.raises(error) as caught:
        yield
    found = {name: getattr(caught.value, name) for name in attributes}
    assert found == attributes, str(caught.value)
