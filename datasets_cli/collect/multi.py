"""Collectors in several processes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from tensordict import TensorDict
from tensordict.nn import InteractionType

from datasets_cli.collect.data_collector import (
    COLLECTOR,
    DataCollector,
    device_of,
    interaction_of,
)
from datasets_cli.collect.delivery import Delivery, Extendable
from datasets_cli.collect.processes import Processes
from datasets_cli.collect.source import SourceOptions, State, Weights, weights_of
from datasets_cli.collect.worker import Job, job_of
from datasets_cli.errors import UsageError
from datasets_cli.replay.torchrl_words import takes


@takes(**COLLECTOR)
class MultiCollector(DataCollector):
    """Collects rows in several processes; ``MultiSyncCollector`` has the arguments."""

    def __init__(
        self,
        create_env_fn: Sequence[Any],
        policy: Any = None,
        *,
        frames_per_batch: int,
        total_frames: int = -1,
        device: str | torch.device | None = None,
        storing_device: str | torch.device | None = None,
        policy_device: str | torch.device | None = None,
        create_env_kwargs: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        max_frames_per_traj: int | None = None,
        init_random_frames: int | None = None,
        reset_at_each_iter: bool = False,
        postproc: Callable[[Any], Any] | None = None,
        split_trajs: bool | None = None,
        exploration_type: InteractionType | str | None = None,
        set_truncated: bool = False,
        replay_buffer: Extendable | None = None,
        update_at_each_batch: bool = False,
        cat_results: str | int | None = None,
    ) -> None:
        super().__init__(
            Delivery(
                frames_per_batch,
                total_frames,
                init_random_frames,
                device_of(storing_device, device),
                split_trajs,
                postproc,
                replay_buffer,
            )
        )
        self._cat_results = cat_results
        functions = _functions(create_env_fn)
        self._policy = policy
        self._update_at_each_batch = update_at_each_batch
        options = SourceOptions(
            self._frames_of_one(len(functions)),
            max_frames_per_traj,
            reset_at_each_iter,
            set_truncated,
            interaction_of(exploration_type),
            device_of(policy_device, device),
        )
        self._processes = Processes(_jobs(functions, create_env_kwargs, policy, options))
        if self._delivery.storing_device is None:
            self._delivery.storing_device = self._processes.devices[0]

    @abstractmethod
    def _frames_of_one(self, num_workers: int) -> int:
        """Return how many rows a batch of one process has."""

    def _set_seed(self, seed: int, static_seed: bool) -> int:
        self._drop()
        for worker in range(len(self._processes)):
            seed = self._processes.call(worker, "seed", seed, static_seed)
        return seed

    def reset(self) -> None:
        """Begin new trajectories in every environment."""
        self._check_open()
        self._drop()
        self._call_all("reset")

    def update_policy_weights_(self, policy_or_weights: Weights = None) -> None:
        """Give the policy other weights, in every process from its next batch on.

        Args:
            policy_or_weights: a module, its ``state_dict`` or a TensorDict of it; where None, the
                policy that the collector was given, as it is now.

        Raises:
            UsageError: the policy has no weights.
        """
        self._check_open()
        if not isinstance(self._policy, torch.nn.Module):
            raise UsageError(
                "update_policy_weights_ is for a policy that is a torch module; this one is "
                f"{type(self._policy).__name__}."
            )
        given = self._policy if policy_or_weights is None else policy_or_weights
        self._processes.set_weights(weights_of(given))

    def _ask(self, worker: int, begun: int) -> None:
        """Begin a batch in a process, after some frames."""
        self._processes.ask(worker, random=self._delivery.is_random(begun))

    def _drop(self) -> None:
        """Drop the batches that are being collected."""
        for worker in range(len(self._processes)):
            if self._processes.asked(worker):
                self._processes.batch(worker)

    def _call_all(self, name: str) -> list[Any]:
        return [self._processes.call(worker, name) for worker in range(len(self._processes))]

    def _states(self) -> list[State]:
        return self._call_all("state")

    def _load_states(self, states: list[State]) -> None:
        self._drop()
        for worker, state in enumerate(states):
            self._processes.call(worker, "load", state)

    def _close(self) -> None:
        self._processes.close()

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({len(self._processes)} processes, "
            f"frames_per_batch={self.frames_per_batch}, total_frames={self.total_frames})"
        )


class MultiSyncCollector(MultiCollector):
    """Collects rows in several processes; a batch has equally many rows of each.

    Rows of one environment stay in one lane of the batch, and trajectories continue in the next
    batch, so that a buffer of as many dimensions holds them whole: with ``cat_results="stack"``,
    ``LazyTensorStorage(size, ndim=2)``, or ``ndim=3`` where environments are side by side.

    Processes are spawned. The random numbers of torch, numpy and Python in process w begin with a
    seed that torch's global ones give, plus w.

    Args:
        create_env_fn: for each process, an environment that was not begun, or a function that
            returns one.
        policy: a function of a TensorDict that writes an action, or a module; random actions where
            None. Each process has a copy.
        frames_per_batch: rows of a batch, of all processes together.
        total_frames: after which it ends, a multiple of ``frames_per_batch``; -1: never.
        device: of policy and batches where their own is not given.
        storing_device: where batches go; where the environments' tensors are where None.
        policy_device: where the policy is called; a module on another is copied to it.
        create_env_kwargs: of the functions; or one mapping for each.
        max_frames_per_traj: after which a trajectory is cut, by a truncated row; None: never.
        init_random_frames: of the first rows, by random actions; whole batches of them. What the
            policy writes besides the action is zero there.
        reset_at_each_iter: begin every batch with new trajectories.
        postproc: a function of a batch that returns another.
        split_trajs: give trajectories side by side, padded: see ``split_trajectories``.
        exploration_type: how distributions of TensorDict modules are sampled; at random where None.
        set_truncated: mark the last row of every lane as truncated, though it continues.
        replay_buffer: batches are written to it, and None is given.
        update_at_each_batch: do ``update_policy_weights_()`` before each batch.
        cat_results: ``"stack"`` for a first dimension of processes, which None means too; or the
            dimension along which their batches are joined, where trajectories of two processes
            meet if it is that of time.

    Raises:
        UsageError: numbers do not fit together, or the policy does not give actions.
        RldsError: a process failed.
    """

    def _frames_of_one(self, num_workers: int) -> int:
        known = self._cat_results in (None, "stack") or type(self._cat_results) is int
        if not known:
            raise UsageError(
                f"cat_results is 'stack' or a dimension, such as 0, not {self._cat_results!r}."
            )
        if self.frames_per_batch % num_workers:
            raise UsageError(
                f"frames_per_batch is {self.frames_per_batch}, which cannot be divided among "
                f"{num_workers} processes: each collects equally many."
            )
        return self.frames_per_batch // num_workers

    def _collect(self) -> TensorDict:
        if self._update_at_each_batch:
            self.update_policy_weights_()
        workers = range(len(self._processes))
        for worker in workers:
            self._ask(worker, self._delivery.frames)
        parts = [self._processes.batch(worker) for worker in workers]
        if self._cat_results in (None, "stack"):
            return torch.stack(parts)
        dimension = self._cat_results
        if not -parts[0].ndim <= dimension < parts[0].ndim:
            raise UsageError(
                f"cat_results is {dimension}, and the batches of one process have "
                f"{parts[0].ndim} dimensions."
            )
        return torch.cat(parts, dimension)


MultiSyncDataCollector = MultiSyncCollector


class MultiAsyncCollector(MultiCollector):
    """Collects rows in several processes; a batch is of the one that is ready first.

    A process begins its next batch when the last one is taken, with the weights of that time. The
    batches that a collector gives are of one process after the other: a slice sampler with
    ``trajectory_key=("collector", "traj_ids")`` does not put rows of two together.

    Arguments are those of ``MultiSyncCollector``, but that ``frames_per_batch`` are of one process,
    and ``cat_results`` is refused.
    """

    def _frames_of_one(self, num_workers: int) -> int:
        if self._cat_results is not None:
            raise UsageError(
                "MultiAsyncCollector gives batches of one process each: there is nothing to join "
                f"by cat_results={self._cat_results!r}. MultiSyncCollector joins them."
            )
        return self.frames_per_batch

    def _collect(self) -> TensorDict:
        self._ask_idle(self._delivery.frames)
        batch = self._processes.first_batch()
        if self._update_at_each_batch:
            self.update_policy_weights_()
        self._ask_idle(self._delivery.frames + self.frames_per_batch)
        return batch

    def _ask_idle(self, taken: int) -> None:
        """Begin a batch in every process that has none to do, as long as more are due."""
        for worker in range(len(self._processes)):
            begun = taken + self._processes.num_asked * self.frames_per_batch
            if not self._processes.asked(worker) and self._delivery.is_due(begun):
                self._ask(worker, begun)


MultiaSyncDataCollector = MultiAsyncCollector


def _functions(create_env_fn: Any) -> list[Any]:
    if not isinstance(create_env_fn, Sequence) or not create_env_fn:
        raise UsageError(
            "A collector of several processes takes a list of environments or of functions that "
            f"make them, one of each process, such as [make_env] * 4, not {create_env_fn!r}."
        )
    return [*create_env_fn]


def _jobs(
    functions: Sequence[Any],
    arguments: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
    policy: Any,
    options: SourceOptions,
) -> list[Job]:
    count = len(functions)
    given = [*arguments] if isinstance(arguments, Sequence) else [arguments] * count
    if len(given) != count:
        raise UsageError(
            f"create_env_kwargs must be one mapping, or one for each of {count} processes, not "
            f"{len(given)}."
        )
    seed = int(torch.randint(2**62, ()))  # of torch's global random numbers
    return [
        job_of(
            functions[worker],
            given[worker],
            policy,
            replace(options, worker=worker, num_workers=count),
            seed + worker,
        )
        for worker in range(count)
    ]
