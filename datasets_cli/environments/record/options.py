"""What is to be recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from datasets_cli.errors import UsageError
from datasets_cli.json_form import JsonForm

EPISODES_AN_ENV = 4
MOST_CHUNKS = 256


@dataclass(frozen=True)
class RecordOptions(JsonForm):
    """What decides the values of a recording, but for the policy's own code."""

    env: str
    policy: str = "random"
    num_episodes: int | None = None
    num_steps: int | None = None
    num_envs: int = 1
    seed: int = 0
    max_episode_steps: int | None = None
    env_options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.num_episodes is None) == (self.num_steps is None):
            raise UsageError(
                "Give a number of episodes or of steps, one of them: --episodes N or --steps N."
            )
        for name in ("num_episodes", "num_steps", "num_envs", "max_episode_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} is {value}; expected 1 or more.")
        if self.seed < 0:
            raise UsageError(f"seed is {self.seed}; expected 0 or more.")
        try:
            json.dumps(dict(self.env_options))
        except TypeError as error:
            raise UsageError(
                f"env_options must be JSON values, to be kept with the data ({error})."
            ) from error

    @property
    def chunk_episodes(self) -> int:
        """Episodes of a chunk, which one worker records, and which an interrupted run keeps."""
        if self.num_episodes is None:
            return self.num_envs * EPISODES_AN_ENV
        return max(self.num_envs, -(-self.num_episodes // MOST_CHUNKS))
