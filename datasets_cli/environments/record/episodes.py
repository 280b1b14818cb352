"""The steps of episodes, from the loop of the collectors, split where trajectories end.

Environments do not reset themselves here: the observation after the last action of an episode is
the one that the environment returned for that action.
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
from datasets_cli.environments.actions import Actions, CheckActions
from datasets_cli.environments.environment import Stepper
from datasets_cli.environments.lanes import DISABLED, VectorLanes
from datasets_cli.environments.policies import Actor, actor_of
from datasets_cli.environments.record.options import (
    PolicyFunction,
    RandomActions,
    Recording,
    recorded_policy,
    seed_of,
)
from datasets_cli.environments.rows import RolloutRows, leaves_of
from datasets_cli.errors import RldsError, Unsupported, UsageError
from datasets_cli.preprocessing.function import failure_of
from datasets_cli.schema.columns import REWARD, TERMINATED, TRAJECTORY_END, TRUNCATED, Key

ACTION: Key = ("action",)
OBSERVATION: Key = ("observation",)
BUFFER_STEPS = 1024
BUFFER_BYTES = 64 << 20
"""The limits of steps in memory before they are written; at least one step."""

StepColumns = dict[Key, np.ndarray]


@dataclass(frozen=True)
class EpisodePiece:
    """Consecutive steps of one episode."""

    episode: int
    columns: StepColumns
    is_last: bool


class SteppedEpisodes:
    """Environments that run through a range of episodes."""

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
        """Return the actor of a policy function, or random actions of the space for None."""
        if function is not None:
            return actor_of(recorded_policy(function, name, self._actions), "action")
        return RandomActions(
            self._space, self._actions, *self._batch, lambda number: self._seed(number, 1)
        )

    def pieces(self, actor: Actor) -> Iterator[EpisodePiece]:
        """Yield the pieces of the episodes; the pieces of one episode are in order."""
        num_steps = self._buffer_steps()
        # One more step than the whole recording: the row that is truncated there is not recorded.
        limit = self._options.num_steps and self._options.num_steps + 1
        with _environment_errors(self._options.env):
            self._stepper.reset()
        while not self._is_finished():
            rows = RolloutRows(self._observations, self._batch, num_steps, torch.float64)
            with torch.no_grad(), _environment_errors(self._options.env):
                num_taken = self._stepper.roll(
                    actor, rows, max_frames=limit, is_finished=self._is_finished
                )
            yield from self._pieces_of(rows, num_taken)

    def close(self) -> None:
        self._envs.close()

    def _seed(self, number: int, use: int) -> int:
        """Return the seed of a trajectory's episode, for one of its uses."""
        return seed_of(self._options.seed, self._numbers.start + number, use)

    def _is_finished(self) -> bool:
        # Idle environments continue with further episodes, which are not recorded.
        count, stepper = len(self._numbers), self._stepper
        return stepper.num_trajectories >= count and bool(
            (stepper.ids[~stepper.ended] >= count).all()
        )

    def _buffer_steps(self) -> int:
        step_bytes = sum(
            2 * math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in self._observations
        )
        return max(
            1, min(BUFFER_STEPS, BUFFER_BYTES // max(1, step_bytes * self._options.num_envs))
        )

    def _pieces_of(self, rows: RolloutRows, num_taken: int) -> Iterator[EpisodePiece]:
        columns, ids = self._columns(rows, num_taken), rows.ids[:, :num_taken]
        ends = columns[TERMINATED] | columns[TRUNCATED]
        for lane in range(self._options.num_envs):
            # A piece starts at each row with another trajectory number than the row before it:
            # ids    3 3 3 5 5    starts [0, 3]
            starts = (np.flatnonzero(np.diff(ids[lane])) + 1).tolist()
            for begin, stop in pairwise([0, *starts, num_taken]):
                number, end = int(ids[lane, begin]), ends[lane, begin:stop]
                if number < len(self._numbers):
                    steps = {
                        key: column[lane, begin:stop].copy() for key, column in columns.items()
                    }
                    steps[TRAJECTORY_END] = end.copy()
                    yield EpisodePiece(self._numbers[number], steps, bool(end[-1]))

    def _columns(self, rows: RolloutRows, num_taken: int) -> StepColumns:
        """Return the recorded columns, ``[N, T, ...]``."""
        columns = rows.columns(num_taken)
        observed = [leaf.key for leaf in self._observations]
        return {
            **{key: columns[key] for key in observed},
            **{leaf.key: columns[leaf.key].astype(leaf.dtype) for leaf in self._actions},
            **{("next", *key): columns["next", *key] for key in observed},
            **{key: columns[key][..., 0] for key in (REWARD, TERMINATED, TRUNCATED)},
        }


def make_environments(options: Recording) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
    """Return the environments of one worker."""
    limit = options.max_episode_steps
    kwargs: Any = {**(options.env_options or {}), **({"max_episode_steps": limit} if limit else {})}
    try:
        return gymnasium.make_vec(
            options.env,
            options.num_envs,
            vectorization_mode="sync",
            vector_kwargs={"autoreset_mode": DISABLED},
            **kwargs,
        )
    except Exception as error:  # the environment's module can raise any error
        raise UsageError(
            f"gymnasium cannot make the environment {options.env} ({type(error).__name__}: "
            f"{error}).",
            argument="env",
            found=options.env,
            advice="Use a registered id, or MODULE:ID if MODULE registers the id.",
        ) from error


def check_spaces(envs: gymnasium.vector.VectorEnv[Any, Any, Any]) -> None:
    """Raise an error if the observation or the action has only text."""
    for key, space in (
        (OBSERVATION, envs.single_observation_space),
        (ACTION, envs.single_action_space),
    ):
        if all(leaf.is_text for leaf in leaves_of(space, key, one_hot=False, text=True)):
            raise Unsupported(
                f"The environment's space {key[0]} is {space}; expected numbers, or text in a Dict "
                "with numbers.",
                key=key,
                found=str(space),
                advice="Wrap the environment so that it returns such a Dict.",
            )


@contextmanager
def _environment_errors(env: str) -> Iterator[None]:
    """Raise errors of the environment as RldsError with its id."""
    try:
        yield
    except RldsError:
        raise
    except Exception as error:
        raise RldsError(f"{env} failed: {failure_of(error)}", argument="env") from error
