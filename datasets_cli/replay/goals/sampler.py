"""HERSampler: hindsight goals for rows of another sampler (Andrychowicz et al., 2017)."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Literal

import numpy as np
import torch
from tensordict import TensorDictBase

from datasets_cli.errors import EmptyBuffer, Unsupported, UsageError, WrongRows, wrong_value
from datasets_cli.replay.arguments import NestedKey, StateDict, checked_fraction, key_of
from datasets_cli.replay.batches.row_numbers import unravel_rows
from datasets_cli.replay.buffer.parts import as_sampler
from datasets_cli.replay.goals.relabel import (
    RELABELLED,
    SUCCESS,
    GoalFunction,
    GoalKeys,
    GoalRule,
    relabel,
)
from datasets_cli.replay.samplers.protocol import Info, Sampler, check_kind, draw_rows
from datasets_cli.replay.samplers.rows import RandomSampler
from datasets_cli.replay.samplers.slice_windows import begin_flags
from datasets_cli.replay.samplers.slices import MASK, trajectories_of
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.trajectories.bounds import FROM_STORAGE, TrajectoryIndex, TrajectorySource
from datasets_cli.schema.columns import Key
from datasets_cli.schema.shapes import (
    Lengths,
    Mask,
    RowNumbers,
    Steps,
    TrajectoryNumbers,
    Uniforms,
)
from datasets_cli.schema.tree import Tree, put


class HindsightStrategy(StrEnum):
    """The step whose achieved goal becomes the goal of a row.

    Andrychowicz et al. (2017) define the first four, https://arxiv.org/abs/1707.01495.

    Attributes:
        FUTURE: the row's own step or a later one of the same trajectory, uniformly.
        FINAL: the last step of the same trajectory.
        EPISODE: any step of the same trajectory, uniformly.
        RANDOM: any row of the storage, uniformly.
        GEOMETRIC: the row's own step or a later one of the same trajectory, each ``gamma`` times as
            likely as the step before it; a truncated geometric distribution.
    """

    FUTURE = "future"
    FINAL = "final"
    EPISODE = "episode"
    RANDOM = "random"
    GEOMETRIC = "geometric"


def goal_steps(
    strategy: HindsightStrategy,
    step: Steps,
    lengths: Lengths,
    uniform: Uniforms,
    gamma: float,
) -> Steps:
    """Return the steps whose goals rows get, by the step of each row and uniform numbers.

    length 5, step 2      FINAL 4      EPISODE 0 to 4      FUTURE and GEOMETRIC 2 to 4
    """
    if strategy is HindsightStrategy.FINAL:
        return lengths - 1
    if strategy is HindsightStrategy.EPISODE:
        return uniform_below(lengths, uniform)
    ahead = lengths - step  # the number of steps from the row's own to the last
    if strategy is HindsightStrategy.FUTURE:
        return step + uniform_below(ahead, uniform)
    return step + geometric_below(ahead, uniform, gamma)


def uniform_below(limit: Lengths, uniform: Uniforms) -> Steps:
    """Return whole numbers int64 ``[B]`` from 0 to ``limit - 1``, uniformly distributed."""
    # By rounding, the product can be equal to the limit.
    return torch.minimum((uniform * limit).long(), limit - 1)


def geometric_below(limit: Lengths, uniform: Uniforms, gamma: float) -> Steps:
    """Return whole numbers int64 ``[B]`` from 0 to ``limit - 1``, k in proportion to gamma ** k."""
    if gamma == 0:
        return torch.zeros_like(limit)
    # P(K < k) = (1 - gamma ** k) / (1 - gamma ** limit), solved for k.
    log_gamma = math.log(gamma)
    below = -torch.expm1(limit * log_gamma)
    steps = (torch.log1p(-uniform * below) / log_gamma).long()
    return torch.minimum(steps, limit - 1)


class TrajectoryPlaces:
    """Finds the trajectory and the step of rows: the inverse of ``TrajectoryIndex``.

        a ring of 8 rows, cursor at 3      row   0 1 2 3 4 5 6 7
                                           step  2 3 4|0 1 2 0 1      row 1 is step 3 of the last

    Memory is proportional to the number of trajectories; to the number of rows if fragmented.
    """

    def __init__(self, trajectories: TrajectoryIndex) -> None:
        self.trajectories = trajectories
        self._num_steps = max(1, trajectories.capacity // trajectories.stride)
        self._rank: RowNumbers | None = None
        if trajectories.order is not None:  # the position of each row in that order
            self._rank = torch.full((trajectories.capacity,), -1)
            self._rank[trajectories.order] = torch.arange(len(trajectories.order))
        begins = self._in_turn(trajectories.starts)
        in_order = begins.argsort()
        self._number = in_order[trajectories.lengths[in_order] > 0]
        self._begins = begins[self._number]
        # The last trajectory of each environment: no other can continue at row 0.
        ends = torch.arange(1, trajectories.stride + 1) * self._num_steps
        self._last = self._search(ends, "left")

    def of(self, rows: RowNumbers) -> tuple[TrajectoryNumbers, Steps]:
        """Return the trajectory and the step of rows."""
        if not len(self._number):
            raise WrongRows(
                "trajectories= is empty, and rows were drawn.",
                argument="trajectories",
                advice="Pass the trajectories of all rows.",
            )
        places = rows if self._rank is None else self._rank[rows]
        at = self._in_turn(places)
        # The last trajectory that begins at the row or before it.
        near = self._search(at, "right")
        if self.trajectories.wraps:
            # A row before the first begin of its environment: the last trajectory continues there.
            environment = at // self._num_steps
            is_other = (near < 0) | (self._begins[near] // self._num_steps != environment)
            near = torch.where(is_other, self._last[environment], near)
        # Modulo the steps of an environment, because its last trajectory may wrap around.
        step = (at - self._begins[near]) % self._num_steps
        number = self._number[near]
        outside = (places < 0) | (near < 0) | (step >= self.trajectories.lengths[number])
        if bool(outside.any()):
            row = int(rows[outside][0])
            raise WrongRows(
                f"Row {row} is outside the {len(self._number)} trajectories of this sampler.",
                argument="trajectories",
                row=row,
                advice="Pass trajectories of all rows that are drawn.",
            )
        return number, step

    def row(self, number: TrajectoryNumbers, step: Steps) -> RowNumbers:
        """Return the rows at steps of trajectories."""
        first = self.trajectories.starts[number]
        return self.trajectories.rows(first, step.unsqueeze(1)).squeeze(1)

    def _search(self, at: RowNumbers, side: Literal["left", "right"]) -> TrajectoryNumbers:
        """Return the last trajectory that begins before each position, or at it (``"right"``)."""
        # -1 if no trajectory does. By numpy: torch splits even short searches among threads, which
        # takes longer than the search.
        return torch.from_numpy(np.searchsorted(self._begins.numpy(), at.numpy(), side) - 1)

    def _in_turn(self, rows: RowNumbers) -> RowNumbers:
        """Return the positions of rows in an order that is sorted by environment, then by step."""
        stride = self.trajectories.stride
        # Row t * W + w, of W environments side by side, has position w * T + t.
        return rows if stride == 1 else rows % stride * self._num_steps + rows // stride


class GoalRows:
    """Draws the rows whose achieved goals become new goals."""

    def __init__(
        self,
        storage: Storage,
        strategy: HindsightStrategy,
        gamma: float,
        trajectories: TrajectorySource,
    ) -> None:
        self._num_rows = len(storage)
        self._strategy = strategy
        self._gamma = gamma
        self._places: TrajectoryPlaces | None = None
        if strategy is not HindsightStrategy.RANDOM:
            self._places = TrajectoryPlaces(trajectories_of(storage, trajectories))

    def draw(
        self, rows: RowNumbers, ratio: float, generator: torch.Generator
    ) -> tuple[Mask, RowNumbers]:
        """Return whether each row gets a new goal, and the row of that goal; -1 without one."""
        chance, uniform = torch.rand((2, len(rows)), dtype=torch.float64, generator=generator)
        is_new = chance < ratio
        return is_new, torch.where(is_new, self._goal_rows(rows, uniform), -1)

    def _goal_rows(self, rows: RowNumbers, uniform: Uniforms) -> RowNumbers:
        if self._places is None:
            return uniform_below(torch.full_like(rows, self._num_rows), uniform)
        number, step = self._places.of(rows)
        lengths = self._places.trajectories.lengths[number]
        step = goal_steps(self._strategy, step, lengths, uniform, self._gamma)
        return self._places.row(number, step)


GOAL_ROW = ("goal_row",)
_GOALS = ("hindsight", "goals")  # an entry of info from sample() to relabel(), which removes it


class HERSampler(Sampler):
    """Draws rows by another sampler, and replaces the goals of some by goals that were reached.

        trajectory       s0 a0 s1 a1 s2 a2 s3        row 1 is (s1, a1, s2)
        future, row 1    the goal is what s2 or s3 achieved

    The new goal of a row is the achieved goal of a step, ``("next", *achieved_goal_key)`` in the
    step's row. It becomes the desired goal of the row and of its successor; a rule computes reward,
    ``terminated`` and success from it. All rows of a slice get the same goal, drawn for its last
    row: a future goal is then in the future of every row. Batches and info have ``relabelled``,
    bool ``[B, 1]``; info also has ``goal_row``, the row of the new goal, or -1 for the stored goal.

    Args:
        rule: computes rewards and flags from goals, or a function that returns the reward; for
            mazes of gymnasium-robotics ``GoalRule.sparse(0.45)``.
        sampler: draws the rows; uniformly with replacement by default. It cannot have priorities.
        strategy: the step whose goal a row gets; see ``HindsightStrategy``.
        ratio: the probability that a row, or a slice, gets a new goal.
        gamma: only with ``geometric``: the probability of a step relative to the step before it;
            0.99 by default.
        trajectories: the trajectories of the rows; by default the trajectories of the storage.
        achieved_goal_key: the key of the achieved goal.
        desired_goal_key: the key of the desired goal.
        reward_key: the key of the reward.
        success_key: the key of the success flag; by default ``("next", "info", "success")``, if
            rows have it.

    Raises:
        UsageError: a number is out of range, or the strategy is unknown.
        Unsupported: the sampler has priorities.

    Attributes:
        sampler: the sampler that draws the rows.
    """

    kind = "rows with goals"

    def __init__(
        self,
        rule: GoalRule | GoalFunction,
        *,
        sampler: Sampler | None = None,
        strategy: HindsightStrategy | str = "future",
        ratio: float = 0.8,
        gamma: float | None = None,
        trajectories: TrajectorySource = FROM_STORAGE,
        achieved_goal_key: NestedKey = ("observation", "achieved_goal"),
        desired_goal_key: NestedKey = ("observation", "desired_goal"),
        reward_key: NestedKey = ("next", "reward"),
        success_key: NestedKey | None = None,
    ) -> None:
        self._rule = GoalRule(rule) if callable(rule) else rule
        if not isinstance(self._rule, GoalRule):
            raise wrong_value("rule", "a GoalRule or a function", rule)
        self.sampler = as_sampler(RandomSampler() if sampler is None else sampler)
        if self.sampler.has_priorities:
            raise Unsupported(
                f"{type(sampler).__name__} draws by priorities, which do not apply to rows with "
                "new goals.",
                argument="sampler",
                found=sampler,
                advice="Pass a sampler without priorities to HERSampler.",
            )
        self._strategy = _strategy(strategy)
        self.ratio = ratio
        self._gamma = _gamma(gamma, self._strategy)
        self._trajectories = trajectories
        self._keys = GoalKeys(
            achieved=key_of(achieved_goal_key),
            desired=key_of(desired_goal_key),
            reward=key_of(reward_key),
            success=SUCCESS if success_key is None else key_of(success_key),
            needs_success=success_key is not None,
        )
        self.has_slices = self.sampler.has_slices
        self._prepared: tuple[Storage, int, GoalRule, GoalRows] | None = None

    def __repr__(self) -> str:
        return (
            f"HERSampler({self.sampler!r}, strategy={str(self._strategy)!r}, ratio={self.ratio}, "
            f"rule={self._rule!r})"
        )

    @property
    def strategy(self) -> HindsightStrategy:
        """The strategy that draws the step of a new goal."""
        return self._strategy

    @property
    def ratio(self) -> float:
        """The probability that a row, or a slice, gets a new goal.

        It can be set between batches; prefetched batches have the old ratio.
        """
        return self._ratio

    @ratio.setter
    def ratio(self, ratio: float) -> None:
        self._ratio = checked_fraction("ratio", ratio)

    def sample(
        self, storage: Storage, batch_size: int, generator: torch.Generator
    ) -> tuple[RowNumbers, Info]:
        """Return row numbers int64 ``[B]``, their info, and goals for ``relabel``.

        Raises:
            UnknownKey: the rows do not have goals.
            UsageError: as the wrapped sampler.
        """
        # Prepare first: if it raises, no batch of an epoch is lost.
        _, _, _, goal_rows = self._prepare(storage)
        index, info = draw_rows(self.sampler, storage, batch_size, generator)
        if self.ratio == 0:  # draw no goals: batches then equal the batches of the wrapped sampler
            is_new, goal_row = torch.zeros(len(index), dtype=torch.bool), torch.full_like(index, -1)
        elif self.has_slices:
            last, slice_of = self._slices(info)
            is_new, goal_row = goal_rows.draw(index[last], self.ratio, generator)
            is_new, goal_row = is_new[slice_of], goal_row[slice_of]
        else:
            is_new, goal_row = goal_rows.draw(index, self.ratio, generator)
        if bool(is_new.any()):
            info[_GOALS] = self._keys.goals(storage, goal_row[is_new])
        info[RELABELLED] = is_new.unsqueeze(1)
        info[GOAL_ROW] = unravel_rows(storage, goal_row)
        return index, info

    def relabel(self, rows: Tree | TensorDictBase, info: Info) -> None:
        """Write the drawn goals into the rows, and the rewards and flags of these goals."""
        is_new = info[RELABELLED]
        goals = info.pop(_GOALS, None)
        if goals is not None:
            assert self._prepared is not None, "rows were drawn"
            relabel(rows, is_new.squeeze(1), goals, self._keys, self._prepared[2])
        put(rows, RELABELLED, is_new)

    def _prepare(self, storage: Storage) -> tuple[Storage, int, GoalRule, GoalRows]:
        """Return the storage, its revision, the rule and the goal rows; cached until a write."""
        if not len(storage):
            raise EmptyBuffer(storage.no_rows)
        cached = self._prepared
        if cached is None or cached[0] is not storage:
            rule = self._rule
            self._keys.check(storage, rule)
        elif cached[1] == storage.revision:
            return cached
        else:
            rule = cached[2]
        rows = GoalRows(storage, self._strategy, self._gamma, self._trajectories)
        self._prepared = storage, storage.revision, rule, rows
        return self._prepared

    def _slices(self, info: Info) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the positions of slice ends in the batch, int64 ``[S]``, and each row's slice."""
        key = self.sampler.truncated_key
        if key is None or key not in info:
            raise UsageError(
                f"{self.sampler!r} does not flag the ends of its slices, whose rows share a goal.",
                argument="truncated_key",
                found=key,
                advice="Pass it a truncated_key.",
            )
        # The flagged row is the last real one; the padding after it belongs to the same slice.
        is_last = info[key]
        begins = begin_flags(is_last, info.get(MASK))
        return is_last.view(-1).nonzero().squeeze(1), begins.view(-1).cumsum(0) - 1

    # All members below belong to the wrapped sampler.

    @property
    def ran_out(self) -> bool:  # type: ignore[override]
        return self.sampler.ran_out

    @property
    def truncated_key(self) -> Key | None:  # type: ignore[override]
        return self.sampler.truncated_key

    @property
    def init_key(self) -> Key | None:  # type: ignore[override]
        return self.sampler.init_key

    def on_write(self, rows: RowNumbers) -> None:
        self.sampler.on_write(rows)

    def on_clear(self) -> None:
        self.sampler.on_clear()

    def state_dict(self) -> StateDict:
        """Return the state of the wrapped sampler; goals are drawn from the buffer's generator."""
        return {"kind": self.kind, "sampler": self.sampler.state_dict()}

    def load_state_dict(self, state: StateDict) -> None:
        check_kind(self.kind, state)
        self.sampler.load_state_dict(state["sampler"])

    def __getstate__(self) -> StateDict:
        return {**self.__dict__, "_prepared": None}  # computed again from the storage


def _gamma(gamma: float | None, strategy: HindsightStrategy) -> float:
    if gamma is not None and strategy is not HindsightStrategy.GEOMETRIC:
        raise UsageError(
            f"gamma requires strategy='geometric', not {str(strategy)!r}.",
            argument="gamma",
            found=gamma,
        )
    fraction = checked_fraction("gamma", 0.99 if gamma is None else gamma)
    if fraction == 1:
        raise wrong_value("gamma", "a number from 0 to below 1", gamma, "Use strategy='future'.")
    return fraction


def _strategy(name: HindsightStrategy | str) -> HindsightStrategy:
    try:
        return HindsightStrategy(name)
    except ValueError:
        raise wrong_value("strategy", [*map(str, HindsightStrategy)], name) from None
