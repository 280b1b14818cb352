"""A finding: what a rule found in the rows of a dataset."""

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
    """What a rule found in the rows of a dataset.

    Args:
        rule: its name.
        version: of the rule.
        severity: ``"wrong"``, a statement about rows that needs no threshold or rests on a fact
            of the environment; ``"suspicious"``, which rests on a threshold or has innocent
            reasons, too; or ``"note"``.
        unit: ``"row"`` or ``"trajectory"``.
        count: how many.
        rows: the rows, or the first row of each trajectory, as ``rlds peek`` counts them; the
            first 100 where the finding was kept.
        measure: the numbers that decided; empty where none did.
        text: one sentence.
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
