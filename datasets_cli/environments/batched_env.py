"""Several environments of gymnasium side by side: in this process, or in one process each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch

from datasets_cli.core.gymnasium_extra import gymnasium
from datasets_cli.core.options import takes_fields
from datasets_cli.environments.environment import Environment
from datasets_cli.environments.gym_env import GymEnv, MadeEnvironment
from datasets_cli.environments.lanes import GymnasiumLanes, VectorLanes
from datasets_cli.errors import UsageError
from datasets_cli.parallel.workers import without_main_file
from datasets_cli.replay.arguments import whole_number
from datasets_cli.torchrl.keywords import accepts_keywords

AutoresetMode = gymnasium.vector.AutoresetMode
MakeEnv = Callable[..., Any]
EnvArguments = Mapping[str, Any] | Sequence[Mapping[str, Any]] | None


@dataclass(frozen=True)
class BatchedOptions:
    """What environments side by side take.

    Args:
        num_workers: N, how many.
        create_env_fn: returns a ``GymEnv`` or an environment of gymnasium; or one function for
            each lane. The first is called once more, to know what it makes.
        create_env_kwargs: of these functions; or one mapping for each lane.
        device: of the tensors that it returns; that of the first ``GymEnv`` where None.
        autoreset_mode: how gymnasium begins the next trajectory; the rows are the same in each.
    """

    num_workers: int
    create_env_fn: MakeEnv | Sequence[MakeEnv]
    create_env_kwargs: EnvArguments = None
    _: KW_ONLY
    device: str | torch.device | None = None
    autoreset_mode: str | AutoresetMode = AutoresetMode.DISABLED

    def makers(self) -> list[MadeEnvironment]:
        """Return what makes the environment of each lane."""
        count = whole_number("num_workers", self.num_workers, 1)
        functions, arguments = self.create_env_fn, self.create_env_kwargs
        made_by = [*functions] if isinstance(functions, Sequence) else [functions] * count
        given = [*arguments] if isinstance(arguments, Sequence) else [arguments or {}] * count
        for name, values in (("create_env_fn", made_by), ("create_env_kwargs", given)):
            if len(values) != count:
                raise UsageError(
                    f"{name} must be one for all, or one for each of {count} environments, not "
                    f"{len(values)}."
                )
        for function in made_by:
            if not callable(function):
                raise UsageError(
                    f"create_env_fn must be a function that makes an environment, not {function!r}."
                )
        return [MadeEnvironment(*each) for each in zip(made_by, given, strict=True)]


class BatchedEnv(Environment):
    """Several environments side by side."""

    def __init__(self, options: BatchedOptions) -> None:
        self._options = options
        self._makers = options.makers()
        self._mode = _known_mode(options.autoreset_mode)
        first = _as_gym_env(self._makers[0])
        first.close()
        self._name = repr(first)
        encoding = first.categorical_action_encoding
        super().__init__((len(self._makers),), options.device or first.device, encoding)

    @abstractmethod
    def _vectorized(self) -> gymnasium.vector.VectorEnv:
        """Make the environments of gymnasium, side by side."""

    def _make_lanes(self) -> GymnasiumLanes:
        try:
            return VectorLanes(self._vectorized())
        except RuntimeError as error:
            raise UsageError(f"{self}: the environments do not fit together: {error}") from error

    def __reduce__(self) -> tuple[Any, ...]:
        if "stepper" in vars(self):
            raise UsageError(
                f"{self} cannot be sent to another process: it was reset or seeded already. Pass "
                "a function that makes it."
            )
        return _remade, (type(self), self._options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self._makers)} x {self._name})"


@accepts_keywords
class SerialEnv(BatchedEnv):
    """Several environments in this process, one lane each: gymnasium's ``SyncVectorEnv``."""

    @takes_fields(BatchedOptions)
    def __init__(self, options: BatchedOptions) -> None:
        super().__init__(options)

    def _vectorized(self) -> gymnasium.vector.VectorEnv:
        return gymnasium.vector.SyncVectorEnv(self._makers, copy=False, autoreset_mode=self._mode)


@accepts_keywords
class ParallelEnv(BatchedEnv):
    """Several environments in one process each: gymnasium's ``AsyncVectorEnv``.

    The processes are spawned when they are first needed. They import gymnasium but not torch
    where the functions return a ``GymEnv`` made by its name.
    """

    @takes_fields(BatchedOptions)
    def __init__(self, options: BatchedOptions) -> None:
        super().__init__(options)

    def _vectorized(self) -> gymnasium.vector.VectorEnv:
        with without_main_file():
            return gymnasium.vector.AsyncVectorEnv(
                [_by_name(maker) for maker in self._makers],
                copy=False,
                context="spawn",
                autoreset_mode=self._mode,
            )


def _as_gym_env(maker: MadeEnvironment) -> GymEnv:
    made = maker.function(**maker.arguments)
    if isinstance(made, GymEnv):
        return made
    if isinstance(made, gymnasium.Env):
        return GymEnv(made)
    raise UsageError(
        "create_env_fn of environments side by side must return a GymEnv or an environment of "
        f"gymnasium, not {made!r}."
    )


def _by_name(maker: MadeEnvironment) -> Callable[[], gymnasium.Env]:
    """Return what makes the same environment without the user's function, if it has a name."""
    made = _as_gym_env(maker)
    made.close()
    return made.named or maker


def _known_mode(mode: str | AutoresetMode) -> AutoresetMode:
    try:
        return AutoresetMode(mode)
    except ValueError as error:
        known = ", ".join(repr(each.value) for each in AutoresetMode)
        raise UsageError(f"autoreset_mode is one of {known}, not {mode!r}.") from error


def _remade(kind: Any, options: BatchedOptions) -> BatchedEnv:
    made: BatchedEnv = kind(**vars(options))
    return made
