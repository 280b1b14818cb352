"""Lengths: trajectories that are longer than allowed, or cut short."""

from __future__ import annotations

from dataclasses import dataclass, field

from datasets_cli.audit.rules.finding import Finding
from datasets_cli.audit.rules.rows import AuditedRows
from datasets_cli.audit.rules.rule import About, RowNumbers, Rule, rule
from datasets_cli.schema.columns import TERMINATED, Key

UNFINISHED = "without_last_observation"
"""The metadata entry with the last ``rows`` of such episodes, and the number of ``episodes``."""


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


RULES = (
    rule("beyond-limit", _begin),
    rule("no-last-observation", _unfinished),
)
