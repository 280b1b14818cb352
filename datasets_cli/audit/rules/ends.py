"""Ends: flags where nothing ends, none where the environment was reset, runs of terminals."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np

from datasets_cli.audit.rules.facts import Measure
from datasets_cli.audit.rules.finding import Finding, Severity
from datasets_cli.audit.rules.rows import AuditedRows
from datasets_cli.audit.rules.rule import About, RowNumbers, Rule
from datasets_cli.schema.columns import TERMINATED, Key

GAP = 3.0
"""How many times extraordinary rows must exceed ordinary ones, so that no threshold is chosen."""
RARE = 10
"""How many times more frequent ordinary steps must be; else what is ordinary is not known."""
MOST_ENDS = 200_000
"""That are compared with steps; where there are more, nothing is proved."""


@dataclass
class ImpossibleTerminals:
    """Rows that terminated."""

    keys: frozenset[Key] = frozenset([TERMINATED])
    rows: RowNumbers = field(default_factory=RowNumbers)

    def observe(self, rows: AuditedRows) -> None:
        self.rows.add(rows.numbers[rows.flag(TERMINATED)])

    def conclude(self, rule: Rule) -> Finding | None:
        return rule.found(self.rows)


@dataclass
class TerminalRuns:
    """Trajectories of one terminated row that follow a terminated row."""

    keys: frozenset[Key] = frozenset([TERMINATED])
    rows: RowNumbers = field(default_factory=RowNumbers)
    was_terminated: bool = False
    has_longer: bool = False

    def observe(self, rows: AuditedRows) -> None:
        terminated = rows.flag(TERMINATED)
        follows = np.concatenate(([self.was_terminated], terminated[:-1]))
        is_alone = rows.is_first & rows.is_last
        self.rows.add(rows.numbers[is_alone & terminated & follows])
        self.has_longer |= not is_alone.all()
        self.was_terminated = bool(terminated[-1])

    def conclude(self, rule: Rule) -> Finding | None:
        # In tables and bandits one step is what a trajectory is.
        return rule.found(self.rows) if self.has_longer else None


@dataclass
class StepSizes(ABC):
    """How far each step goes, and each cut end to the row that follows it."""

    measure: Measure
    is_shifted: bool
    num_steps: int = 0
    num_ends: int = 0
    ordinary: float = 0.0
    beyond: float = math.inf
    jumps: RowNumbers = field(default_factory=RowNumbers)
    _end_steps: list[np.ndarray] = field(default_factory=list)
    _end_rows: list[np.ndarray] = field(default_factory=list)
    _held: list[np.ndarray] = field(default_factory=list)

    @property
    def keys(self) -> frozenset[Key]:
        return frozenset([self.measure.key, TERMINATED])

    def observe(self, rows: AuditedRows) -> None:
        parts = [self.measure.positions(rows), rows.is_last, rows.flag(TERMINATED)]
        first = rows.first
        if self._held:  # the last row of the run before: its step ends in this run
            parts = [np.concatenate(pair) for pair in zip(self._held, parts, strict=True)]
            first -= 1
        self._held = [part[-1:].copy() for part in parts]
        positions, is_end, is_terminated = parts[0], parts[1][:-1], parts[2][:-1]
        numbers = np.arange(first, first + len(is_end))
        # What is not finite is no step; another rule tells it.
        steps = np.nan_to_num(np.linalg.norm(np.diff(positions, axis=0), axis=1), posinf=0.0)
        is_cut = is_end & ~is_terminated
        if self.is_shifted:  # the last step of a cut trajectory is no row: the next is two away
            steps[is_cut] /= 2
        inside = np.where(is_end, 0.0, steps)
        is_jump = inside > self.measure.bound
        self.num_steps += int((~is_end).sum())
        self.jumps.add(numbers[is_jump])
        self.beyond = min(self.beyond, inside[is_jump].min(initial=math.inf))
        self.ordinary = max(self.ordinary, inside[~is_jump].max(initial=0.0))
        room = max(0, MOST_ENDS - self.num_ends)
        self.num_ends += int(is_cut.sum())
        kept = np.flatnonzero(is_cut)[:room]
        self._end_steps.append(steps[kept])
        self._end_rows.append(numbers[kept])

    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Return rows that are cut ends, int64 ``[n]``, and whether none of them goes far."""
        rows = np.concatenate([np.zeros(0, np.int64), *self._end_rows])
        return rows, self._steps_of_ends <= self.ordinary

    @property
    def _steps_of_ends(self) -> np.ndarray:
        return np.concatenate([np.zeros(0), *self._end_steps])

    def gap(self) -> tuple[float, float]:
        """Return the largest ordinary step, and the least of the others, or else the bound."""
        is_other = self.jumps.count * RARE > self.num_steps or not self.ordinary
        if is_other or self.num_ends > MOST_ENDS:
            return self.ordinary, 0.0  # this is not how the environment moves
        steps = self._steps_of_ends
        least = min(self.beyond, steps[steps > self.ordinary].min(initial=math.inf))
        return self.ordinary, self.measure.bound if math.isinf(least) else least

    @abstractmethod
    def conclude(self, rule: Rule) -> Finding | None:
        """Return what was found."""


