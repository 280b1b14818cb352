"""Environments of gymnasium in a row, one lane each, which begin again when they are told to.

Whichever way gymnasium begins trajectories again (``AutoresetMode``), a step's observation is the
one that the step led to, and no step is spent on a reset::

    mode        after a step that ended lane 1              restart([False, True])
    DISABLED    observation of lane 1 is its last           resets lane 1
    NEXT_STEP   the same; its next step would be a reset    resets lane 1 before that
    SAME_STEP   lane 1 is reset; its last observation       gives what that reset gave
                is put back from info["final_obs"]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from datasets_cli.core.gymnasium_extra import gymnasium

Flags = NDArray[np.bool_]
Seeds = Sequence[int | None] | None
"""Of each lane; where None, its random numbers continue."""
SAME_STEP = gymnasium.vector.AutoresetMode.SAME_STEP


class Step(NamedTuple):
    """What one step of all lanes led to; valid until the next call of the lanes."""

    # observation: as gymnasium gives it, an array or a tree of arrays `[N, ...]`; where a lane was
    # reset by this step, the first one of its next trajectory. Reward and flags: `[N]`.

    observation: Any
    last_observations: dict[int, Any]
    reward: NDArray[Any]
    terminated: Flags
    truncated: Flags


class Lanes(Protocol):
    """What the loop of steps asks of environments."""

    num_lanes: int

    def reset(self, seeds: Seeds) -> Any:
        """Begin a trajectory in every lane; return the first observations."""

    def restart(self, ended: Flags, seeds: Seeds = None) -> Any:
        """Begin a trajectory in some lanes; return the observation of every lane."""
        # ended: which lanes, `[N]`; at least one.
        # seeds: of these lanes, None of others; not of lanes that gymnasium has reset already.

    def step(self, actions: Any) -> Step:
        """Take a step in every lane."""
        # actions: as gymnasium takes them, an array or a tree of arrays `[N, ...]`.


class GymnasiumLanes(Lanes, Protocol):
    """What environments ask of gymnasium."""

    observation_space: gymnasium.Space
    action_space: gymnasium.Space
    """The spaces of one lane."""

    def close(self) -> None:
        """Close the environments, and end the processes that they run in."""


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


def _listed(seeds: Seeds) -> Any:
    """Return one seed of each lane, as gymnasium takes them."""
    return None if seeds is None else [*seeds]


class VectorLanes:
    """The environments of a ``SyncVectorEnv`` or an ``AsyncVectorEnv``."""

    def __init__(self, environments: gymnasium.vector.VectorEnv) -> None:
        self._environments = environments
        self.num_lanes = environments.num_envs
        self.observation_space = environments.single_observation_space
        self.action_space = environments.single_action_space
        self._resets_at_once = environments.metadata["autoreset_mode"] == SAME_STEP
        self._began: Flags = np.zeros(self.num_lanes, bool)  # reset by gymnasium in the last step
        self._observation: Any = None

    def reset(self, seeds: Seeds) -> Any:
        self._began[:] = False
        self._observation, _ = self._environments.reset(seed=_listed(seeds))
        return self._observation

    def restart(self, ended: Flags, seeds: Seeds = None) -> Any:
        due = ended & ~self._began
        self._began &= ~ended
        if due.any():
            self._observation, _ = self._environments.reset(
                seed=_listed(seeds), options={"reset_mask": due}
            )
        return self._observation

    def step(self, actions: Any) -> Step:
        observation, reward, terminated, truncated, info = self._environments.step(actions)
        self._observation = observation
        last: dict[int, Any] = {}
        if self._resets_at_once:
            self._began = terminated | truncated
            last = {lane: info["final_obs"][lane] for lane in np.flatnonzero(self._began).tolist()}
        return Step(observation, last, reward, terminated, truncated)

    def close(self) -> None:
        self._environments.close()
