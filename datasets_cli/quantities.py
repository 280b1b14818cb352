"""Quantities as people read them."""

from __future__ import annotations


def human_bytes(size: int | None) -> str:
    """Return a size as people read it.

    >>> human_bytes(137_721_019)
    '137.7 MB'
    """
    if size is None:
        return "?"
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def human_count(count: int | None) -> str:
    """Return a number with thousands set apart, or ``?``."""
    return "?" if count is None else f"{count:,}"
