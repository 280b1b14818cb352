"""What collectors take, declared once: from it come their signatures and what help() says."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Protocol

import torch
from tensordict.nn import InteractionType

from datasets_cli.environments.actions import CheckActions, check_known
from datasets_cli.environments.batched_env import EnvArguments
from datasets_cli.environments.environment import Environment
from datasets_cli.environments.tensordict_environment import is_environment
from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import whole_number
from datasets_cli.schema.mapping import usable_device

GivenDevice = str | torch.device | None
HOOKS = ("pre_collect_hook", "post_collect_hook")
"""Functions that are called in the process of the collector."""


class Extendable(Protocol):
    """What batches can be written to: a replay buffer."""

    def extend(self, data: Any) -> Any:
        """Write rows."""


@dataclass(frozen=True, kw_only=True)
class CollectorOptions:
    """What every collector takes.

    Args:
        policy: a function of a TensorDict that writes an action, or a module; random actions where
            None.
        frames_per_batch: rows of a batch, of all lanes of the environment together.
        total_frames: after which it ends, with a whole batch; -1: never.
        device: of policy and batches where their own is not given.
        storing_device: where batches go; where the environment's tensors are where None.
        policy_device: where the policy is called; a module on another is copied to it.
        env_device: where TorchRL's environments are moved to; those of gymnasium are on the
            processor, and ``GymEnv(device=...)`` moves what they return.
        max_frames_per_traj: after which a trajectory is cut, by a truncated row; rows then have
            their ``step_count`` in it. None, 0 or -1: never.
        init_random_frames: of the first rows, by random actions; whole batches of them. What the
            policy writes besides the action is zero there. None or -1: none.
        reset_at_each_iter: begin every batch with new trajectories.
        postproc: a function of a batch that returns another.
        split_trajs: give trajectories side by side, padded: see ``split_trajectories``.
        exploration_type: how distributions of TensorDict modules are sampled; at random where None.
        set_truncated: mark the last row of every lane as truncated, though it continues.
        replay_buffer: batches are written to it, and None is given.
        pre_collect_hook: a function that is called before each batch.
        post_collect_hook: a function of each batch, which is called before it is given.
        check_actions: True refuses what is not an action, such as NaN or a one-hot vector with two
            ones, and says at the end how many were out of bounds; ``"strict"`` refuses these, too,
            and False nothing.
    """

    frames_per_batch: int
    total_frames: int | None = -1
    device: GivenDevice = None
    storing_device: GivenDevice = None
    policy_device: GivenDevice = None
    env_device: GivenDevice = None
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
            raise UsageError(f"total_frames must be at least 1, or -1 for no end, not {total}.")
        for name in ("max_frames_per_traj", "init_random_frames"):
            if (number := getattr(self, name)) is not None:
                whole_number(name, number, -1)
        check_known(self.check_actions)
        for name in ("postproc", *HOOKS):
            if (function := getattr(self, name)) is not None and not callable(function):
                raise UsageError(f"{name} must be a function, not {function!r}.")
        if self.replay_buffer is not None and not hasattr(self.replay_buffer, "extend"):
            raise UsageError(
                "replay_buffer must be a buffer, which extend(rows) fills, not "
                f"{self.replay_buffer!r}."
            )
        _ = self.interaction  # which refuses what there is not

    @property
    def frames(self) -> tuple[int, int]:
        """The rows of a batch, and those after which it ends."""
        frames = whole_number("frames_per_batch", self.frames_per_batch, 1)
        total = -1 if self.total_frames is None else self.total_frames
        return frames, whole_number("total_frames", total)

    @property
    def max_frames(self) -> int | None:
        """The rows after which a trajectory is cut; None for never."""
        limit = self.max_frames_per_traj
        return limit if limit is not None and limit > 0 else None

    @property
    def batches_on(self) -> torch.device | None:
        """The device of batches; None for that of the environment."""
        return _first_device(self.storing_device, self.device)

    @property
    def policy_on(self) -> torch.device | None:
        """The device that the policy is called on; None for that of the environment."""
        return _first_device(self.policy_device, self.device)

    @property
    def environment_on(self) -> torch.device | None:
        """The device that TorchRL's environments are moved to; None where they stay."""
        return _first_device(self.env_device, self.device)

    @property
    def interaction(self) -> InteractionType:
        """How distributions are sampled."""
        return _interaction_of(self.exploration_type)


