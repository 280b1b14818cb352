"""The arguments of the collectors."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Protocol

import torch
from tensordict.nn import InteractionType

from datasets_cli.environments.actions import CheckActions, validate_mode
from datasets_cli.environments.environment import Environment
from datasets_cli.environments.gym_env import EnvArguments
from datasets_cli.environments.tensordict_environment import is_environment
from datasets_cli.errors import UsageError, wrong_value
from datasets_cli.replay.arguments import whole_number
from datasets_cli.schema.mapping import usable_device

OptionalDevice = str | torch.device | None
HOOKS = ("pre_collect_hook", "post_collect_hook")
"""Functions that are called in the process of the collector."""


class Extendable(Protocol):
    """A replay buffer, or another destination of batches."""

    def extend(self, data: Any) -> Any:
        """Write rows."""


@dataclass(frozen=True, kw_only=True)
class CollectorOptions:
    """The arguments of every collector.

    Args:
        policy: a function of a TensorDict that writes an action, or a module; None for random
            actions.
        frames_per_batch: the number of rows in a batch, over all lanes of the environment.
        total_frames: the number of rows to collect, rounded up to whole batches; -1 for no limit.
        device: the device of the policy and the batches, unless ``policy_device`` or
            ``storing_device`` is set.
        storing_device: the device of the batches; None for that of the environment's tensors.
        policy_device: the device on which the policy is called; a module on another device is
            copied to it.
        env_device: the device that a TorchRL environment is moved to. Gymnasium environments run
            on the CPU; ``GymEnv(device=...)`` moves their observations.
        max_frames_per_traj: the number of rows after which a trajectory is truncated; rows then
            have a ``step_count``. None, 0 or -1 for no limit.
        init_random_frames: the number of first rows with random actions, rounded up to whole
            batches. The policy's other entries are zero there. None or -1 for none.
        reset_at_each_iter: start new trajectories in every batch.
        postproc: a function of a batch that returns the batch to deliver.
        split_trajs: return trajectories side by side, padded: see ``split_trajectories``.
        exploration_type: how distributions of TensorDict modules are sampled; None for random.
        set_truncated: mark the last row of every lane as truncated, although it continues.
        replay_buffer: the buffer that batches are written to; the collector then yields None.
        pre_collect_hook: a function that is called before each batch.
        post_collect_hook: a function that is called with each batch before it is delivered.
        check_actions: True rejects invalid actions, such as NaN or a one-hot vector with two ones;
            ``"strict"`` also rejects actions out of bounds; False checks nothing.
    """

    frames_per_batch: int
    total_frames: int | None = -1
    device: OptionalDevice = None
    storing_device: OptionalDevice = None
    policy_device: OptionalDevice = None
    env_device: OptionalDevice = None
    max_frames_per_traj: int | None = None
    init_random_frames: int | None = None
    reset_at_each_iter: bool = False
    postproc: Callable[[Any], Any] | None = None
    split_trajs: bool | None = None
    exploration_type: InteractionType | str | None = None
    set_truncated: bool = False
    replay_buffer: Extendable | None = None
    pre_collect_hook: Callable[[], Any] | None = None
    post_collect_hook: Callable[[Any], Any] | None = None
    check_actions: CheckActions = True

    def __post_init__(self) -> None:
        _, total = self.frames
        if total != -1 and total < 1:
            raise wrong_value("total_frames", "1 or more, or -1 for no limit", total)
        for name in ("max_frames_per_traj", "init_random_frames"):
            if (number := getattr(self, name)) is not None:
                whole_number(name, number, -1)
        validate_mode(self.check_actions)
        for name in ("postproc", *HOOKS):
            if (function := getattr(self, name)) is not None and not callable(function):
                raise UsageError(
                    f"{name} must be a function, not {function!r}.", argument=name, found=function
                )
        if self.replay_buffer is not None and not hasattr(self.replay_buffer, "extend"):
            raise wrong_value(
                "replay_buffer", "an object with the method extend(rows)", self.replay_buffer
            )
        _ = self.interaction_type  # raises an error for an unknown name

    @property
    def frames(self) -> tuple[int, int]:
        """The number of rows in a batch, and in total."""
        frames = whole_number("frames_per_batch", self.frames_per_batch, 1)
        total = -1 if self.total_frames is None else self.total_frames
        return frames, whole_number("total_frames", total)

    @property
    def max_frames(self) -> int | None:
        """The number of rows after which a trajectory is truncated; None for no limit."""
        limit = self.max_frames_per_traj
        return limit if limit is not None and limit > 0 else None

    @property
    def batch_device(self) -> torch.device | None:
        """The device of batches; None for that of the environment."""
        return _first_device(self.storing_device, self.device)

    @property
    def policy_call_device(self) -> torch.device | None:
        """The device on which the policy is called; None for that of the environment."""
        return _first_device(self.policy_device, self.device)

    @property
    def environment_device(self) -> torch.device | None:
        """The device that a TorchRL environment is moved to; None to leave it."""
        return _first_device(self.env_device, self.device)

    @property
    def interaction_type(self) -> InteractionType:
        """How distributions are sampled."""
        return _interaction_type(self.exploration_type)


@dataclass(frozen=True)
class SingleProcessOptions(CollectorOptions):
    """The arguments of a collector in this process.

    Args:
        create_env_fn: an environment, or a function that returns one. It is closed with the
            collector.
        create_env_kwargs: the keyword arguments of the function.
    """

    create_env_fn: Environment | Callable[..., Any]
    policy: Any = None
    _: KW_ONLY
    create_env_kwargs: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class MultiProcessOptions(CollectorOptions):
    """The arguments of a collector in several processes.

    Args:
        create_env_fn: for each process, a function that returns an environment, or an environment
            that was not reset yet.
        policy: a function of a TensorDict that writes an action, or a module; None for random
            actions. Each process has a copy.
        frames_per_batch: the number of rows in a batch: of all processes together in a
            ``MultiSyncCollector``, of one process in a ``MultiAsyncCollector``.
        create_env_kwargs: the keyword arguments of the functions, or one mapping per process.
        num_workers: the number of processes, if ``create_env_fn`` is a single function.
        update_at_each_batch: call ``update_policy_weights_()`` before each batch.
    """

    create_env_fn: Sequence[Any]
    policy: Any = None
    _: KW_ONLY
    create_env_kwargs: EnvArguments = None
    num_workers: int | None = None
    update_at_each_batch: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._repeat()
        functions, kwargs = self.create_env_fn, self.create_env_kwargs
        if not isinstance(functions, Sequence) or not functions:
            raise wrong_value(
                "create_env_fn",
                "a list with a function or an environment per process, such as [make_env] * 4",
                functions,
            )
        for number, function in enumerate(functions):
            is_known = callable(function) or isinstance(function, Environment)
            if not is_known and not is_environment(function):
                raise UsageError(
                    f"create_env_fn[{number}] must be an environment, such as "
                    f"ParallelEnv(2, make_env), or a function that returns one, not {function!r}.",
                    argument="create_env_fn",
                    found=function,
                )
        if isinstance(kwargs, Sequence) and len(kwargs) != len(functions):
            raise wrong_value(
                "create_env_kwargs",
                f"one mapping for all {len(functions)} processes, or one for each",
                len(kwargs),
            )

    def _repeat(self) -> None:
        """Replace a single function by a list with one function per process."""
        if self.num_workers is None:
            return
        count, functions = whole_number("num_workers", self.num_workers, 1), self.create_env_fn
        if not isinstance(functions, Sequence):
            object.__setattr__(self, "create_env_fn", [functions] * count)
        elif len(functions) != count:
            raise wrong_value(
                "num_workers",
                f"{len(functions)}, the number of functions of create_env_fn",
                count,
                "Leave out num_workers.",
            )


@dataclass(frozen=True, kw_only=True)
class MultiSyncOptions(MultiProcessOptions):
    """The arguments of a collector whose batches combine all of its processes.

    Args:
        cat_results: ``"stack"`` or None to stack the batches of the processes along a new first
            dimension, or the dimension along which to concatenate them. Along time, trajectories
            of different processes follow one another.
    """

    cat_results: str | int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cat_results not in (None, "stack") and type(self.cat_results) is not int:
            raise wrong_value("cat_results", "'stack' or a dimension such as 0", self.cat_results)


def split_frames(name: str, frames: int, count: int, parts: str) -> int:
    """Return the frames of each of several equal parts, rounded up with a warning."""
    share = -(-frames // count)
    if share * count != frames:
        warn_rounded_up(name, frames, share * count, f"each of {count} {parts} collects the same")
    return share


def warn_rounded_up(name: str, frames: int, collected: int, reason: str) -> None:
    """Warn that more frames are collected than an argument requests."""
    warnings.warn(
        f"{name}={frames:,} is rounded up to {collected:,} frames: {reason}.", stacklevel=2
    )


def _first_device(*devices: OptionalDevice) -> torch.device | None:
    first = next((device for device in devices if device is not None), None)
    return None if first is None else usable_device(first)


def _interaction_type(exploration_type: InteractionType | str | None) -> InteractionType:
    if exploration_type is None:
        return InteractionType.RANDOM
    names = {each.name: each for each in InteractionType}
    interaction = names.get(getattr(exploration_type, "name", str(exploration_type)).upper())
    if interaction is None:
        raise wrong_value("exploration_type", [*names], exploration_type)
    return interaction
