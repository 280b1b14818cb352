"""The steps of episodes: the loop of the collectors, cut where trajectories end.

Environments do not reset themselves here, so that the observation that follows a last action is
the one that the environment returned for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from datasets_cli.core.gymnasium_extra import gymnasium
from datasets_cli.environments.actions import Actions, CheckActions, Outside
from datasets_cli.environments.environment import Stepper
from datasets_cli.environments.lanes import VectorLanes
from datasets_cli.environments.policies import Actor, actor_of
from datasets_cli.environments.record.options import (
    PolicyFunction,
    RandomActions,
    Recording,
    named_policy,
    seed_of,
)
from datasets_cli.environments.rows import RolloutRows, leaves_of
from datasets_cli.errors import RldsError, UsageError
from datasets_cli.parallel.functions import failure_of
from datasets_cli.schema.columns import REWARD, TERMINATED, TRAJECTORY_END, TRUNCATED, Key

ACTION: Key = ("action",)
OBSERVATION: Key = ("observation",)
ROOM_STEPS = 1024
ROOM_BYTES = 64 << 20
"""Room for steps that are taken before they are written; of one step at least."""

StepColumns = dict[Key, np.ndarray]


@dataclass(frozen=True)
class EpisodePiece:
    """Consecutive steps of one episode."""

    episode: int
    columns: StepColumns
    is_last: bool


class SteppedEpisodes:
    """Environments that are stepped through some episodes."""

    def __init__(self, options: Recording, numbers: range, check_actions: CheckActions) -> None:
        self._options, self._numbers = options, numbers
        self._envs = make_environments(options)
        lanes = VectorLanes(self._envs)
        self._space = lanes.action_space
        self._observations = leaves_of(
            lanes.observation_space, OBSERVATION, one_hot=False, text=True
        )
        self._actions = leaves_of(self._space, ACTION, one_hot=False, text=True)
        self._batch = (options.num_envs,)
        actions = Actions(self._space, self._actions, self._batch, check_actions)
        self._stepper = Stepper(lanes, actions, lambda number: self._seed(number, 0))

    def actor(self, function: PolicyFunction | None, name: str) -> Actor:
        """Return what chooses the actions: a function, or the space at random."""
        if function is not None:
            return actor_of(named_policy(function, name, self._actions), "action")
        return RandomActions(
            self._space, self._actions, *self._batch, lambda number: self._seed(number, 1)
        )

    def pieces(self, actor: Actor) -> Iterator[EpisodePiece]:
        """Yield the steps of the episodes; those of each one are in order."""
        room = self._room()
        # One step more than are wanted of all episodes: a row that is cut there is not kept.
        limit = self._options.num_steps and self._options.num_steps + 1
        with _failures_of(self._options.env):
            self._stepper.begin()
        while not self._is_over():
            rows = RolloutRows(self._observations, self._batch, room, torch.float64)
            with torch.no_grad(), _failures_of(self._options.env):
                taken = self._stepper.roll(actor, rows, max_frames=limit, is_over=self._is_over)
            yield from self._pieces_of(rows, taken)

    @property
    def outside(self) -> Outside:
        """The actions out of bounds."""
        return self._stepper.actions.outside

    def close(self) -> None:
        self._envs.close()

    def _seed(self, number: int, use: int) -> int:
        """Return the seed of one use of a trajectory, which is that of its episode."""
        return seed_of(self._options.seed, self._numbers.start + number, use)

    def _is_over(self) -> bool:
        # Environments that have nothing left to do play on, and nobody keeps it.
        count, stepper = len(self._numbers), self._stepper
        return stepper.num_ids >= count and bool((stepper.ids[~stepper.ended] >= count).all())

    def _room(self) -> int:
        step_bytes = sum(
            2 * math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in self._observations
        )
        return max(1, min(ROOM_STEPS, ROOM_BYTES // max(1, step_bytes * self._options.num_envs)))

    def _pieces_of(self, rows: RolloutRows, taken: int) -> Iterator[EpisodePiece]:
        columns, ids = self._columns(rows, taken), rows.ids[:, :taken]
        ends = columns[TERMINATED] | columns[TRUNCATED]
        for lane in range(self._options.num_envs):
            # A row whose number is not that of the row before it begins the next piece.
            begins = (np.flatnonzero(np.diff(ids[lane])) + 1).tolist()
            for begin, stop in pairwise([0, *begins, taken]):
                number, end = int(ids[lane, begin]), ends[lane, begin:stop]
                if number < len(self._numbers):
                    steps = {
                        key: column[lane, begin:stop].copy() for key, column in columns.items()
                    }
                    steps[TRAJECTORY_END] = end.copy()
                    yield EpisodePiece(self._numbers[number], steps, bool(end[-1]))

    def _columns(self, rows: RolloutRows, taken: int) -> StepColumns:
        """Return what is recorded, ``[N, T, ...]``."""
        kept = rows.columns(taken)
        observed = [leaf.key for leaf in self._observations]
        return {
            **{key: kept[key] for key in observed},
            **{leaf.key: kept[leaf.key].astype(leaf.dtype) for leaf in self._actions},
            **{("next", *key): kept["next", *key] for key in observed},
            **{key: kept[key][..., 0] for key in (REWARD, TERMINATED, TRUNCATED)},
        }


def make_environments(options: Recording) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
    """Return the environments of one worker."""
    limit = options.max_episode_steps
    own: Any = {**(options.env_options or {}), **({"max_episode_steps": limit} if limit else {})}
    try:
        return gymnasium.make_vec(
            options.env,
            options.num_envs,
            vectorization_mode="sync",
            vector_kwargs={"autoreset_mode": gymnasium.vector.AutoresetMode.DISABLED},
            **own,
        )
    except Exception as error:  # whatever an environment's module does
        raise UsageError(
            f"The environment {options.env} cannot be made ({type(error).__name__}: {error}). "
            "Expected an id that gymnasium knows, or MODULE:ID where MODULE registers it."
        ) from error


def check_spaces(envs: gymnasium.vector.VectorEnv[Any, Any, Any]) -> None:
    """Check that observations and actions have columns, of which one or more are numbers."""
    for key, space in (
        (OBSERVATION, envs.single_observation_space),
        (ACTION, envs.single_action_space),
    ):
        if all(leaf.is_text for leaf in leaves_of(space, key, one_hot=False, text=True)):
            raise UsageError(
                f"An environment's space {key[0]} is {space}. Expected numbers, with or without "
                "text. Wrap the environment: let it return a Dict that has a number beside the "
                "text."
            )


@contextmanager
def _failures_of(env: str) -> Iterator[None]:
    """Give failures, which are the environment's where they are not told of yet, its name."""
    try:
        yield
    except RldsError:
        raise
    except Exception as error:
        raise RldsError(f"{env} failed: {failure_of(error)}") from error
