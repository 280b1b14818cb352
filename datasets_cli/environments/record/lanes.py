"""The loop of recording: environments side by side, each one episode after the other.

Environments do not reset themselves here, so that the observation that follows a last action is
the one that the environment returned for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from datasets_cli.environments.record.options import RecordOptions
from datasets_cli.environments.record.policies import ACTION, Policy, seed_of
from datasets_cli.environments.record.spaces import columns_of
from datasets_cli.errors import RldsError, UsageError
from datasets_cli.gymnasium_extra import gymnasium
from datasets_cli.preprocessing.functions import failure_of
from datasets_cli.store.schema.columns import REWARD, TERMINATED, TRAJECTORY_END, TRUNCATED, Key

OBSERVATION: Key = ("observation",)
PIECE_BYTES = 64 << 20
"""Steps of one episode that are held in memory before they are written."""

Columns = dict[Key, np.ndarray]
Environments = gymnasium.vector.VectorEnv[Any, Any, Any]


@dataclass(frozen=True)
class Piece:
    """Consecutive steps of one episode."""

    episode: int
    columns: Columns
    is_last: bool


@dataclass
class _Lane:
    """What one environment did since its last piece."""

    episode: int
    steps: list[Columns] = field(default_factory=list)
    num_steps: int = 0
    size_bytes: int = 0


def make_environments(options: RecordOptions) -> Environments:
    """Return the environments of one worker."""
    limit = options.max_episode_steps
    own: Any = {**options.env_options, **({"max_episode_steps": limit} if limit else {})}
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


def pieces(
    envs: Environments, policy: Policy, options: RecordOptions, episodes: range
) -> Iterator[Piece]:
    """Yield the steps of some episodes; those of each episode are in order."""
    count = options.num_envs
    numbers = iter(range(episodes.start, episodes.stop + count))
    lanes = [_Lane(next(numbers)) for _ in range(count)]
    limit = options.most_episode_steps
    space, action_space = envs.single_observation_space, envs.single_action_space
    num_open = len(episodes)
    begun = np.ones(count, np.bool_)
    batch: Any = None
    while num_open:
        if begun.any():
            for place in np.flatnonzero(begun).tolist():
                policy.begin(place, lanes[place].episode)
            batch = _reset(envs, options, lanes, begun)
        now = columns_of(space, batch, OBSERVATION)
        actions = policy.actions(now)
        batch, reward, terminated, truncated = _step(envs, options, actions)
        step = now | columns_of(action_space, actions, ACTION)
        step |= columns_of(space, batch, ("next", *OBSERVATION))
        step |= {REWARD: np.asarray(reward, np.float64)}
        step |= {TERMINATED: terminated, TRUNCATED: truncated}
        begun = terminated | truncated
        step_bytes = sum(values.nbytes for values in step.values()) // count
        for number, lane in enumerate(lanes):
            lane.steps.append(step)
            lane.num_steps += 1
            lane.size_bytes += step_bytes
            is_cut = limit is not None and lane.num_steps >= limit
            begun[number] |= is_cut
            if not (begun[number] or lane.size_bytes > PIECE_BYTES):
                continue
            if lane.episode in episodes:
                yield _piece(lane, number, bool(begun[number]))
                num_open -= int(begun[number])
            lane.steps, lane.size_bytes = [], 0
            if begun[number]:
                # Environments that have nothing left to do play on, and nobody keeps it.
                lanes[number] = _Lane(next(numbers, episodes.stop))


def _piece(lane: _Lane, number: int, is_last: bool) -> Piece:
    columns = {
        key: np.stack([step[key][number] for step in lane.steps])
        if lane.steps[0][key].dtype != object
        else np.array([step[key][number] for step in lane.steps], object)
        for key in lane.steps[0]
    }
    end = np.zeros(len(lane.steps), np.bool_)
    end[-1] = is_last
    columns[TRAJECTORY_END] = end
    columns[TRUNCATED] |= end & ~columns[TERMINATED]  # cut by a limit of ours
    return Piece(lane.episode, columns, is_last)


def _reset(
    envs: Environments, options: RecordOptions, lanes: list[_Lane], which: np.ndarray
) -> Any:
    seeds: Any = [
        seed_of(options.seed, lane.episode, 0) if is_begun else None
        for lane, is_begun in zip(lanes, which, strict=True)
    ]
    # The first reset is of all; a mask then would leave the others without an observation.
    mask = None if which.all() else {"reset_mask": which.copy()}
    try:
        observation, _ = envs.reset(seed=seeds, options=mask)
    except Exception as error:
        raise _failed(options, "reset", error) from error
    return observation


def _step(envs: Environments, options: RecordOptions, actions: Any) -> tuple[Any, ...]:
    try:
        observation, reward, terminated, truncated, _ = envs.step(actions)
    except Exception as error:
        raise _failed(options, "step", error) from error
    return observation, reward, terminated.copy(), truncated.copy()


def _failed(options: RecordOptions, method: str, error: Exception) -> RldsError:
    return RldsError(f"{options.env} failed in {method}(): {failure_of(error)}")
