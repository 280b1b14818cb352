"""Time: timestamps that go back or skip, and time limits that are flagged as terminations."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from datasets_cli.audit.rules.finding import Finding
from datasets_cli.audit.rules.rows import AuditedRows
from datasets_cli.audit.rules.rule import RowNumbers, Rule
from datasets_cli.schema.columns import TERMINATED, Key

TIMESTAMP: Key = ("info", "timestamp")
FEWEST = 10
"""Trajectories of one length from which on that is no accident."""


@dataclass
class Timestamps:
    """Rows whose time is before that of the row before, in one trajectory."""

    keys: frozenset[Key] = frozenset([TIMESTAMP])
    back: RowNumbers = field(default_factory=RowNumbers)
    _held: np.ndarray | None = None

    def observe(self, rows: AuditedRows) -> None:
        times = rows.values(TIMESTAMP)[:, 0]
        before = times[:1] if self._held is None else self._held
        is_back = np.diff(times, prepend=before) < 0
        self.back.add(rows.numbers[is_back & ~rows.is_first])
        self._held = times[-1:]

    def conclude(self, rule: Rule) -> Finding | None:
        return rule.found(self.back)


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


RULES = (
    Rule(
        "timestamp-back",
        1,
        "wrong",
        "B",
        (45,),
        "huggingface/lerobot issues 933 and 1875",
        "A timestamp is before that of the row before, in one trajectory.",
        lambda about: Timestamps() if TIMESTAMP in about.keys else None,
    ),
    Rule(
        "time-limit-terminal",
        1,
        "suspicious",
        "A",
        (29,),
        "rows of RL Unplugged's real-world RL in TFDS",
        "Every trajectory terminated after exactly as many steps as all others.",
        lambda about: LimitTerminals(),
    ),
)