@dataclass(frozen=True)
class OneProcess(CollectorOptions):
    """What a collector in this process takes.

    Args:
        create_env_fn: an environment, or a function that returns one; closed with the collector.
        create_env_kwargs: of the function that returns an environment.
    """

    create_env_fn: Environment | Callable[..., Any]
    policy: Any = None
    _: KW_ONLY
    create_env_kwargs: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class SeveralProcesses(CollectorOptions):
    """What a collector in several processes takes.

    Args:
        create_env_fn: for each process, an environment that was not begun, or a function that
            returns one.
        policy: a function of a TensorDict that writes an action, or a module; random actions where
            None. Each process has a copy.
        frames_per_batch: rows of a batch: of all processes together in a ``MultiSyncCollector``,
            of one process in a ``MultiAsyncCollector``.
        create_env_kwargs: of the functions; or one mapping for each.
        num_workers: how many processes one function makes the environments of.
        update_at_each_batch: do ``update_policy_weights_()`` before each batch.
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
        functions, arguments = self.create_env_fn, self.create_env_kwargs
        if not isinstance(functions, Sequence) or not functions:
            raise UsageError(
                "A collector of several processes takes a list of environments or of functions "
                f"that make them, one of each process, such as [make_env] * 4, not {functions!r}."
            )
        for number, function in enumerate(functions):
            is_known = callable(function) or isinstance(function, Environment)
            if not is_known and not is_environment(function):
                raise UsageError(
                    f"Process {number} has {function!r}. Expected: an environment, such as "
                    "ParallelEnv(2, make_env), or a function that makes one."
                )
        if isinstance(arguments, Sequence) and len(arguments) != len(functions):
            raise UsageError(
                f"create_env_kwargs must be one mapping, or one for each of {len(functions)} "
                f"processes, not {len(arguments)}."
            )

    def _repeat(self) -> None:
        """Make one function a list of as many as there are to be processes."""
        if self.num_workers is None:
            return
        count, functions = whole_number("num_workers", self.num_workers, 1), self.create_env_fn
        if not isinstance(functions, Sequence):
            object.__setattr__(self, "create_env_fn", [functions] * count)
        elif len(functions) != count:
            raise UsageError(
                f"num_workers is {count}, and create_env_fn has {len(functions)} environments. "
                "Leave num_workers out."
            )


@dataclass(frozen=True, kw_only=True)
class JoinedProcesses(SeveralProcesses):
    """What a collector takes whose batches are of all of its processes.

    Args:
        cat_results: ``"stack"`` for a first dimension of processes, which None means too; or the
            dimension along which their batches are joined, where trajectories of two processes
            meet if it is that of time.
    """

    cat_results: str | int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cat_results not in (None, "stack") and type(self.cat_results) is not int:
            raise UsageError(
                f"cat_results is 'stack' or a dimension, such as 0, not {self.cat_results!r}."
            )


def share_of(name: str, frames: int, count: int, parts: str) -> int:
    """Return the frames of one of several parts; warn where there are more together."""
    share = -(-frames // count)
    if share * count != frames:
        warn_of_more(name, frames, share * count, f"each of {count} {parts} gives equally many")
    return share


def warn_of_more(name: str, frames: int, collected: int, reason: str) -> None:
    """Warn of more frames than were asked for."""
    warnings.warn(f"{name} is {frames:,}, and it gives {collected:,}: {reason}.", stacklevel=2)


def _first_device(*devices: GivenDevice) -> torch.device | None:
    given = next((device for device in devices if device is not None), None)
    return None if given is None else usable_device(given)


def _interaction_of(exploration_type: InteractionType | str | None) -> InteractionType:
    if exploration_type is None:
        return InteractionType.RANDOM
    names = {each.name: each for each in InteractionType}
    interaction = names.get(getattr(exploration_type, "name", str(exploration_type)).upper())
    if interaction is None:
        raise UsageError(
            f"exploration_type is one of {', '.join(map(repr, names))}, not {exploration_type!r}."
        )
    return interaction
