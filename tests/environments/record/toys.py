"""Small environments and policies that recordings are made of."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from tensordict import TensorDict


class Corridor(gymnasium.Env[dict[str, Any], tuple[Any, Any]]):
    """Observations of every kind; ends by itself at the end of a corridor of random length."""

    observation_space = spaces.Dict(
        {
            "pixels": spaces.Box(0, 255, (8, 8, 3), np.uint8),
            "place": spaces.Discrete(20, start=1),
            "goal": spaces.Tuple([spaces.Box(-np.inf, np.inf, (2,)), spaces.MultiBinary(3)]),
        }
    )
    action_space = spaces.Tuple([spaces.Discrete(2), spaces.Box(-1, 1, (2,))])

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.length = 1, int(self.np_random.integers(2, 9))
        return self._observation(), {}

    def step(
        self, action: tuple[Any, Any]
    ) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        self.place += 1
        reward = float(action[0]) + float(action[1][0])
        return self._observation(), reward, self.place > self.length, False, {}

    def _observation(self) -> dict[str, Any]:
        pixels = self.np_random.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        goal = (np.array([self.place, -1], np.float32), np.array([1, 0, 1], np.int8))
        return {"pixels": pixels, "place": self.place, "goal": goal}


class Endless(gymnasium.Env[int, int]):
    """Never ends, and says how many steps it made."""

    observation_space = spaces.Discrete(1 << 30)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self.steps, 1.0, False, False, {}


class Falling(Endless):
    """Fails in its third step."""

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        if self.steps == 2:
            raise ZeroDivisionError("of the environment")
        return super().step(action)


class Written(gymnasium.Env[dict[str, Any], int]):
    """Says how many steps it made as a number, and as text."""

    observation_space = spaces.Dict({"number": spaces.Discrete(9), "text": spaces.Text(12)})
    action_space = spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return {"number": 0, "text": "0"}, {}

    def step(self, action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        self.steps += 1
        observation = {"number": self.steps, "text": str(self.steps)}
        return observation, 1.0, False, False, {}


class Spoken(Written):
    """Observes text alone, or takes text alone as an action."""

    def __init__(self, *, acts: bool = False) -> None:
        name = "action_space" if acts else "observation_space"
        setattr(self, name, spaces.Text(12))


gymnasium.register("Corridor-v0", entry_point=f"{__name__}:Corridor")
gymnasium.register("Endless-v0", entry_point=f"{__name__}:Endless")
gymnasium.register("Falling-v0", entry_point=f"{__name__}:Falling")
gymnasium.register("Written-v0", entry_point=f"{__name__}:Written", max_episode_steps=3)
gymnasium.register("Spoken-v0", entry_point=f"{__name__}:Spoken", max_episode_steps=3)


def lean(batch: TensorDict) -> TensorDict:
    """Push the cart to where the pole leans."""
    return batch.set("action", (batch["observation"][:, 2] > 0).long())


def coin(batch: TensorDict) -> torch.Tensor:
    """Draw actions from torch."""
    return torch.randint(2, batch.shape)


def wrong(batch: TensorDict) -> torch.Tensor:
    """Return one-hot actions, which gymnasium does not take."""
    return torch.eye(2)[coin(batch)]


def broken(batch: TensorDict) -> None:
    """Raise."""
    raise ZeroDivisionError("of the policy")


def too_many(batch: TensorDict) -> torch.Tensor:
    """Return more actions than there are environments."""
    return torch.zeros(99, dtype=torch.int64)


def pushy(batch: TensorDict) -> torch.Tensor:
    """Return actions of Pendulum of which those of positive speed are out of bounds, by 0.25."""
    return torch.where(batch["observation"][:, 2:] > 0, 2.25, 2.0)


def lost(batch: TensorDict) -> torch.Tensor:
    """Return actions of Pendulum that are NaN where the speed is positive."""
    return torch.where(batch["observation"][:, 2:] > 0, torch.nan, 0.0)
