"""A single gymnasium environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from datasets_cli.core.gymnasium_extra import gymnasium
from datasets_cli.environments.environment import Environment
from datasets_cli.environments.lanes import GymnasiumLanes, SingleLane
from datasets_cli.errors import Unsupported, UsageError
from datasets_cli.torchrl.keywords import accepts_keywords


@accepts_keywords
class GymEnv(Environment):
    """A gymnasium environment that reads and returns TensorDicts.

    Args:
        env_name: the registered name, such as ``"CartPole-v1"``, or a gymnasium environment, which
            is closed with this one.
        device: the device of the returned TensorDicts; None for tensors on the CPU in TensorDicts
            without a device.
        categorical_action_encoding: encode values of discrete spaces as integers instead of
            one-hot vectors.
        kwargs: the keyword arguments of ``gymnasium.make``.

    Raises:
        UsageError: gymnasium cannot make the environment.
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
        self.gymnasium_env: gymnasium.Env = _make_env(env_name, kwargs)
        """The gymnasium environment."""

    @property
    def named_factory(self) -> partial[gymnasium.Env] | None:
        """A factory of the environment by its registered name; None if it was passed as object."""
        spec = self.gymnasium_env.spec
        if self.env_name is None or spec is None:
            return None
        return partial(gymnasium.make, gymnasium.spec(spec.id), **self._arguments)

    def _make_lanes(self) -> GymnasiumLanes:
        return SingleLane(self.gymnasium_env)

    def _close(self) -> None:
        self.gymnasium_env.close()

    def __reduce__(self) -> tuple[Any, ...]:
        if "stepper" in vars(self) or self.named_factory is None:
            raise Unsupported(
                f"{self} cannot be pickled: it needs a registered name, and no reset or seed yet.",
                advice="Pass a function that returns a new one.",
            )
        return _rebuild, (self.named_factory, self.device, self.categorical_action_encoding)

    def __repr__(self) -> str:
        return f"GymEnv({self.gymnasium_env})"


def _make_env(env_name: str | gymnasium.Env, kwargs: dict[str, Any]) -> gymnasium.Env:
    if isinstance(env_name, gymnasium.Env):
        if kwargs:
            raise UsageError(
                f"{', '.join(sorted(kwargs))} cannot be passed to {env_name}: it exists already.",
                argument=min(kwargs),
                found=sorted(kwargs),
                advice="Pass the registered name of the environment instead.",
            )
        return env_name
    try:
        return gymnasium.make(env_name, **kwargs)
    except (gymnasium.error.Error, TypeError) as error:  # TypeError: not a text
        raise UsageError(
            f"gymnasium cannot make {env_name!r}: {error}", argument="env_name", found=env_name
        ) from error


def _rebuild(
    factory: partial[gymnasium.Env], device: torch.device | None, categorical: bool
) -> GymEnv:
    return GymEnv(factory(), device=device, categorical_action_encoding=categorical)


@dataclass(frozen=True)
class EnvironmentFactory:
    """A user's function and its arguments; a call returns a gymnasium environment."""

    function: Callable[..., Any]
    arguments: Mapping[str, Any]

    def __call__(self) -> gymnasium.Env:
        made = self.function(**self.arguments)
        environment: gymnasium.Env = getattr(made, "gymnasium_env", made)
        return environment
