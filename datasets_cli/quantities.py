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


def counted(count: int, noun: str) -> str:
    """Return a number with its noun in the singular or the plural.

    >>> counted(1, "trajectory"), counted(1_200, "trajectory"), counted(2, "batch")
    ('1 trajectory', '1,200 trajectories', '2 batches')
    """
    if count == 1:
        return f"1 {noun}"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{count:,} {noun[:-1]}ies"
    return f"{count:,} {noun}{'es' if noun.endswith(('s', 'x', 'ch', 'sh')) else 's'}"
