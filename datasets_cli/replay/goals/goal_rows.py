"""The rows that give goals to others: drawn by a strategy, of the rows of a storage."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Literal

import numpy as np
import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.draws.slices import trajectories_of
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.trajectories.boundaries import TrajectorySource
from datasets_cli.replay.trajectories.index import TrajectoryIndex


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
