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


@dataclass(frozen=True, kw_only=True)
class RecordOptions(JsonForm):
    """How many episodes or steps of an environment are recorded, and by which seed.

    Args:
        num_episodes: episodes to record.
        num_steps: steps to record instead, at which the last episode is cut; it ends as truncated.
        num_envs: environments that each worker steps side by side. A policy that draws from torch
            draws otherwise for another number; everything else is the same.
        seed: of the environments, of random actions, and of torch.
        max_episode_steps: the step limit of an episode, instead of the environment's.
        env_options: further arguments of ``gymnasium.make``, JSON values.
    """

    num_episodes: int | None = field(default=None, metadata={"flag": "--episodes"})
    num_steps: int | None = field(default=None, metadata={"flag": "--steps"})
    num_envs: int = field(default=1, metadata={"flag": "--envs"})
    seed: int = 0
    max_episode_steps: int | None = None
    env_options: Mapping[str, Any] | None = None

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
        object.__setattr__(self, "env_options", dict(self.env_options or {}))
        try:
            json.dumps(self.env_options)
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


@dataclass(frozen=True)
class Recording(RecordOptions):
    """What decides the values of a recording, but for the policy.

    Args:
        env: id of a gymnasium environment; ``module:id`` imports the module first, which registers
            it.
    """

    env: str
