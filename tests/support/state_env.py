"""An environment that is set to states as gymnasium's of MuJoCo are, and shows them as pixels."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

ID = "SlidingBlock-v0"


def block_spec() -> str:
    """Return the environment's specification as JSON, as a recording has it."""
    if ID not in gymnasium.registry:
        gymnasium.register(ID, f"{__name__}:SlidingBlock")
    return gymnasium.spec(ID).to_json()


class SlidingBlock(gymnasium.Env):
    """Shows qpos as the red, qvel as the green of each pixel."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 25}  # noqa: RUF012 - gymnasium's
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.shown = np.zeros(3)
        return np.zeros(2, np.float32), {}

    def set_state(self, qpos: np.ndarray, qvel: np.ndarray) -> None:
        assert qpos.shape == qvel.shape == (1,)
        self.shown = np.array([*qpos, *qvel, 0])

    def render(self) -> np.ndarray:
        return np.broadcast_to(self.shown, (20, 31, 3)).astype(np.uint8)
