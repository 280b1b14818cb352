"""Time: timestamps that go back or skip, and time limits that are flagged as terminations."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from datasets_cli.audit.rules.finding import Finding
from datasets_cli.audit.rules.rows import AuditedRows
from datasets_cli.audit.rules.rule import About, RowNumbers, Rule, rule
from datasets_cli.schema.columns import TERMINATED, Key

TIMESTAMP: Key = ("info", "timestamp")
FEWEST = 10
"""The number of trajectories of equal length that rules out chance."""


@dataclass
class Timestamps:
    """Rows whose time is before that of the row before, or frames after it, in one trajectory."""

    longest: float  # step, in seconds
    keys: frozenset[Key] = frozenset([TIMESTAMP])
    back: RowNumbers = field(default_factory=RowNumbers)
    skips: RowNumbers = field(default_factory=RowNumbers)
    largest: float = 0.0
    _held: np.ndarray | None = None

    def observe(self, rows: AuditedRows) -> None:
        times = rows.values(TIMESTAMP)[:, 0]
        before = times[:1] if self._held is None else self._held
        steps = np.where(rows.is_first, 0.0, np.diff(times, prepend=before))
        self.back.add(rows.numbers[steps < 0])
        self.skips.add(rows.numbers[steps > self.longest])
        self.largest = max(self.largest, float(np.fmax.reduce(steps)))
        self._held = times[-1:]

    def skipped(self, rule: Rule) -> Finding | None:
        """Return the rows before which frames are missing."""
        measure = f"up to {self.largest:.3g} s, more than {self.longest:.3g} s for a frame"
        return rule.found(self.skips, measure)


@dataclass
class LimitTerminals:
    """Whether every trajectory has one length and terminated there."""

    keys: frozenset[Key] = frozenset([TERMINATED])
    ends: RowNumbers = field(default_factory=RowNumbers)
    lengths: set[int] = field(default_factory=set)
    all_terminated: bool = True

    def observe(self, rows: AuditedRows) -> None:
        is_last = rows.is_last
        self.ends.add(rows.numbers[is_last])
        starts = rows.starts
        trajectories = rows.trajectory[is_last]
        lengths = starts[trajectories + 1] - starts[trajectories]
        self.lengths |= {*np.unique(lengths)[:2].tolist()}
        self.all_terminated &= bool(rows.flag(TERMINATED)[is_last].all())

    def conclude(self, rule: Rule) -> Finding | None:
        is_limit = len(self.lengths) == 1 and min(self.lengths) > 1 and self.all_terminated
        if not is_limit or self.ends.count < FEWEST:
            return None
        return rule.found(self.ends, f"{min(self.lengths):,} steps each")


def _timestamps(about: About) -> Timestamps | None:
    longest = 1.5 / float(about.stated("fps").max(initial=0.0) or math.nan)
    return Timestamps(longest) if TIMESTAMP in about.keys else None


RULES = (
    rule(
        "timestamp-back",
        lambda about: about.shared(_timestamps),
        lambda state, rule: rule.found(state.back),
    ),
    rule(
        "timestamp-skip",
        lambda about: about.shared(_timestamps) if about.stated("fps").size else None,
        lambda state, rule: state.skipped(rule),
    ),
    rule("time-limit-terminal", lambda about: LimitTerminals()),
)
