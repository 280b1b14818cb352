"""HERSampler: rows with goals that were reached, in hindsight (Andrychowicz et al., 2017)."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Literal

import numpy as np
import torch
from tensordict import TensorDictBase

from datasets_cli.errors import EmptyBuffer, UsageError
from datasets_cli.replay.arguments import NestedKey, StateDict, key_of
from datasets_cli.replay.batches.row_numbers import unravel_rows
from datasets_cli.replay.buffer.parts import as_sampler
from datasets_cli.replay.goals.relabel import RELABELLED, SUCCESS, GoalKeys, relabel
from datasets_cli.replay.goals.rules import GoalFunction, GoalRule
from datasets_cli.replay.samplers.protocol import Info, Sampler, check_kind, draw_rows
from datasets_cli.replay.samplers.rows import RandomSampler
from datasets_cli.replay.samplers.slices import MASK, trajectories_of
from datasets_cli.replay.samplers.windows import begin_flags
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.trajectories.bounds import FROM_STORAGE, TrajectoryIndex, TrajectorySource
from datasets_cli.schema.columns import Key
from datasets_cli.schema.tree import Tree, put


class HindsightStrategy(StrEnum):
    """Where new goals come from: what was reached by a step of ...

    Andrychowicz et al. (2017) name the first four, https://arxiv.org/abs/1707.01495.

    Attributes:
        FUTURE: the same trajectory from the row's own step on, each step alike.
        FINAL: the last step of the same trajectory.
        EPISODE: the same trajectory, each step alike.
        RANDOM: any row there is, each alike.
        GEOMETRIC: the same trajectory from the row's own step on, each step ``gamma`` times as
            likely as the one before; the shares of steps after its end go to those before, in
            proportion, as if drawn again.
    """

    FUTURE = "future"
    FINAL = "final"
    EPISODE = "episode"
    RANDOM = "random"
    GEOMETRIC = "geometric"


def goal_steps(
    strategy: HindsightStrategy,
    step: torch.Tensor,
    lengths: torch.Tensor,
    uniform: torch.Tensor,
    gamma: float,
) -> torch.Tensor:
    """Return the steps int64 ``[B]`` that give goals, each of the trajectory of its row."""
    # step: of each row in its trajectory, int64 `[B]`.
    # lengths: steps of the trajectory of each row, int64 `[B]`.
    # uniform: float64 `[B]` in [0, 1), which decides.
    if strategy is HindsightStrategy.FINAL:
        return lengths - 1
    if strategy is HindsightStrategy.EPISODE:
        return uniform_below(lengths, uniform)
    ahead = lengths - step  # steps from the row's own to the end
    if strategy is HindsightStrategy.FUTURE:
        return step + uniform_below(ahead, uniform)
    return step + geometric_below(ahead, uniform, gamma)


def uniform_below(limit: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """Return whole numbers int64 ``[B]`` from 0 to ``limit - 1``, each alike."""
    # A product may be rounded up to the limit itself.
    return torch.minimum((uniform * limit).long(), limit - 1)


def geometric_below(limit: torch.Tensor, uniform: torch.Tensor, gamma: float) -> torch.Tensor:
    """Return whole numbers int64 ``[B]`` from 0 to ``limit - 1``, k in proportion to gamma ** k."""
    if gamma == 0:
        return torch.zeros_like(limit)
    # P(K < k) = (1 - gamma ** k) / (1 - gamma ** limit), solved for k.
    log_gamma = math.log(gamma)
    below = -torch.expm1(limit * log_gamma)
    steps = (torch.log1p(-uniform * below) / log_gamma).long()
    return torch.minimum(steps, limit - 1)


class TrajectoryPlaces:
    """Finds the trajectory and the step of rows; the other way round than ``TrajectoryIndex``.

        a ring of 8 rows, cursor at 3      row   0 1 2 3 4 5 6 7
                                           step  2 3 4|0 1 2 0 1      row 1 is step 3 of the last

    Memory is proportional to the trajectories; to the rows only where those of one are apart.
    """

    def __init__(self, trajectories: TrajectoryIndex) -> None:
        self.trajectories = trajectories
        self._num_steps = max(1, trajectories.capacity // trajectories.stride)
        self._rank: torch.Tensor | None = None
        if trajectories.order is not None:  # the place of each row in that order
            self._rank = torch.full((trajectories.capacity,), -1)
            self._rank[trajectories.order] = torch.arange(len(trajectories.order))
        begins = self._in_turn(trajectories.starts)
        in_order = begins.argsort()
        self._number = in_order[trajectories.lengths[in_order] > 0]
        self._begins = begins[self._number]
        # Of each environment the last one, which alone can continue at row 0.
        ends = torch.arange(1, trajectories.stride + 1) * self._num_steps
        self._last = self._search(ends, "left")

    def of(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the trajectory and the step in it, each int64 ``[B]``, of rows int64 ``[B]``."""
        if not len(self._number):
            raise UsageError("No trajectory is given, and rows were drawn. Give those of all rows.")
        places = rows if self._rank is None else self._rank[rows]
        at = self._in_turn(places)
        near = self._search(at, "right")
        if self.trajectories.wraps:
            # A row before the first begin of its environment is of the one that continues there.
            environment = at // self._num_steps
            is_other = (near < 0) | (self._begins[near] // self._num_steps != environment)
            near = torch.where(is_other, self._last[environment], near)
        step = (at - self._begins[near]) % self._num_steps
        number = self._number[near]
        outside = (places < 0) | (near < 0) | (step >= self.trajectories.lengths[number])
        if bool(outside.any()):
            raise UsageError(
                f"Row {int(rows[outside][0])} is in none of the {len(self._number)} trajectories "
                "that were given. Give trajectories of all rows that are drawn."
            )
        return number, step

    def row(self, number: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        """Return the rows int64 ``[B]`` that are steps of trajectories, each int64 ``[B]``."""
        first = self.trajectories.starts[number]
        return self.trajectories.rows(first, step.unsqueeze(1)).squeeze(1)

    def _search(self, at: torch.Tensor, side: Literal["left", "right"]) -> torch.Tensor:
        """Return the last trajectory that begins before each place int64 ``[B]``, or at it."""
        # -1 for no goal; `"right"` lets one at the place count. By numpy: torch shares even
        # short searches among threads, which takes longer than they do.
        return torch.from_numpy(np.searchsorted(self._begins.numpy(), at.numpy(), side) - 1)

    def _in_turn(self, rows: torch.Tensor) -> torch.Tensor:
        """Return where rows int64 ``[B]`` are if environments stand one after the other."""
        stride = self.trajectories.stride
        # Row t * W + w, of W environments side by side, comes at w * T + t.
        return rows if stride == 1 else rows % stride * self._num_steps + rows // stride


class GoalRows:
    """Draws the rows that give goals to others."""

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
        self, rows: torch.Tensor, ratio: float, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return which rows get a goal, bool ``[S]``, and the rows int64 ``[S]`` that give them."""
        # The latter are -1 for no goal.
        # rows: int64 `[S]`.
        chance, uniform = torch.rand((2, len(rows)), dtype=torch.float64, generator=generator)
        is_new = chance < ratio
        return is_new, torch.where(is_new, self._given(rows, uniform), -1)

    def _given(self, rows: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
        """Return the rows int64 ``[S]`` that ``uniform``, float64 ``[S]`` in [0, 1), says."""
        if self._places is None:
            return uniform_below(torch.full_like(rows, self._num_rows), uniform)
        number, step = self._places.of(rows)
        lengths = self._places.trajectories.lengths[number]
        step = goal_steps(self._strategy, step, lengths, uniform, self._gamma)
        return self._places.row(number, step)


GOAL_ROW = ("goal_row",)
_GOALS = ("hindsight", "goals")  # between sample() and relabel(); not seen by anyone else


class HERSampler(Sampler):
    """Draws rows as another sampler does, and gives a share of them goals that were reached.

        trajectory       s0 a0 s1 a1 s2 a2 s3        row 1 is (s1, a1, s2)
        future, row 1    the goal is what s2 or s3 achieved

    The goal of a row is what a step achieved, ``("next", *achieved_goal_key)`` of the step's row.
    It becomes the desired goal of the row and of its successor, and reward, ``terminated`` and
    success follow from it by a rule. Of a slice all rows get the same goal, by its last row: one in
    the future is in the future of them all. Batches have ``relabelled``, bool ``[B, 1]``; info has
    it too, and ``goal_row``, the row that gave the goal, -1 where it is the stored one.

    Args:
        rule: what follows from a goal, or a function that returns the reward alone; for mazes of
            gymnasium-robotics ``GoalRule.sparse(0.45)``.
        sampler: draws the rows; uniformly with replacement by default. It cannot have priorities.
        strategy: which step gives a goal; see ``HindsightStrategy``.
        ratio: how likely a row, or a slice, gets another goal.
        gamma: of ``geometric``: how likely a step is compared with the one before it; 0.99 by
            default.
        trajectories: where they are; those of the storage by default.
        achieved_goal_key: what was achieved.
        desired_goal_key: the goal.
        reward_key: the reward.
        success_key: whether a step was a success; ``("next", "info", "success")`` by default, where
            rows have it.

    Raises:
        UsageError: a number is out of its range, there is no such strategy, or the sampler has
            priorities.

    Attributes:
        sampler: the one that draws the rows.
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
            raise UsageError(f"A rule is a GoalRule or a function, not {rule!r}.")
        self.sampler = as_sampler(RandomSampler() if sampler is None else sampler)
        if self.sampler.has_priorities:
            raise UsageError(
                f"{type(sampler).__name__} draws by priorities, which say nothing of rows with "
                "another goal. Give HERSampler one that does not."
            )
        self._strategy = _strategy(strategy)
        self.ratio = ratio
        if gamma is not None and self._strategy is not HindsightStrategy.GEOMETRIC:
            raise UsageError(f"gamma is of the strategy 'geometric', not of {str(strategy)!r}.")
        self._gamma = _share("gamma", 0.99 if gamma is None else gamma)
        if self._gamma == 1:
            raise UsageError("gamma=1 makes each step as likely as the next: use 'future'.")
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
        """Which step gives a goal."""
        return self._strategy

    @property
    def ratio(self) -> float:
        """How likely a row, or a slice, gets another goal.

        It may be set between batches; those that were made ahead keep what it was.
        """
        return self._ratio

    @ratio.setter
    def ratio(self, ratio: float) -> None:
        self._ratio = _share("ratio", ratio)

    def sample(
        self, storage: Storage, batch_size: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return row numbers int64 ``[B]``, what is said of them, and goals for ``relabel``.

        Raises:
            UsageError: as the other sampler; or rows do not have goals, or no rule is known.
        """
        _, _, _, goal_rows = self._prepare(storage)  # first: what it refuses loses no batch
        index, info = draw_rows(self.sampler, storage, batch_size, generator)
        if self.ratio == 0:  # nothing is drawn, so that batches are those of the other sampler
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
        """Put the goals that were drawn into the rows, and what follows from them."""
        is_new = info[RELABELLED]
        goals = info.pop(_GOALS, None)
        if goals is not None:
            assert self._prepared is not None, "rows were drawn"
            relabel(rows, is_new.squeeze(1), goals, self._keys, self._prepared[2])
        put(rows, RELABELLED, is_new)

    def _prepare(self, storage: Storage) -> tuple[Storage, int, GoalRule, GoalRows]:
        """Return what is known of a storage; worked out once after each write."""
        if not len(storage):
            raise EmptyBuffer(storage.no_rows)
        known = self._prepared
        if known is None or known[0] is not storage:
            rule = self._rule
            self._keys.check(storage, rule)
        elif known[1] == storage.revision:
            return known
        else:
            rule = known[2]
        rows = GoalRows(storage, self._strategy, self._gamma, self._trajectories)
        self._prepared = storage, storage.revision, rule, rows
        return self._prepared

    def _slices(self, info: Info) -> tuple[torch.Tensor, torch.Tensor]:
        """Return where slices end in the batch, int64 ``[S]``, and each row's slice ``[B]``."""
        key = self.sampler.truncated_key
        if key is None or key not in info:
            raise UsageError(
                f"{self.sampler!r} does not mark where its slices end, and rows of a slice share a "
                "goal. Give it a truncated_key."
            )
        # The last row that is not padding is marked; padding follows it and is of the same slice.
        is_last = info[key]
        begins = begin_flags(is_last, info.get(MASK))
        return is_last.view(-1).nonzero().squeeze(1), begins.view(-1).cumsum(0) - 1

    # What follows is the other sampler's.

    @property
    def ran_out(self) -> bool:  # type: ignore[override]
        return self.sampler.ran_out

    @property
    def truncated_key(self) -> Key | None:  # type: ignore[override]
        return self.sampler.truncated_key

    @property
    def init_key(self) -> Key | None:  # type: ignore[override]
        return self.sampler.init_key

    def on_write(self, rows: torch.Tensor) -> None:
        self.sampler.on_write(rows)

    def on_clear(self) -> None:
        self.sampler.on_clear()

    def state_dict(self) -> StateDict:
        """Return where the other sampler stands; goals are drawn from the buffer's generator."""
        return {"kind": self.kind, "sampler": self.sampler.state_dict()}

    def load_state_dict(self, state: StateDict) -> None:
        check_kind(self.kind, state)
        self.sampler.load_state_dict(state["sampler"])

    def __getstate__(self) -> StateDict:
        return {**self.__dict__, "_prepared": None}  # worked out again from the storage


def _strategy(name: HindsightStrategy | str) -> HindsightStrategy:
    try:
        return HindsightStrategy(name)
    except ValueError:
        raise UsageError(
            f"There is no strategy {name!r}; expected one of {', '.join(HindsightStrategy)}."
        ) from None


def _share(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise UsageError(f"{name} must be a number from 0 to 1, not {value!r}.")
    return float(value)
