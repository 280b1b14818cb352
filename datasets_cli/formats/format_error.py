"""The error of bytes that are not valid in their format."""

from __future__ import annotations

from typing import Any


class FormatError(ValueError):
    """Bytes are not valid in their format. A caller that knows their file raises SourceError.

    Args:
        problem: a clause for messages, such as ``"it is cut off"``.
        expected: the expected value, if it has one.
        found: the value that was found instead.
    """

    def __init__(self, problem: str, *, expected: object = None, found: object = None) -> None:
        super().__init__(problem)
        self.expected, self.found = expected, found


def details_of(error: BaseException) -> dict[str, Any]:
    """Return the expected and the found value of an error as attributes of a SourceError."""
    if isinstance(error, FormatError):
        return {"expected": error.expected, "found": error.found}
    return {}
