"""Ends: false flags, missing flags at resets, runs of terminals."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from datasets_cli.audit.rules.facts import Measure
from datasets_cli.audit.rules.finding import Finding, Severity
from datasets_cli.audit.rules.rows import AuditedRows
from datasets_cli.audit.rules.rule import About, RowNumbers, Rule, rule
from datasets_cli.schema.columns import TERMINATED, Key

GAP = 3.0
"""How many times extraordinary rows must exceed ordinary ones, so that no threshold is chosen."""
RARE = 10
"""The minimum ratio of ordinary steps to others; below it, ordinary steps are unknown."""
MOST_ENDS = 150_000
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
        # In tables and bandits each trajectory is one step.
        return rule.found(self.rows) if self.has_longer else None


STEPS = "a step goes {:.3g} at most, others from {:.3g}"
POSES = "resets are within {:.3g} of the pose of a reset, other rows from {:.3g}"


@dataclass
class StepSizes:
    """How far each step goes, and each cut end to the row that follows it."""

    measure: Measure
    pose: Measure | None  # of a reset; a step that leads there is not of this kind
    is_shifted: bool
    num_steps: int = 0
    num_ends: int = 0
    ordinary: float = 0.0
    beyond: float = math.inf
    jumps: RowNumbers = field(default_factory=RowNumbers)
    # Of cut ends: how far it is to the next row, and from that one to the first row of the file.
    _ends: list[np.ndarray] = field(default_factory=lambda: [np.zeros((0, 2))])
    _end_rows: list[np.ndarray] = field(default_factory=lambda: [np.zeros(0, np.int64)])
    _held: list[np.ndarray] = field(default_factory=list)
    _origin: np.ndarray | None = None

    @property
    def keys(self) -> frozenset[Key]:
        return frozenset([self.measure.key, *([self.pose.key] if self.pose else []), TERMINATED])

    def observe(self, rows: AuditedRows) -> None:
        is_reset = self.pose.is_near(rows) if self.pose else np.zeros(len(rows), np.bool_)
        parts = [self.measure.positions(rows), is_reset, rows.is_last, rows.flag(TERMINATED)]
        first = rows.first
        if self._held:  # the last row of the run before: its step ends in this run
            parts = [np.concatenate(pair) for pair in zip(self._held, parts, strict=True)]
            first -= 1
        self._held = [part[-1:].copy() for part in parts]
        positions, is_end, is_terminated = parts[0], parts[2][:-1], parts[3][:-1]
        self._origin = positions[0].copy() if self._origin is None else self._origin
        numbers = np.arange(first, first + len(is_end))
        # Distances that are not finite are ignored; another rule reports them.
        steps = np.nan_to_num(np.linalg.norm(np.diff(positions, axis=0), axis=1), posinf=0.0)
        is_cut = is_end & ~is_terminated
        inside = np.where(is_end | parts[1][1:], 0.0, steps)
        is_jump = inside > self.measure.bound
        self.num_steps += int((~is_end).sum())
        self.jumps.add(numbers[is_jump])
        self.beyond = min(self.beyond, inside[is_jump].min(initial=math.inf))
        self.ordinary = max(self.ordinary, inside[~is_jump].max(initial=0.0))
        room = max(0, MOST_ENDS - self.num_ends)
        self.num_ends += int(is_cut.sum())
        kept = np.flatnonzero(is_cut)[:room]
        from_origin = np.linalg.norm(positions[kept + 1] - self._origin, axis=1)
        self._ends.append(np.stack((steps[kept], from_origin), 1))
        self._end_rows.append(numbers[kept])

    def false_ends(self, rule: Rule) -> Finding | None:
        """Return the cut ends whose next row is within a step and is not a reset."""
        steps, from_origin = self._steps_of_ends(), np.concatenate(self._ends)[:, 1]
        measure, severity = _judged(STEPS, *self._gap())
        if (self.jumps.count and severity != "wrong") or not self.ordinary:
            return None  # the ordinary step is unknown: the rule on jumps reports it
        # A reset may land near an end. It is then near all other resets, too.
        is_false = (steps <= self.ordinary) & (from_origin > GAP * self.ordinary)
        false = RowNumbers()
        false.add(np.concatenate(self._end_rows)[is_false])
        return rule.found(false, measure, severity)

    def far_steps(self, rule: Rule) -> Finding | None:
        """Return the steps within trajectories that are too far."""
        return rule.found(self.jumps, *_judged(STEPS, *self._gap()))

    def _steps_of_ends(self) -> np.ndarray:
        steps: np.ndarray = np.concatenate(self._ends)[:, 0]
        # The last step of a cut trajectory has no row: two steps lead to the next row.
        return steps - self.ordinary if self.is_shifted else steps

    def _gap(self) -> tuple[float, float]:
        """Return the largest ordinary step, and the smallest other step or the bound."""
        is_other = self.jumps.count * RARE > self.num_steps or not self.ordinary
        if is_other or self.num_ends > MOST_ENDS:
            return self.ordinary, 0.0  # this is not how the environment moves
        steps = self._steps_of_ends()
        least = min(self.beyond, steps[steps > self.ordinary].min(initial=math.inf))
        return self.ordinary, self.measure.bound if math.isinf(least) else least


@dataclass
class Poses:
    """How far rows are from where a reset puts the environment."""

    measure: Measure
    near: float = -1.0
    far: float = math.inf
    inside: RowNumbers = field(default_factory=RowNumbers)
    before_far_starts: RowNumbers = field(default_factory=RowNumbers)
    was_terminated: bool = False

    @property
    def keys(self) -> frozenset[Key]:
        return frozenset([self.measure.key, TERMINATED])

    def observe(self, rows: AuditedRows) -> None:
        distances, terminated = self.measure.distances(rows), rows.flag(TERMINATED)
        is_far_start = (distances > self.measure.bound) & rows.is_first & (rows.numbers > 0)
        is_far_start &= ~np.concatenate(([self.was_terminated], terminated[:-1]))
        self.was_terminated = bool(terminated[-1])
        is_reset = distances <= self.measure.bound
        self.near = max(self.near, distances[is_reset].max(initial=-1.0))
        self.far = min(self.far, distances[~is_reset].min(initial=math.inf))
        self.inside.add(rows.numbers[is_reset & ~rows.is_first])
        # The row before such a start has the flag; no row is before the first one of the file.
        self.before_far_starts.add(rows.numbers[is_far_start] - 1)

    def false_ends(self, rule: Rule) -> Finding | None:
        """Return the cut ends whose next row is not where a reset puts the environment."""
        if self.near < 0:  # without a single reset these are not rows of this environment
            return None
        return rule.found(self.before_far_starts, *_judged(POSES, self.near, self.far))

    def resets(self, rule: Rule) -> Finding | None:
        """Return the resets within trajectories."""
        return rule.found(self.inside, *_judged(POSES, self.near, self.far))


def _judged(measure: str, low: float, high: float) -> tuple[str, Severity]:
    """Return a sentence with the two numbers of a gap, and its conclusion."""
    return (
        measure.format(low, high),
        "wrong" if high >= max(GAP * low, math.ulp(0)) else "suspicious",
    )


def _measure(about: About, kind: str) -> Measure | None:
    measures = (each for each in about.facts.measures if each.kind == kind)
    return next((each for each in measures if any(map(each.fits, about.columns))), None)


def _steps(about: About) -> StepSizes | None:
    measure, pose = _measure(about, "step"), _measure(about, "pose")
    return None if measure is None else StepSizes(measure, pose, about.is_shifted)


def _poses(about: About) -> Poses | None:
    measure = _measure(about, "pose")
    return None if measure is None else Poses(measure)


RULES = (
    rule(
        "false-end",
        lambda about: about.shared(_poses) or about.shared(_steps),
        lambda state, rule: state.false_ends(rule),
    ),
    rule(
        "impossible-terminal",
        lambda about: None if about.facts.terminates else ImpossibleTerminals(),
    ),
    rule("unflagged-reset", lambda about: about.shared(_poses), Poses.resets),
    rule("unflagged-jump", lambda about: about.shared(_steps), StepSizes.far_steps),
    rule("terminal-run", lambda about: TerminalRuns()),
)
