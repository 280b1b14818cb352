"""Time: lengths, limits and timestamps of trajectories."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from datasets_cli.audit.rules.finding import Finding
from datasets_cli.audit.rules.rows import AuditedRows
from datasets_cli.audit.rules.rule import About, RowNumbers, Rule, rule
from datasets_cli.schema.columns import TERMINATED, Key

UNFINISHED = "without_last_observation"
"""The metadata entry with the last ``rows`` of such episodes, and the number of ``episodes``."""
TIMESTAMP: Key = ("info", "timestamp")
FEWEST = 10
"""The number of trajectories of equal length that rules out chance."""


@dataclass
class BeyondLimit:
    """Trajectories that are longer than a limit."""

    limit: int
    keys: frozenset[Key] = frozenset([TERMINATED])
    firsts: RowNumbers = field(default_factory=RowNumbers)
    longest: int = 0

    def observe(self, rows: AuditedRows) -> None:
        trajectories = rows.trajectory[rows.is_last]
        lengths = rows.starts[trajectories + 1] - rows.starts[trajectories]
        self.longest = max(self.longest, int(lengths.max(initial=0)))
        self.firsts.add(rows.starts[trajectories[lengths > self.limit]])

    def conclude(self, rule: Rule) -> Finding | None:
        return rule.found(self.firsts, f"up to {self.longest:,} steps, limit {self.limit:,}")


@dataclass
class Unfinished:
    """Rows after which the file has no observation, as its recipe reports."""

    rows: RowNumbers
    num_all: int
    keys: frozenset[Key] = frozenset()

    def observe(self, rows: AuditedRows) -> None:
        """Data that is missing in the file cannot be seen in rows."""

    def conclude(self, rule: Rule) -> Finding | None:
        return rule.found(self.rows, f"{self.rows.count:,} of {self.num_all:,} episodes")


def _unfinished(about: About) -> Unfinished | None:
    rows, count = RowNumbers(), about.stated(UNFINISHED, "episodes")
    rows.add(about.stated(UNFINISHED, "rows"))
    return Unfinished(rows, int(count[0])) if count.size else None


def _begin(about: About) -> BeyondLimit | None:
    metadata = about.metadata
    spec = metadata.get("env_spec")
    stated = metadata.get("max_episode_steps")
    if isinstance(spec, dict):
        stated = spec.get("max_episode_steps") or stated
    return BeyondLimit(stated) if isinstance(stated, int) and stated > 0 else None


@dataclass
class Timestamps:
    """Rows whose time is before that of the row before, in one trajectory."""

    keys: frozenset[Key] = frozenset([TIMESTAMP])
    back: RowNumbers = field(default_factory=RowNumbers)
    _held: np.ndarray | None = None

    def observe(self, rows: AuditedRows) -> None:
        times = rows.values(TIMESTAMP)[:, 0]
        before = times[:1] if self._held is None else self._held
        steps = np.where(rows.is_first, 0.0, np.diff(times, prepend=before))
        self.back.add(rows.numbers[steps < 0])
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
    rule("timestamp-back", lambda about: Timestamps() if TIMESTAMP in about.keys else None),
    rule("time-limit-terminal", lambda about: LimitTerminals()),
    rule("beyond-limit", _begin),
    rule("no-last-observation", _unfinished),
)