@dataclass
class Jumps(StepSizes):
    """Steps within trajectories that are too far."""

    def conclude(self, rule: Rule) -> Finding | None:
        return rule.found(self.jumps, *_judged(*self.gap()))


@dataclass
class FalseEnds(StepSizes):
    """Cut ends whose next row is no farther than a step goes."""

    def conclude(self, rule: Rule) -> Finding | None:
        (rows, is_false), false = self.ends(), RowNumbers()
        measure, severity = _judged(*self.gap())
        if self.jumps.count and severity != "wrong":
            return None  # what an ordinary step is, is not known: the rule on jumps tells that
        if self.ordinary:  # where nothing ever moves, ends look like all other steps
            false.add(rows[is_false])
        return rule.found(false, measure, severity)


@dataclass
class Poses(ABC):
    """How far rows are from where a reset puts the environment."""

    measure: Measure
    near: float = -1.0
    far: float = math.inf
    inside: RowNumbers = field(default_factory=RowNumbers)
    before_far_starts: RowNumbers = field(default_factory=RowNumbers)

    @property
    def keys(self) -> frozenset[Key]:
        return frozenset([self.measure.key])

    def observe(self, rows: AuditedRows) -> None:
        distances = self.measure.distances(rows)
        is_reset = distances <= self.measure.bound
        self.near = max(self.near, distances[is_reset].max(initial=-1.0))
        self.far = min(self.far, distances[~is_reset].min(initial=math.inf))
        self.inside.add(rows.numbers[is_reset & ~rows.is_first])
        # The row before such a start has the flag; no row is before the first one of the file.
        self.before_far_starts.add(rows.numbers[~is_reset & rows.is_first & (rows.numbers > 0)] - 1)

    @abstractmethod
    def conclude(self, rule: Rule) -> Finding | None:
        """Return what was found."""


@dataclass
class Resets(Poses):
    """Resets within trajectories."""

    def conclude(self, rule: Rule) -> Finding | None:
        return rule.found(self.inside, *_judged(self.near, self.far))


@dataclass
class FarStarts(Poses):
    """Ends whose next row is not where a reset puts the environment."""

    def conclude(self, rule: Rule) -> Finding | None:
        if self.near < 0:  # without a single reset these are not rows of this environment
            return None
        return rule.found(self.before_far_starts, *_judged(self.near, self.far))


def _judged(low: float, high: float) -> tuple[str, Severity]:
    """Return the two numbers of a gap, and what it allows to say."""
    return (
        f"ordinary up to {low:.3g}, others from {high:.3g}",
        "wrong" if high >= max(GAP * low, math.ulp(0)) else "suspicious",
    )


def _measure(about: About, kind: str) -> Measure | None:
    measure = about.facts.measure
    columns = (each for each in about.columns if measure and each.key == measure.key)
    fits = any(measure and measure.fits(column) for column in columns)
    return measure if measure and measure.kind == kind and fits else None


def _steps(about: About, of: type[StepSizes]) -> StepSizes | None:
    measure = _measure(about, "step")
    return None if measure is None else of(measure, about.is_shifted)


def _poses(about: About, of: type[Poses]) -> Poses | None:
    measure = _measure(about, "pose")
    return None if measure is None else of(measure)


RULES = (
    Rule(
        "false-end",
        1,
        "wrong",
        "A",
        (1, 4, 6, 10),
        "Farama-Foundation/D4RL issue 137",
        "A trajectory is cut off, and the next row goes on where it was.",
        lambda about: _steps(about, FalseEnds) or _poses(about, FarStarts),
    ),
    Rule(
        "impossible-terminal",
        1,
        "wrong",
        "A",
        (2, 3),
        "rows of door-human-v0 and halfcheetah-medium-v0",
        "A row terminated, in an environment that never terminates.",
        lambda about: None if about.facts.terminates else ImpossibleTerminals(),
    ),
    Rule(
        "unflagged-reset",
        1,
        "wrong",
        "A",
        (4,),
        "rows of ant-medium-v0",
        "The environment is reset within a trajectory, and no end is flagged.",
        lambda about: _poses(about, Resets),
    ),
    Rule(
        "unflagged-jump",
        1,
        "wrong",
        "A",
        (6,),
        "Farama-Foundation/D4RL issues 77 and 146",
        "The state jumps farther than a step goes, and no end is flagged.",
        lambda about: _steps(about, Jumps),
    ),
    Rule(
        "terminal-run",
        1,
        "suspicious",
        "B",
        (7, 42),
        "seohongpark/HIQL issue 2",
        "A row terminated right after a terminated one, and is a trajectory of one step. "
        "The view first-success leaves it out.",
        lambda about: TerminalRuns(),
    ),
)
