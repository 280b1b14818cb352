"""Columns: frozen ones, constant actions, rows of zeros, no motion, no text, no finite numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from datasets_cli.audit.rules.finding import Finding
from datasets_cli.audit.rules.rows import AuditedRows
from datasets_cli.audit.rules.rule import About, RowNumbers, Rule, rule
from datasets_cli.core.quantities import counted
from datasets_cli.schema.columns import REWARD, Key, show_key

MOTION = 1e-3
"""The largest change of a number of an observation at rest, in its own unit."""
IDLE_SHARE = 0.1
"""The share of all steps at rest that makes a note."""
STATES = ("qpos", "qvel")
"""Names of columns that are the state of a simulator, and change with it."""


@dataclass
class Frozen:
    """Whether the state of the simulator changes within a trajectory, and observations do."""

    states: tuple[Key, ...]
    observations: tuple[Key, ...]
    changed: dict[Key, bool] = field(default_factory=dict)
    trajectories: RowNumbers = field(default_factory=RowNumbers)
    last_moving: int = -1
    _held: dict[Key, np.ndarray] = field(default_factory=dict)

    @property
    def keys(self) -> frozenset[Key]:
        return frozenset((*self.states, *self.observations))

    def observe(self, rows: AuditedRows) -> None:
        if all(self.changed.get(key) for key in self.states):
            return  # no column is frozen
        follows = ~rows.is_first if self._held else ~rows.is_first[1:]
        is_moving = np.zeros(len(follows), np.bool_)
        for key in self.keys:
            values = rows.columns[key]
            last, self._held[key] = self._held.get(key), values[-1:].copy()
            if last is not None:
                values = np.concatenate((last, values))
            changes = values[1:] != values[:-1]
            differs = changes.any(tuple(range(1, changes.ndim))) & follows
            if key in self.states:
                self.changed[key] = self.changed.get(key, False) or bool(differs.any())
            else:
                is_moving |= differs
        moving = np.unique(rows.trajectory[len(rows) - len(follows) :][is_moving])
        moving = moving[moving > self.last_moving]
        self.last_moving = int(moving.max(initial=self.last_moving))
        self.trajectories.add(rows.starts[moving])

    def conclude(self, rule: Rule) -> Finding | None:
        frozen = [key for key in self.states if not self.changed.get(key)]
        if not frozen:
            return None
        names = " and ".join(map(show_key, frozen))
        text = f"One value of {names} for a whole trajectory, while observations change."
        return rule.found(self.trajectories, text=text)


@dataclass
class ConstantActions:
    """Whether all actions are the same."""

    keys: frozenset[Key]
    rows: RowNumbers = field(default_factory=RowNumbers)
    is_constant: bool = True
    has_several: bool = False
    _first: dict[Key, np.ndarray] = field(default_factory=dict)

    def observe(self, rows: AuditedRows) -> None:
        self.rows.add(rows.numbers)
        self.has_several |= bool(rows.trajectory[-1])
        for key in self.keys if self.is_constant else ():
            first = self._first.setdefault(key, rows.columns[key][:1].copy())
            self.is_constant &= bool((rows.columns[key] == first).all())

    def conclude(self, rule: Rule) -> Finding | None:
        # One trajectory may well be a test of one action.
        return rule.found(self.rows) if self.is_constant and self.has_several else None


@dataclass
class ZeroRows:
    """Rows whose observation is nothing but zeros."""

    keys: frozenset[Key]
    rows: RowNumbers = field(default_factory=RowNumbers)
    num_rows: int = 0

    def observe(self, rows: AuditedRows) -> None:
        is_zero = np.ones(len(rows), np.bool_)
        for key in self.keys:
            values = rows.columns[key].reshape(len(rows), -1)
            is_zero &= ~values[:, :1].any(1)  # few rows remain
            is_zero[is_zero] = ~values[is_zero].any(1)
        self.rows.add(rows.numbers[is_zero])
        self.num_rows += len(rows)

    def conclude(self, rule: Rule) -> Finding | None:
        share = f"{self.rows.count / max(1, self.num_rows):.2%} of the rows"
        return rule.found(self.rows, share)


@dataclass
class NotFinite:
    """Rows with a reward, an action or an observation that is NaN or infinite."""

    keys: frozenset[Key]
    rows: RowNumbers = field(default_factory=RowNumbers)
    num_first: int = 0

    def observe(self, rows: AuditedRows) -> None:
        is_finite = np.ones(len(rows), np.bool_)
        for key in self.keys:
            if not (each := np.isfinite(rows.columns[key])).all():  # much faster than row by row
                is_finite &= each.reshape(len(rows), -1).all(1)
        self.rows.add(rows.numbers[~is_finite])
        self.num_first += int((~is_finite & rows.is_first).sum())

    def conclude(self, rule: Rule) -> Finding | None:
        where = f"{self.num_first:,} of them the first of a trajectory"
        return rule.found(self.rows, where)


@dataclass
class IdleSteps:
    """Steps after which an observation is unchanged."""

    keys: frozenset[Key]
    rows: RowNumbers = field(default_factory=RowNumbers)
    num_steps: int = 0
    _held: dict[Key, np.ndarray] = field(default_factory=dict)

    def observe(self, rows: AuditedRows) -> None:
        at = np.flatnonzero(~rows.is_first)
        self.num_steps += len(at)
        for key in self.keys:
            values = rows.columns[key].reshape(len(rows), -1)
            held, self._held[key] = self._held.get(key, values[:1]), values[-1:].copy()
            for numbers in (slice(1), slice(None)):  # few rows remain after the first number
                before = values[at - 1, numbers]
                before[at == 0] = held[:, numbers]
                at = at[(np.abs(values[at, numbers] - before) <= MOTION).all(1)]
        self.rows.add(rows.numbers[at])

    def conclude(self, rule: Rule) -> Finding | None:
        share = self.rows.count / max(1, self.num_steps)
        measure = f"{share:.0%} of the steps, {IDLE_SHARE:.0%} or more; no number moves by {MOTION}"
        return rule.found(self.rows, measure) if share >= IDLE_SHARE else None


@dataclass
class EmptyTexts:
    """Rows with a text that is empty."""

    keys: frozenset[Key]
    rows: RowNumbers = field(default_factory=RowNumbers)
    num_trajectories: int = 0
    last: int = -1  # trajectory that has one

    def observe(self, rows: AuditedRows) -> None:
        each = [(rows.columns[key] == "").reshape(len(rows), -1).any(1) for key in self.keys]
        is_empty = np.any(each, axis=0)
        self.rows.add(rows.numbers[is_empty])
        trajectories = np.unique(rows.trajectory[is_empty])
        self.num_trajectories += int((trajectories > self.last).sum())
        self.last = int(trajectories.max(initial=self.last))

    def conclude(self, rule: Rule) -> Finding | None:
        return rule.found(self.rows, f"in {counted(self.num_trajectories, 'trajectory')}")


def _floats(about: About, *roots: Key) -> frozenset[Key]:
    """Return the columns of floating-point numbers below some keys."""
    floats = [each.key for each in about.columns if each.dtype.startswith("float")]
    return frozenset(key for root in roots for key in floats if key[: len(root)] == root)


def _frozen(about: About) -> Frozen | None:
    states = tuple(sorted(key for key in about.keys if key[0] == "info" and key[-1] in STATES))
    observations = tuple(sorted(_floats(about, ("observation",))))
    return Frozen(states, observations) if states and observations else None


def _idle(about: About) -> IdleSteps | None:
    keys = _floats(about, ("observation",)) & {e.key for e in about.columns if e.row_bytes}
    return IdleSteps(keys) if keys else None


def _constant(about: About) -> ConstantActions | None:
    keys = frozenset(each.key for each in about.columns if each.key[0] == "action")
    return ConstantActions(keys) if keys else None


def _zeros(about: About) -> ZeroRows | None:
    keys = _floats(about, ("observation",))
    others = [each for each in about.columns if each.key[0] == "observation"]
    width = sum(int(np.prod(each.shape)) for each in others)
    return ZeroRows(keys) if keys and len(keys) == len(others) and width > 1 else None


def _not_finite(about: About) -> NotFinite | None:
    keys = _floats(about, ("observation",), ("action",), REWARD)
    return NotFinite(keys) if keys else None


RULES = (
    rule("frozen-state", _frozen),
    rule("constant-action", _constant),
    rule("zero-observation", _zeros),
    rule("not-finite", _not_finite),
    rule("idle", _idle),
    rule(
        "empty-text",
        # Elsewhere no text is read.
        lambda about: EmptyTexts(frozenset(about.texts)) if about.has_empty_text else None,
    ),
)
