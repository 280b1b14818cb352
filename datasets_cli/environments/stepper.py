"""Steps in all lanes, one after the other: the loop of rollouts and collectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from datasets_cli.environments.actions import Actions, SpecActions
from datasets_cli.environments.lanes import Flags, Lanes
from datasets_cli.environments.policies import Actor
from datasets_cli.environments.rows import LaneRows, PolicyOutput


class Stepper:
    """Takes steps in all lanes, and knows where each of them stands."""

    # seed_of: of a trajectory by its number; the lanes' random numbers continue where None.

    def __init__(
        self,
        lanes: Lanes,
        actions: Actions | SpecActions,
        seed_of: Callable[[int], int] | None = None,
    ) -> None:
        self._lanes = lanes
        self.actions = actions
        self._seed_of = seed_of
        self._observation: Any = None
        # Of each lane's trajectory: how many steps it has, and its number. A first one is due.
        self.frames = np.ones(lanes.num_lanes, np.int64)
        self.ids = np.zeros(lanes.num_lanes, np.int64)
        self.num_ids = 0
        """How many trajectories have begun."""
        self.ended: Flags = np.ones(lanes.num_lanes, bool)
        """Where a trajectory is to begin before the next step, ``[N]``."""

    @property
    def has_begun(self) -> bool:
        """Whether every lane was reset."""
        return self._observation is not None

    def begin(self, seeds: Sequence[int] | None = None) -> None:
        """Begin a trajectory in every lane."""
        # seeds: of the lanes, `[N]`; their random numbers continue where None.
        lanes = np.ones(self._lanes.num_lanes, bool)
        self._number(lanes)
        self._observation = self._lanes.reset(seeds or self._seeds(lanes))
        self.ended = ~lanes

    def restart(self, lanes: Flags) -> None:
        """Begin a trajectory in some lanes, at least one, ``[N]``."""
        self._number(lanes)
        self._observation = self._lanes.restart(lanes, self._seeds(lanes))
        self.ended = self.ended & ~lanes

    def _number(self, lanes: Flags) -> None:
        new = lanes & (self.frames > 0)  # a trajectory without rows keeps its number
        self.frames[new] = 0
        # The next numbers, one for each lane that begins, in the order of the lanes.
        self.ids[new] = np.arange(self.num_ids, self.num_ids + int(new.sum()))
        self.num_ids += int(new.sum())

    def _seeds(self, lanes: Flags) -> list[int | None] | None:
        if self._seed_of is None:
            return None
        numbers = zip(self.ids.tolist(), lanes.tolist(), strict=True)
        return [self._seed_of(number) if is_begun else None for number, is_begun in numbers]

    def write_root(self, rows: LaneRows, step: int) -> None:
        """Write where the lanes stand."""
        rows.write_root(step, self._observation, self.ids)

    def step(self, written: PolicyOutput, rows: LaneRows, step: int) -> None:
        """Take a step, and write what it led to."""
        result = self._lanes.step(self.actions.native(written, self.frames))
        self._observation = result.observation
        self.frames += 1
        self.ended = result.terminated | result.truncated
        rows.write_next(step, result)

    def roll(
        self,
        actor: Actor,
        rows: LaneRows,
        *,
        max_frames: int | None = None,
        is_over: Callable[[], bool] | None = None,
    ) -> int:
        """Take steps until the rows are full; return how many were taken."""
        # is_over: whether to stop; asked where trajectories have ended.
        for step in range(rows.num_steps):
            rows.write_root(step, self._observation, self.ids)
            written = actor.act(rows, step)
            rows.write_action(step, written)
            self.step(written, rows, step)
            if max_frames is not None:
                rows.frames[:, step] = self.frames - 1
                if (cut := self.frames >= max_frames).any():
                    rows.truncate(step, cut)
                    self.ended = self.ended | cut
            if self.ended.any():
                if is_over is not None and is_over():
                    return step + 1
                self.restart(self.ended)
        return rows.num_steps
