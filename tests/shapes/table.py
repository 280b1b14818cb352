"""The table of what came of the programs: written into a page, and read from it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tests.shapes.variants import VARIANTS, Outcome
from tests.support.paths import PROJECT

PAGE = PROJECT / "docs" / "coming-from.md"
BEGIN, END = "<!-- programs: written by scripts/shapes -->\n", "<!-- end of programs -->"
SWAPPED = [variant for variant in VARIANTS if variant != "torchrl"]
HEAD = ("program", "with data alone", "with collectors", "with specs swapped")
SAME, RUNS, NONE = "runs, same losses", "runs", "no such line"
LONGEST = 120

Outcomes = Mapping[str, Outcome]


def cell(outcome: Outcome, right: Outcome) -> str:
    """Return what is said of an outcome beside TorchRL's."""
    if outcome is None:
        return NONE
    if isinstance(outcome, str):
        line = outcome.splitlines()[0].replace("|", "\\|")
        return line if len(line) <= LONGEST else f"{line[:LONGEST]}…"
    assert isinstance(right, list), f"TorchRL itself does not run it: {right}"
    close = map(lambda a, b: math.isclose(a, b, rel_tol=1e-5), outcome, right)
    return SAME if len(outcome) == len(right) and all(close) else RUNS


def cells(outcomes: Outcomes) -> list[str]:
    """Return what is said of a program, one text a column."""
    return [cell(outcomes[variant], outcomes["torchrl"]) for variant in SWAPPED]


def written(told: str, programs: Mapping[str, Outcomes]) -> None:
    """Put the table of the programs into the page, below what is told of this run."""
    rows = {name: cells(outcomes) for name, outcomes in programs.items()}
    lines = [HEAD, ("---",) * len(HEAD), *([title(name), *row] for name, row in rows.items())]
    runs = []
    for number, column in enumerate(HEAD[1:]):
        asked = [row[number] for row in rows.values() if row[number] != NONE]
        runs.append(f"{sum(text in (SAME, RUNS) for text in asked)} of {len(asked)} {column}")
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    text = f"{before}{BEGIN}{told} It runs: {', '.join(runs)}.\n\n{table}\n{END}{after}"
    PAGE.write_text(text, encoding="utf-8")


def title(name: str) -> str:
    return name.replace("_", " ")


def read(name: str) -> list[str]:
    """Return what the page says of a program."""
    text = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {title(name)} |")]
    return line.strip("| ").split(" | ")[1:]
