"""Steps in all lanes, one after the other: the loop of rollouts and collectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from datasets_cli.environments.lanes import Flags, Lanes
from datasets_cli.environments.leaves import Leaf
from datasets_cli.environments.policies import Actor
from datasets_cli.environments.rows import Key, Rows
from datasets_cli.errors import UsageError


class Stepper:
    """Takes steps in all lanes, and knows where each of them stands."""

    def __init__(self, lanes: Lanes, action_leaves: Sequence[Leaf]) -> None:
        self._lanes = lanes
        self._action_leaves = action_leaves
        self._observation: Any = None
        # Of each lane's trajectory: how many steps it has, and its number. A first one is due.
        self._frames = np.ones(lanes.num_lanes, np.int64)
        self.ids = np.zeros(lanes.num_lanes, np.int64)
        self.num_ids = 0
        """How many trajectories have begun."""
        self.ended: Flags = np.ones(lanes.num_lanes, bool)
        """Where a trajectory is to begin before the next step, ``[N]``."""

    @property
    def has_begun(self) -> bool:
        """Whether every lane was reset."""
        return self.num_ids > 0

    def begin(self, seeds: Sequence[int] | None = None) -> None:
        """Begin a trajectory in every lane."""
        # seeds: of the lanes, `[N]`; their random numbers continue where None.
        self._observation = self._lanes.reset(seeds)
        self._began(np.ones(self._lanes.num_lanes, bool))

    def restart(self, lanes: Flags) -> None:
        """Begin a trajectory in some lanes, at least one, ``[N]``."""
        self._observation = self._lanes.restart(lanes)
        self._began(lanes)

    def _began(self, lanes: Flags) -> None:
        self.ended = self.ended & ~lanes
        new = lanes & (self._frames > 0)  # a trajectory without rows keeps its number
        self._frames[new] = 0
        self.ids[new] = np.arange(self.num_ids, self.num_ids + int(new.sum()))
        self.num_ids += int(new.sum())

    def write_root(self, rows: Rows, step: int) -> None:
        """Write where the lanes stand."""
        rows.write_root(step, self._observation, self.ids)

    def step(self, written: Mapping[Key, torch.Tensor], rows: Rows, step: int) -> None:
        """Take a step, and write what it led to."""
        result = self._lanes.step(to_gymnasium(self._action_leaves, written, rows.batch))
        self._observation = result.observation
        self._frames += 1
        self.ended = result.terminated | result.truncated
        rows.write_next(step, result)

    def roll(
        self, actor: Actor, rows: Rows, *, max_frames: int | None = None, until_done: bool = False
    ) -> int:
        """Take steps until the rows are full; return how many were taken."""
        for step in range(rows.num_steps):
            self.write_root(rows, step)
            written = actor.act(rows, step)
            rows.write_action(step, written)
            self.step(written, rows, step)
            if max_frames is not None and (cut := self._frames >= max_frames).any():
                rows.truncate(step, cut)
                self.ended = self.ended | cut
            if self.ended.any():
                if until_done:
                    return step + 1
                self.restart(self.ended)
        return rows.num_steps


def to_gymnasium(
    leaves: Sequence[Leaf], written: Mapping[Key, torch.Tensor], batch: tuple[int, ...]
) -> Any:
    """Return an action as the lanes take it."""
    # written: by the policy: tensors `[*batch, ...]` by key.
    tree: dict[str, Any] = {}
    for leaf in leaves:
        value = written.get(leaf.key)
        if value is None or value.shape != (*batch, *leaf.shape):
            found = "nothing" if value is None else f"the shape {[*value.shape]}"
            raise UsageError(
                f"The action {'.'.join(leaf.key)} must have the shape {[*batch, *leaf.shape]}, "
                f"and the policy gave {found}. The environment's action_spec says what it takes."
            )
        native = leaf.restore(value.cpu().numpy().reshape(-1, *leaf.shape))
        if not leaf.path:
            return native
        branch = tree
        for name in leaf.path[:-1]:
            branch = branch.setdefault(name, {})
        branch[leaf.path[-1]] = native
    return tree
