"""The rows that give goals to others: drawn by a strategy, of a storage as it is."""

from __future__ import annotations

import torch

from datasets_cli.replay.goals.strategies import HindsightStrategy, goal_steps, uniform_below
from datasets_cli.replay.samplers.slicing import trajectories_of
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.trajectories.boundaries import TrajectorySource
from datasets_cli.replay.trajectories.places import TrajectoryPlaces


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
        # The latter are -1 where there is none.
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
