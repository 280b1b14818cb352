"""Lengths: trajectories that are longer than their environment allows."""

from __future__ import annotations

from dataclasses import dataclass, field

from datasets_cli.audit.rules.finding import Finding
from datasets_cli.audit.rules.rows import AuditedRows
from datasets_cli.audit.rules.rule import About, RowNumbers, Rule
from datasets_cli.schema.columns import TERMINATED, Key


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


def _begin(about: About) -> BeyondLimit | None:
    metadata = about.metadata
    spec = metadata.get("env_spec")
    stated = metadata.get("max_episode_steps")
    if isinstance(spec, dict):
        stated = spec.get("max_episode_steps") or stated
    return BeyondLimit(stated) if isinstance(stated, int) and stated > 0 else None


RULES = (
    Rule(
        "beyond-limit",
        1,
        "note",
        "C",
        (16, 21),
        "Farama-Foundation/Minari issue 286, and D4RL's adroit files",
        "A trajectory is longer than the limit that is stated for its environment.",
        _begin,
        "trajectory",
    ),
)
