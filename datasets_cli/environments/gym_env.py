"""Environments of gymnasium: one, or several side by side, in this process or one process each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

import torch

from datasets_cli.core.gymnasium_extra import gymnasium
from datasets_cli.core.options import takes_fields
from datasets_cli.environments.environment import Environment
from datasets_cli.environments.lanes import DISABLED, GymnasiumLanes, SingleLane, VectorLanes
from datasets_cli.errors import Unsupported, UsageError, wrong_value
from datasets_cli.parallel.workers import without_main_file
from datasets_cli.replay.arguments import whole_number
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


MakeEnv = Callable[..., Any]
EnvArguments = Mapping[str, Any] | Sequence[Mapping[str, Any]] | None


@dataclass(frozen=True)
class BatchedOptions:
    """The arguments of environments side by side.

    Args:
        num_workers: the number of environments, N.
        create_env_fn: a function that returns a ``GymEnv`` or a gymnasium environment, or one
            function per environment. The first is called one extra time, to read its specs.
        create_env_kwargs: the keyword arguments of the functions, or one mapping per environment.
        device: the device of the returned tensors; None uses the device of the first ``GymEnv``.
    """

    num_workers: int
    create_env_fn: MakeEnv | Sequence[MakeEnv]
    create_env_kwargs: EnvArguments = None
    _: KW_ONLY
    device: str | torch.device | None = None

    def factories(self) -> list[EnvironmentFactory]:
        """Return the factory of each environment."""
        count = whole_number("num_workers", self.num_workers, 1)
        function, kwargs = self.create_env_fn, self.create_env_kwargs
        functions = [*function] if isinstance(function, Sequence) else [function] * count
        mappings = [*kwargs] if isinstance(kwargs, Sequence) else [kwargs or {}] * count
        for name, values in (("create_env_fn", functions), ("create_env_kwargs", mappings)):
            if len(values) != count:
                raise wrong_value(
                    name, f"one value for all {count} environments, or one for each", len(values)
                )
        for each in functions:
            if not callable(each):
                raise wrong_value(
                    "create_env_fn", "a function that returns an environment", type(each)
                )
        return [EnvironmentFactory(*each) for each in zip(functions, mappings, strict=True)]


class BatchedEnv(Environment):
    """Several gymnasium environments side by side, one lane each."""

    def __init__(self, options: BatchedOptions) -> None:
        self._options = options
        self._factories = options.factories()
        first = _make_gym_env(self._factories[0])
        first.close()
        self._name = repr(first)
        encoding = first.categorical_action_encoding
        super().__init__((len(self._factories),), options.device or first.device, encoding)

    @abstractmethod
    def _make_vector_env(self) -> gymnasium.vector.VectorEnv:
        """Return gymnasium's vector environment."""

    def _make_lanes(self) -> GymnasiumLanes:
        try:
            return VectorLanes(self._make_vector_env())
        except RuntimeError as error:
            raise UsageError(
                f"{self}: the spaces of the environments differ: {error}",
                argument="create_env_fn",
                advice="Return environments with the same spaces.",
            ) from error

    def __reduce__(self) -> tuple[Any, ...]:
        if "stepper" in vars(self):
            raise Unsupported(
                f"{self} cannot be pickled after a reset or a seed.",
                advice="Pass a function that returns a new one.",
            )
        return _rebuild_batched, (type(self), self._options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self._factories)} x {self._name})"


@accepts_keywords
class SerialEnv(BatchedEnv):
    """Several environments in this process: gymnasium's ``SyncVectorEnv``."""

    @takes_fields(BatchedOptions)
    def __init__(self, options: BatchedOptions) -> None:
        super().__init__(options)

    def _make_vector_env(self) -> gymnasium.vector.VectorEnv:
        return gymnasium.vector.SyncVectorEnv(self._factories, copy=False, autoreset_mode=DISABLED)


@accepts_keywords
class ParallelEnv(BatchedEnv):
    """Several environments, each in its own process: gymnasium's ``AsyncVectorEnv``.

    The processes start on the first reset. If the functions return a ``GymEnv`` by its registered
    name, the processes import gymnasium but not torch.
    """

    @takes_fields(BatchedOptions)
    def __init__(self, options: BatchedOptions) -> None:
        super().__init__(options)

    def _make_vector_env(self) -> gymnasium.vector.VectorEnv:
        with without_main_file():
            return gymnasium.vector.AsyncVectorEnv(
                [_light_factory(factory) for factory in self._factories],
                copy=False,
                context="spawn",
                autoreset_mode=DISABLED,
            )


def _make_gym_env(factory: EnvironmentFactory) -> GymEnv:
    environment = factory.function(**factory.arguments)
    if isinstance(environment, GymEnv):
        return environment
    if isinstance(environment, gymnasium.Env):
        return GymEnv(environment)
    raise UsageError(
        f"create_env_fn must return a GymEnv or a gymnasium environment, not {environment!r}.",
        argument="create_env_fn",
        found=type(environment).__name__,
    )


def _light_factory(factory: EnvironmentFactory) -> Callable[[], gymnasium.Env]:
    """Return a factory that only needs gymnasium, if the environment has a registered name."""
    environment = _make_gym_env(factory)
    environment.close()
    return environment.named_factory or factory


def _rebuild_batched(kind: Any, options: BatchedOptions) -> BatchedEnv:
    environment: BatchedEnv = kind(**vars(options))
    return environment
