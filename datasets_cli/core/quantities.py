"""Formats quantities, long texts and tables for people."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas

MOST_LINES = 20
MOST_CHARACTERS = 200
"""The longest line that is shown whole; one may name all members of a mixture."""


def human_bytes(size: int | None) -> str:
    """Return a size with its unit.

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
    """Return a number with thousands separators, or ``?`` for None."""
    return "?" if count is None else f"{count:,}"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun in the singular or the plural.

    >>> counted(1, "trajectory"), counted(1_200, "trajectory"), counted(2, "batch")
    ('1 trajectory', '1,200 trajectories', '2 batches')
    """
    if count == 1:
        return f"1 {noun}"
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{count:,} {noun[:-1]}ies"
    return f"{count:,} {noun}{'es' if noun.endswith(('s', 'x', 'ch', 'sh')) else 's'}"


def few_lines(text: str) -> str:
    """Return a text shortened in the middle: long lines, and more than 20 lines."""
    lines = [
        line if len(line) <= MOST_CHARACTERS else f"{line[:120]} ... {line[-60:]}"
        for line in text.splitlines()
    ]
    if len(lines) > MOST_LINES:
        left_out = len(lines) - MOST_LINES + 1
        lines[MOST_LINES - 8 : -7] = [f"    ... {left_out:,} more lines"]
    return "\n".join(lines)


def html_table(title: str, table: pandas.DataFrame) -> str:
    """Return a title and a table of at most 20 rows as HTML."""
    rows: str = table.to_html(index=False, max_rows=MOST_LINES, max_cols=MOST_LINES)
    return f"<p>{escape(title)}</p>\n{rows}"


def dropped_steps(count: int, why: str) -> list[str]:
    """Return a note with the number of final steps that are dropped; empty without any."""
    verb = "is" if count == 1 else "are"
    return [f"{counted(count, 'final step')} {verb} dropped: {why}"] if count else []


def splits_and_counts(splits: Mapping[str, Mapping[str, int]]) -> str:
    """Return the splits of a dataset and their numbers of trajectories; empty without splits."""
    return ", ".join(
        f"{name or 'none'} ({counted(count['trajectories'], 'trajectory')})"
        for name, count in splits.items()
    )


def recorded_steps(num_transitions: int, final_steps: int, num_alone: int = 0) -> str:
    """Return a sentence with the recorded steps, the transitions, and the final steps.

    >>> recorded_steps(398, 2)
    '400 recorded steps, 398 transitions: 2 final steps have no successor'
    """
    # num_alone: the number of final steps that are a trajectory of their own.
    final = f"{counted(final_steps, 'final step')} {'has' if final_steps == 1 else 'have'}"
    steps = counted(num_transitions + final_steps, "recorded step")
    kind = "is a trajectory" if num_alone == 1 else "are trajectories"
    alone = f"; {num_alone:,} of them {kind} of one step, without a transition" * bool(num_alone)
    return f"{steps}, {counted(num_transitions, 'transition')}: {final} no successor{alone}"


def channels(measures: Mapping[str, Any]) -> str:
    """Return mean and standard deviation of frames as text, one number for each channel."""
    parts = [f"{name} {', '.join(f'{x:.6g}' for x in measures[name])}" for name in ("mean", "std")]
    return f"{'; '.join(parts)} by channel (of {measures['sampled']:,} frames)"


def printable(text: str) -> str:
    r"""Return one line of text for a terminal, with unprintable characters escaped as in Python.

    The text of a publisher may contain escape sequences, which would move the cursor.

    >>> printable("a\x1b[2Jb\nc")
    'a\\x1b[2Jb\\nc'
    """
    if text.isprintable():
        return text
    # For Python " " is the only printable space; a citation may have others.
    return "".join(
        char
        if char.isprintable() or unicodedata.category(char) == "Zs"
        else char.encode("unicode_escape").decode("ascii")
        for char in text
    )
