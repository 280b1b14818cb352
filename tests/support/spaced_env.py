"""An environment with every kind of space that is made of arrays."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class SpacedEnv(gymnasium.Env):  # type: ignore[type-arg]
    """Counts its steps, of which all observations follow, and shows the action it took."""

    length = 6

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            place=spaces.Box(-1000, 1000, (2,), np.float64),
            pair=spaces.MultiDiscrete([2, 3]),
            bits=spaces.MultiBinary(4),
            nested=spaces.Dict(kind=spaces.Discrete(3, start=10)),
            took=spaces.Box(-1000, 1000, (3,), np.float64),
        )
        self.action_space = spaces.Dict(
            turn=spaces.Discrete(4, start=5), push=spaces.Box(-1, 1, (2,), np.float32)
        )
        self.count = 0
        self.took = np.zeros(3)

    def observation(self) -> dict[str, Any]:
        count = self.count
        return {
            "place": np.array([count, -count], np.float64),
            "pair": np.array([count % 2, count % 3]),
            "bits": np.array([count >> bit & 1 for bit in range(4)], np.int8),
            "nested": {"kind": np.int64(count % 3 + 10)},
            "took": self.took.copy(),
        }

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return self.observation(), {}

    def step(self, action: dict[str, Any]) -> Any:
        assert self.action_space.contains(action), action
        self.count += 1
        self.took = np.array([action["turn"], *action["push"]], np.float64)
        return self.observation(), float(self.count), self.count == self.length, False, {}
