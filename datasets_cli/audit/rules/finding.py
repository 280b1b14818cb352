"""A finding of a rule in the rows of a dataset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.quantities import counted

Severity = Literal["wrong", "suspicious", "note"]
SEVERITIES: tuple[Severity, ...] = ("wrong", "suspicious", "note")
SHOWN_ROWS = 3


@dataclass(frozen=True)
class Finding(JsonForm):
    """A defect that a rule found in the rows of a dataset.

    Args:
        rule: the name of the rule.
        version: the version of the rule.
        severity: ``"wrong"``: proved by the rows without a threshold, or by a fact of the
            environment; ``"suspicious"``: depends on a threshold or may have innocent reasons;
            or ``"note"``.
        unit: ``"row"`` or ``"trajectory"``.
        count: the number of rows or trajectories.
        rows: the rows, or the first row of each trajectory, numbered as in ``rlds peek``; a cached
            finding has the first 100.
        measure: the deciding numbers, or empty.
        text: a sentence.
    """

    rule: str
    version: int
    severity: Severity
    unit: str
    count: int
    rows: tuple[int, ...]
    measure: str
    text: str

    @property
    def where(self) -> str:
        """How many rows or trajectories, and the first of them."""
        first = ", ".join(f"{row:,}" for row in self.rows[:SHOWN_ROWS])
        more = ", ..." if self.count > SHOWN_ROWS else ""
        of = "row" if self.unit == "row" else "beginning in row"
        return f"{counted(self.count, self.unit)}: {of}{'s' * (self.count > 1)} {first}{more}"

    def __str__(self) -> str:
        return f"{self.text} {self.where}{f'; {self.measure}' * bool(self.measure)}"
