"""Rewards: shifted by a row, or clipped under the name of unclipped rewards."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from datasets_cli.audit.rules.finding import Finding
from datasets_cli.audit.rules.rows import AuditedRows
from datasets_cli.audit.rules.rule import About, RowNumbers, Rule, rule
from datasets_cli.schema.columns import REWARD, Key

OBSERVATION: Key = ("observation",)
FOLLOWING: Key = ("next", "observation")
GOAL: Key = ("info", "goal")
UNCLIPPED: Key = ("info", "unclipped_reward")


@dataclass
class RewardRows:
    """Whether each reward is that of its row's observation, or of the one that follows."""

    tolerance: float
    keys: frozenset[Key] = frozenset([OBSERVATION, FOLLOWING, GOAL, REWARD])
    num_own: int = 0
    num_rows: int = 0
    wrong: RowNumbers = field(default_factory=RowNumbers)

    def observe(self, rows: AuditedRows) -> None:
        goal, rewards = rows.values(GOAL, (0, 1)), rows.values(REWARD)[:, 0]
        own, following = (
            np.linalg.norm(rows.values(key, (0, 1)) - goal, axis=1) <= self.tolerance
            for key in (OBSERVATION, FOLLOWING)
        )
        self.num_rows += len(rows)
        self.num_own += int((rewards == own).sum())
        self.wrong.add(rows.numbers[rewards != following])

    def conclude(self, rule: Rule) -> Finding | None:
        return rule.found(self.wrong) if self.num_own == self.num_rows else None


@dataclass
class Clipped:
    """Whether unclipped rewards differ from clipped ones anywhere."""

    keys: frozenset[Key] = frozenset([REWARD, UNCLIPPED])
    differ: bool = False
    rows: RowNumbers = field(default_factory=RowNumbers)

    def observe(self, rows: AuditedRows) -> None:
        rewards, unclipped = rows.values(REWARD), rows.values(UNCLIPPED)
        self.differ |= bool((rewards != unclipped).any())
        self.rows.add(rows.numbers[rewards[:, 0] != 0])

    def conclude(self, rule: Rule) -> Finding | None:
        return None if self.differ else rule.found(self.rows)


def _reward_rows(about: About) -> RewardRows | None:
    tolerance, needed = about.facts.tolerance, {OBSERVATION, FOLLOWING, GOAL, REWARD}
    return None if tolerance is None or needed - about.keys else RewardRows(tolerance)


RULES = (
    rule("reward-of-wrong-row", _reward_rows),
    rule("clipped-rewards", lambda about: None if {UNCLIPPED, REWARD} - about.keys else Clipped()),
)
