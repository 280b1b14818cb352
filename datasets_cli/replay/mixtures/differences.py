"""What members of a mixture differ in, and the refusal that shows it as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from datasets_cli.errors import UsageError
from datasets_cli.replay.mixtures.facts import FACTS, Facts
from datasets_cli.replay.mixtures.forms import ColumnForm
from datasets_cli.schema.columns import Key, show_key

MOST_LINES = 30


def check_columns(forms: Sequence[Mapping[Key, ColumnForm]], names: Sequence[str]) -> None:
    """Check that members have the same columns."""
    keys = sorted({key for each in forms for key in each})
    differing = {
        show_key(key): [str(each.get(key, "-")) for each in forms]
        for key in keys
        if len({each.get(key) for each in forms}) > 1
    }
    if differing:
        raise UsageError(
            "The members of the mixture have different columns, which are never cast, cut or left "
            f"out in silence:\n\n{table('column', names, differing)}\n\n"
            "Say how each member is to be mapped: Member(buffer, rename={old: new}, drop=[key], "
            "cast={key: dtype}, fill={key: value}, pad={key: size})."
        )


def check_facts(facts: Sequence[Facts], names: Sequence[str], accept: Sequence[str]) -> None:
    """Check that what is known of the members' numbers is the same, or that it is accepted."""
    if unknown := [name for name in accept if name not in FACTS]:
        raise UsageError(
            f"accept names what members may differ in: {', '.join(FACTS)}; not "
            f"{', '.join(map(repr, unknown))}."
        )
    differing: dict[str, list[str]] = {}
    for fact in FACTS:
        told = [each[fact] for each in facts if fact in each]
        if fact not in accept and any(value != told[0] for value in told):
            differing[fact] = [_shown(each.get(fact, "not known")) for each in facts]
    if differing:
        accepted = ", ".join(repr(name) for name in differing)
        raise UsageError(
            "The members of the mixture do not mean the same by their numbers, as their metadata "
            f"say:\n\n{table('', names, differing)}\n\n"
            "Scale a column by Member(buffer, scale={'action': factor}), map what is no column by "
            f"preprocess(), or say that it may differ: Mixture(..., accept=[{accepted}])."
        )


def table(title: str, names: Sequence[str], lines: Mapping[str, Sequence[str]]) -> str:
    """Return a table of text: a line for each name, a column for each member."""
    rows = [[title, *names], *([name, *cells] for name, cells in lines.items())]
    left = len(rows) - MOST_LINES
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    shown = [
        "  "
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows[:MOST_LINES]
    ]
    return "\n".join([*shown, f"  and {left} more"] if left > 0 else shown)


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
