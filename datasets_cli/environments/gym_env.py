"""One environment of gymnasium."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from datasets_cli.core.gymnasium_extra import gymnasium
from datasets_cli.environments.environment import Environment
from datasets_cli.environments.lanes import GymnasiumLanes, SingleLane
from datasets_cli.errors import UsageError
from datasets_cli.torchrl.keywords import accepts_keywords


@accepts_keywords
class GymEnv(Environment):
    """An environment of gymnasium as a function of TensorDicts.

    Args:
        env_name: its registered name, or an environment of gymnasium, which is closed with this.
        device: of the tensors that it returns; they are on the processor, and their TensorDict
            has no device, where None.
        categorical_action_encoding: keep values of discrete spaces as numbers, not as one-hot
            vectors.
        kwargs: of ``gymnasium.make``.

    Raises:
        UsageError: gymnasium does not have it.
    """

    def __init__(
        self,
        env_name: str | gymnasium.Env,
        *,
        device: str | torch.device | None = None,
        categorical_action_encoding: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__((), device, categorical_action_encoding)
        self.categorical_action_encoding = categorical_action_encoding
        self._arguments = kwargs
        self.env_name = env_name if isinstance(env_name, str) else None
        self.gymnasium_env: gymnasium.Env = _made(env_name, kwargs)
        """The environment of gymnasium."""

    @property
    def named(self) -> partial[gymnasium.Env] | None:
        """What makes another one in any process; None of one that was not made by its name."""
        spec = self.gymnasium_env.spec
        if self.env_name is None or spec is None:
            return None
        return partial(gymnasium.make, gymnasium.spec(spec.id), **self._arguments)

    def _make_lanes(self) -> GymnasiumLanes:
        return SingleLane(self.gymnasium_env)

    def _close(self) -> None:
        self.gymnasium_env.close()

    def __reduce__(self) -> tuple[Any, ...]:
        if "stepper" in vars(self) or self.named is None:
            raise UsageError(
                f"{self} cannot be sent to another process: only one that was made by its name, "
                "and was neither reset nor seeded. Pass a function that makes it."
            )
        return _remade, (self.named, self.device, self.categorical_action_encoding)

    def __repr__(self) -> str:
        return f"GymEnv({self.gymnasium_env})"


def _made(env_name: str | gymnasium.Env, arguments: dict[str, Any]) -> gymnasium.Env:
    if isinstance(env_name, gymnasium.Env):
        if arguments:
            raise UsageError(
                f"{sorted(arguments)} are arguments of gymnasium.make, for an environment that is "
                "named; this one is made already."
            )
        return env_name
    try:
        return gymnasium.make(env_name, **arguments)
    except (gymnasium.error.Error, TypeError) as error:  # the latter of what is not a name
        raise UsageError(f"gymnasium cannot make {env_name!r}: {error}") from error


def _remade(
    named: partial[gymnasium.Env], device: torch.device | None, categorical: bool
) -> GymEnv:
    return GymEnv(named(), device=device, categorical_action_encoding=categorical)


@dataclass(frozen=True)
class MadeEnvironment:
    """Makes an environment by a user's function."""

    function: Callable[..., Any]
    arguments: Mapping[str, Any]

    def __call__(self) -> gymnasium.Env:
        made = self.function(**self.arguments)
        environment: gymnasium.Env = getattr(made, "gymnasium_env", made)
        return environment
