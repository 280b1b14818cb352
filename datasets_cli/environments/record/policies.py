"""What chooses the actions: the action space at random, or a function of the user's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from datasets_cli.environments.leaves import SpaceLeaf
from datasets_cli.environments.policies import flat_items
from datasets_cli.environments.rows import LaneRows, PolicyOutput, StepColumn
from datasets_cli.errors import RldsError, UsageError
from datasets_cli.gymnasium_extra import gymnasium
from datasets_cli.parallel.functions import failure_of

PolicyFunction = Callable[[TensorDictBase], Any]
"""Takes a TensorDict ``[n]`` of observations; returns one with ``action``, or the actions."""


class RandomActions:
    """Actions drawn from the space, by a generator for each episode."""

    # seed_of: of a trajectory by its number.

    def __init__(
        self,
        space: gymnasium.Space[Any],
        leaves: Sequence[SpaceLeaf],
        num_envs: int,
        seed_of: Callable[[int], int],
    ) -> None:
        self._leaves, self._seed_of = leaves, seed_of
        self._spaces = [deepcopy(space) for _ in range(num_envs)]
        self._ids = np.full(num_envs, -1)  # of the trajectories that the spaces are seeded for

    def act(self, rows: LaneRows, step: int) -> PolicyOutput:
        ids = rows.ids[:, step]
        for lane in np.flatnonzero(ids != self._ids).tolist():
            self._spaces[lane].seed(self._seed_of(int(ids[lane])))
        self._ids = ids.copy()
        drawn = [space.sample() for space in self._spaces]
        return {leaf.key: _column(leaf, drawn) for leaf in self._leaves}


def _column(leaf: SpaceLeaf, drawn: list[Any]) -> StepColumn:
    column = np.empty((len(drawn), *leaf.shape), leaf.dtype)
    for lane, action in enumerate(drawn):
        leaf.keep(action, column[lane : lane + 1])
    return column if leaf.is_text else torch.from_numpy(column)


def named_policy(
    function: PolicyFunction, name: str, leaves: Sequence[SpaceLeaf]
) -> Callable[[TensorDictBase], TensorDictBase]:
    """Return a policy as collectors call it, whose failures have its name."""
    shapes = {leaf.key: leaf.shape for leaf in leaves}

    def policy(rows: TensorDictBase) -> TensorDictBase:
        given = rows.select("observation")
        try:
            chosen = function(given)
        except Exception as error:
            raise RldsError(f"The policy {name} failed: {failure_of(error)}") from error
        chosen = given if chosen is None else _as_rows(chosen, name, rows.batch_size)
        actions = TensorDict({}, rows.batch_size)
        for key, value in flat_items(chosen).items():
            if key in shapes:
                is_row = value.shape == (*rows.batch_size, *shapes[key], 1)
                column = value.squeeze(-1) if is_row else value
                # One type for every step: a policy may draw some actions and compute others.
                actions[key] = column.to(
                    torch.float64 if column.is_floating_point() else torch.int64
                )
        return actions

    return policy


def _as_rows(chosen: Any, name: str, batch: torch.Size) -> TensorDictBase:
    if isinstance(chosen, TensorDictBase):
        return chosen
    try:
        return TensorDict({"action": chosen}, batch)
    except RuntimeError as error:
        raise UsageError(
            f"The policy {name} returned actions that are not {batch.numel()}, one for each "
            f"environment: {error}"
        ) from error


def seed_of(*numbers: int) -> int:
    """Return a seed of 32 bits that depends on all numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])
