"""Lanes: environments of gymnasium that are stepped side by side and reset on request.

In every ``AutoresetMode``, a step returns the observation that it led to, and a reset does not take
a step::

    mode        after a step that ended lane 1              restart([False, True])
    DISABLED    lane 1 has its last observation             resets lane 1
    NEXT_STEP   the same; its next step would reset it      resets lane 1 before that step
    SAME_STEP   lane 1 was reset; its last observation      returns the observation of that reset
                comes from info["final_obs"]
"""

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
SAME_STEP = gymnasium.vector.AutoresetMode.SAME_STEP


class Step(NamedTuple):
    """The result of one step of all lanes; valid until the next call of the lanes."""

    # observation: an array or a tree of arrays `[N, ...]`, as gymnasium returns it. A lane that
    # this step reset has the first observation of its next trajectory.
    # last_observations: the last observations of these lanes, by lane. Reward and flags: `[N]`.

    observation: Any
    last_observations: dict[int, Any]
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
        # seeds: for these lanes; None for the rest and for lanes that gymnasium reset already.

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
        return Step(observation, {}, np.array([reward]), flags[0], flags[1])

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
        self._resets_in_step = environments.metadata["autoreset_mode"] == SAME_STEP
        self._was_reset: Flags = np.zeros(self.num_lanes, bool)  # in the last step
        self._observation: Any = None

    def reset(self, seeds: Seeds) -> Any:
        self._was_reset[:] = False
        self._observation, _ = self._environments.reset(seed=_seed_list(seeds))
        return self._observation

    def restart(self, ended: Flags, seeds: Seeds = None) -> Any:
        pending = ended & ~self._was_reset
        self._was_reset &= ~ended
        if pending.any():
            self._observation, _ = self._environments.reset(
                seed=_seed_list(seeds), options={"reset_mask": pending}
            )
        return self._observation

    def step(self, actions: Any) -> Step:
        observation, reward, terminated, truncated, info = self._environments.step(actions)
        self._observation = observation
        last: dict[int, Any] = {}
        if self._resets_in_step:
            self._was_reset = terminated | truncated
            last = {
                lane: info["final_obs"][lane] for lane in np.flatnonzero(self._was_reset).tolist()
            }
        return Step(observation, last, reward, terminated, truncated)

    def close(self) -> None:
        self._environments.close()
