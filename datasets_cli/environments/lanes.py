"""Lanes: environments of gymnasium that are stepped side by side and reset on request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from datasets_cli.core.gymnasium_extra import gymnasium

Flags = NDArray[np.bool_]
"""A flag for each lane, ``[N]``."""
LaneNumbers = NDArray[np.int64]
"""A number for each lane, ``[N]``."""
Seeds = Sequence[int | None] | None
"""A seed for each lane. A lane with None continues its random numbers."""
DISABLED = gymnasium.vector.AutoresetMode.DISABLED
"""The mode of all vector environments here: a step never resets a lane."""


class Step(NamedTuple):
    """The result of one step of all lanes; valid until the next call of the lanes."""

    # observation: an array or a tree of arrays `[N, ...]`, as gymnasium returns it; a lane that
    # this step ended has its last observation. Reward and flags: `[N]`.

    observation: Any
    reward: NDArray[Any]
    terminated: Flags
    truncated: Flags


class Lanes(Protocol):
    """The interface of environments that are stepped together."""

    num_lanes: int

    def reset(self, seeds: Seeds) -> Any:
        """Start a trajectory in every lane; return the first observations."""

    def restart(self, ended: Flags, seeds: Seeds = None) -> Any:
        """Start a trajectory in some lanes; return the observation of every lane."""
        # ended: the lanes, at least one.
        # seeds: for these lanes; None for the rest.

    def step(self, actions: Any) -> Step:
        """Take a step in every lane."""
        # actions: an array or a tree of arrays `[N, ...]`, as gymnasium expects them.


class GymnasiumLanes(Lanes, Protocol):
    """Lanes of gymnasium, with their spaces."""

    observation_space: gymnasium.Space
    action_space: gymnasium.Space
    """The spaces of one lane."""

    def close(self) -> None:
        """Close the environments and their processes."""


class SingleLane:
    """One environment of gymnasium, in this process."""

    num_lanes = 1

    def __init__(self, environment: gymnasium.Env) -> None:
        self._environment = environment
        self.observation_space = environment.observation_space
        self.action_space = environment.action_space

    def reset(self, seeds: Seeds) -> Any:
        return self._environment.reset(seed=seeds[0] if seeds else None)[0]

    def restart(self, ended: Flags, seeds: Seeds = None) -> Any:
        return self.reset(seeds)

    def step(self, actions: Any) -> Step:
        observation, reward, terminated, truncated, _ = self._environment.step(_first(actions))
        flags = np.array([terminated, truncated], bool).reshape(2, 1)
        return Step(observation, np.array([reward]), flags[0], flags[1])

    def close(self) -> None:
        self._environment.close()


def _first(actions: Any) -> Any:
    if isinstance(actions, np.ndarray):
        return actions[0]
    if isinstance(actions, tuple):
        return tuple(map(_first, actions))
    return {name: _first(part) for name, part in actions.items()}


def _seed_list(seeds: Seeds) -> Any:
    return None if seeds is None else [*seeds]


class VectorLanes:
    """The environments of a ``SyncVectorEnv`` or an ``AsyncVectorEnv``."""

    def __init__(self, environments: gymnasium.vector.VectorEnv) -> None:
        self._environments = environments
        self.num_lanes = environments.num_envs
        self.observation_space = environments.single_observation_space
        self.action_space = environments.single_action_space

    def reset(self, seeds: Seeds) -> Any:
        return self._environments.reset(seed=_seed_list(seeds))[0]

    def restart(self, ended: Flags, seeds: Seeds = None) -> Any:
        options = {"reset_mask": ended}
        return self._environments.reset(seed=_seed_list(seeds), options=options)[0]

    def step(self, actions: Any) -> Step:
        return Step(*self._environments.step(actions)[:4])

    def close(self) -> None:
        self._environments.close()
