"""Lengths: trajectories longer than allowed, with another length than stated, or cut short."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from datasets_cli.audit.rules.finding import Finding
from datasets_cli.audit.rules.rows import AuditedRows
from datasets_cli.audit.rules.rule import About, RowNumbers, Rule, rule
from datasets_cli.schema.columns import TERMINATED, Key

NUMBER: Key = ("info", "episode_index")
LENGTHS = "trajectory_lengths"
"""The metadata entry with the published number of steps of each trajectory."""
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
class StatedLengths:
    """Whether each trajectory has as many steps as are stated for it."""

    stated: np.ndarray  # of trajectories by their numbers, int64 [K]
    is_shifted: bool
    keys: frozenset[Key]
    differing: RowNumbers = field(default_factory=RowNumbers)
    _firsts: np.ndarray = field(init=False)  # row of each trajectory, or -1
    _num_rows: int = 0

    def __post_init__(self) -> None:
        self._firsts = np.full(len(self.stated), -1)

    def observe(self, rows: AuditedRows) -> None:
        at = np.flatnonzero(rows.is_last)
        numbers = trajectories = rows.trajectory[at]
        if NUMBER in self.keys:
            numbers = rows.columns[NUMBER].reshape(len(rows))[at]
        firsts, stops = rows.starts[trajectories], rows.starts[trajectories + 1]
        # The last step of a truncated trajectory has no row.
        steps = stops - firsts + (self.is_shifted & ~rows.flag(TERMINATED)[at])
        is_known = (numbers >= 0) & (numbers < len(self.stated))
        is_right = is_known & (self.stated[np.where(is_known, numbers, 0)] == steps)
        self.differing.add(firsts[~is_right])
        self._firsts[numbers[is_known]] = firsts[is_known]
        self._num_rows += len(rows)

    def conclude(self, rule: Rule) -> Finding | None:
        is_missing = (self._firsts < 0) & (self.stated > self.is_shifted)
        # One without a row is where the next one begins, or at the end.
        begins = np.where(self._firsts < 0, self._num_rows - 1, self._firsts)
        begins = np.minimum.accumulate(begins[::-1])[::-1]
        measure = f"{is_missing.sum():,} of {len(self.stated):,} have no row"
        self.differing.add(begins[is_missing])
        return rule.found(self.differing, measure)


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


def _stated(about: About) -> StatedLengths | None:
    stated = about.stated(LENGTHS)
    keys = frozenset([TERMINATED, *filter(about.has_number, [NUMBER])])
    return StatedLengths(stated, about.is_shifted, keys) if stated.size else None


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
    rule("stated-length", _stated),
    rule("no-last-observation", _unfinished),
)
