"""Whole numbers in an address."""

from __future__ import annotations

from starlette.requests import Request

from datasets_cli.errors import UsageError

LARGEST = 2**48


def whole_number(request: Request, name: str, default: int, least: int = 0) -> int:
    """Return a whole number of the query of an address, or what stands for it."""
    text = request.query_params.get(name, "") or str(default)
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise UsageError(f"{name} is {text[:40]!r}; expected a whole number, {least} or more.")
    return max(least, min(int(text), LARGEST))
