"""Collectors in this process, in several processes of this machine, and in those of a cluster."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from threading import RLock, Thread
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

from datasets_cli.core.options import takes_fields
from datasets_cli.environments.collectors.options import (
    CollectorOptions,
    MultiProcessOptions,
    MultiSyncOptions,
    SingleProcessOptions,
    split_frames,
    warn_rounded_up,
)
from datasets_cli.environments.collectors.processes import Processes
from datasets_cli.environments.collectors.source import (
    BatchSource,
    CollectorState,
    PolicyWeights,
    make_environment,
)
from datasets_cli.errors import OutOfRange, Unsupported, UsageError, WrongState, wrong_value
from datasets_cli.parallel.engine import Engine, Workers
from datasets_cli.replay.arguments import whole_number
from datasets_cli.replay.trajectories.seams import (
    COLLECTOR_NUMBER,
    Numbering,
    skip_numbers_of,
)
from datasets_cli.replay.trajectories.split import split_trajectories
from datasets_cli.torchrl.keywords import accepts_keywords


class UnknownLength(UsageError, TypeError):
    """The error of ``len`` without ``total_frames``; also the TypeError that ``tqdm`` expects."""


class DataCollector(ABC):
    """The base of all collectors: an iterator of batches of rows from environments.

    Attributes:
        policy: the policy; None for random actions.
        policy_version: None; versions are not tracked.
        postproc: the function that is applied to each batch; see ``set_postproc``.
    """

    policy_version: None = None

    def __init__(
        self,
        options: CollectorOptions,
        source: BatchSource | Processes,
        device: torch.device | None,
    ) -> None:
        self._options, self._source = options, source
        self.frames_per_batch, self.total_frames = frames, total = options.frames
        if total != -1 and total % frames:
            rounded = -(-total // frames) * frames
            warn_rounded_up("total_frames", total, rounded, "batches are whole")
        self.init_random_frames = options.init_random_frames or 0
        self.is_closed = False
        # By default, batches stay on the device of the environments.
        self._device = options.batch_device or device
        self._frames = self._num_batches = 0
        self.policy: Any = getattr(options, "policy", None)
        self.postproc = options.postproc
        self._lock = RLock()  # between the thread of `start` and the user's
        self._thread: Thread | None = None
        self._failure: Exception | None = None
        if (storage := getattr(options.replay_buffer, "storage", None)) is not None:
            skip_numbers_of(storage)

    def __len__(self) -> int:
        """Return the number of batches."""
        if self.total_frames == -1:
            raise UnknownLength(
                "A collector with total_frames=-1 has no length.",
                argument="total_frames",
                found=-1,
                advice="Set total_frames, or count the batches.",
            )
        return math.ceil(self.total_frames / self.frames_per_batch)

    def __bool__(self) -> bool:
        return True  # also without a length

    def _is_due(self, num_frames: int) -> bool:
        """Return whether another batch follows the first ``num_frames`` frames."""
        return self.total_frames == -1 or num_frames < self.total_frames

    def _is_random(self, num_frames: int) -> bool:
        """Return whether the batch after ``num_frames`` frames has random actions."""
        num_random = self._options.init_random_frames
        return num_random is not None and num_frames < num_random

    def __iter__(self) -> Iterator[TensorDictBase | None]:
        """Yield batches up to ``total_frames`` frames; a second loop continues the first."""
        while self._is_due(self._frames):
            yield self.next()

    def next(self) -> TensorDictBase | None:
        """Return the next batch, or None if it is written to a replay buffer.

        Raises:
            UsageError: the collector is shut down, or has collected ``total_frames``.
        """
        with self._lock:
            self._check_open()
            if not self._is_due(self._frames):
                raise UsageError(
                    f"The collector has collected all of its {self._frames} frames.",
                    argument="total_frames",
                    expected=self.total_frames,
                    found=self._frames,
                )
            if self._options.pre_collect_hook is not None:
                self._options.pre_collect_hook()
            batch = self._collect()
            batch[COLLECTOR_NUMBER] = self._source.numbering.of(batch[COLLECTOR_NUMBER])
            return self._deliver(batch)

    def start(self) -> None:
        """Collect into the replay buffer in a thread, until ``total_frames`` or ``shutdown``.

        Raises:
            UsageError: the collector has no replay buffer, or was started before.
        """
        self._check_open()
        if self._options.replay_buffer is None:
            raise UsageError(
                f"start() of {type(self).__name__} requires a replay buffer.",
                argument="replay_buffer",
                advice="Pass replay_buffer=buffer to the collector.",
            )
        if self._thread is not None:
            raise UsageError(f"{type(self).__name__} was started before; it can only start once.")
        self._thread = Thread(target=self._collect_in_thread, name="rlds-collector", daemon=True)
        self._thread.start()

    def _collect_in_thread(self) -> None:
        """Collect until the end; ``shutdown`` raises an error of this thread."""
        try:
            while not self.is_closed and self._is_due(self._frames):
                self.next()
                time.sleep(0.001)  # lets a waiting thread take the lock
        except Exception as error:
            self._failure = None if self.is_closed else error

    def set_postproc(self, postproc: Callable[[Any], Any]) -> None:
        """Set the function that is applied to each batch; its result is delivered instead.

        Raises:
            UsageError: the collector has a function already.
        """
        if self.postproc is not None:
            raise UsageError(
                f"{type(self).__name__} has a postproc already: {self.postproc!r}.",
                argument="postproc",
                found=self.postproc,
            )
        self.postproc = postproc

    def _deliver(self, batch: TensorDictBase) -> TensorDictBase | None:
        self._frames += batch.numel()
        self._num_batches += 1
        if self._device is not None:
            batch = batch.to(self._device)
        if self._options.split_trajs:
            batch = split_trajectories(batch, prefix="collector")
        if self.postproc is not None:
            batch = self.postproc(batch)
        if self._options.post_collect_hook is not None:
            self._options.post_collect_hook(batch)
        if self._options.replay_buffer is None:
            return batch
        self._write(batch, self._options.replay_buffer)
        return None

    def _write(self, batch: TensorDictBase, buffer: Any) -> None:
        buffer.extend(batch)

    @abstractmethod
    def _collect(self) -> TensorDictBase:
        """Return the rows of the next batch."""

    def set_seed(self, seed: int, static_seed: bool = False) -> int:
        """Reset every environment with a seed, and return the next unused seed.

        Args:
            seed: the seed of the first environment; environment i has ``seed + i``.
            static_seed: use the same seed for every environment, and return it.
        """
        with self._lock:
            self._check_open()
            return self._source.set_seed(seed, static_seed)

    def reset(self) -> None:
        """Start new trajectories in every environment."""
        with self._lock:
            self._check_open()
            self._source.reset()

    def update_policy_weights_(
        self,
        policy_or_weights: PolicyWeights = None,
        *,
        weights: PolicyWeights = None,
        policy: PolicyWeights = None,
        **others: Any,
    ) -> None:
        """Replace the weights of the policy in every process, starting with its next batch.

        Args:
            policy_or_weights: a module, its ``state_dict`` or a TensorDict of it. None copies the
                current weights of the collector's policy to its copies in other processes or on
                another device.
            weights: an alias of ``policy_or_weights``.
            policy: an alias of ``policy_or_weights``.
            others: ``worker_ids`` and ``weights_dict`` must be None, and ``model_id`` None or
                ``"policy"``: every process has the same policy.

        Raises:
            UsageError: the policy is not a module, or several arguments have weights.
            WrongState: the weights do not match the policy's.
            Unsupported: another keyword has a value.
        """
        self._check_open()
        for name, value in others.items():
            if value is not None and value != "policy":
                raise Unsupported(
                    f"update_policy_weights_ does not support {name}={value!r}: every process has "
                    "the same policy.",
                    argument=name,
                    found=value,
                    advice=f"Leave out {name}.",
                )
        values = [each for each in (policy_or_weights, weights, policy) if each is not None]
        if len(values) > 1:
            raise wrong_value("weights", "one module, state_dict or TensorDict", len(values))
        with self._lock:
            self._source.update_weights(values[0] if values else None)

    def state_dict(self) -> CollectorState:
        """Return the counts of frames and trajectories, and the weights of a policy module.

        The state of the environments is not included: ``load_state_dict`` starts new trajectories.
        """
        with self._lock:
            self._check_open()
            states = self._source.states()
            return {
                "frames": self._frames,
                "iter": self._num_batches,
                "trajectories": self._source.numbering.stop,
                "sources": states,
            }

    def load_state_dict(self, state_dict: CollectorState) -> None:
        """Continue the counts of a state, with new trajectories.

        Raises:
            WrongState: the state is from a collector with another number of processes.
        """
        self._check_open()
        states, count = state_dict.get("sources"), len(self._source.states())
        if not isinstance(states, list) or len(states) != count:
            found = len(states) if isinstance(states, list) else 0
            raise WrongState(
                f"The state has {found} sources of batches; {type(self).__name__} has {count}.",
                argument="state_dict",
                expected=count,
                found=found,
            )
        with self._lock:
            self._source.load_states(states)
            self._source.numbering = Numbering(state_dict["trajectories"])
            self._frames = state_dict["frames"]
            self._num_batches = state_dict["iter"]

    def shutdown(self) -> None:
        """Close the environments and their processes.

        Raises:
            Exception: the error that ended the thread of ``start``.
        """
        if self.is_closed:
            return
        with self._lock:
            self.is_closed = True
            self._source.close()
        if self._thread is not None:
            self._thread.join()
        if self._failure is not None:
            raise self._failure

    async_shutdown = shutdown

    def _check_open(self) -> None:
        if self.is_closed:
            raise UsageError(f"{type(self).__name__} is shut down.", advice="Create a new one.")

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self._source}, frames_per_batch={self.frames_per_batch}, "
            f"total_frames={self.total_frames})"
        )


@accepts_keywords
class Collector(DataCollector):
    """Collects batches of rows from an environment in this process.

        collector = Collector(GymEnv("CartPole-v1"), frames_per_batch=200, total_frames=1000)
        for batch in collector:
            replay_buffer.extend(batch)

    An environment is reset when its trajectory ends, and trajectories continue across batches. The
    constructor resets the environment and calls the policy once.

    Raises:
        UsageError: an argument is invalid, or the policy does not return actions.
    """

    _source: BatchSource

    @takes_fields(SingleProcessOptions)
    def __init__(self, options: SingleProcessOptions) -> None:
        environment = make_environment(options.create_env_fn, options.create_env_kwargs, options)
        self.env = getattr(environment, "wrapped", environment)
        source = BatchSource(environment, options.policy, options, options.frames[0])
        super().__init__(options, source, environment.device)

    def _collect(self) -> TensorDict:
        return self._source.collect(random=self._is_random(self._frames))


@accepts_keywords
class MultiSyncCollector(DataCollector):
    """Collects in several processes; each batch has the same number of rows from every process.

    Each environment has its own lane of the batch, and its trajectories continue in the next batch.
    A buffer with the same dimensions keeps them whole: ``LazyTensorStorage(size, ndim=2)``, or
    ``ndim=3`` if each process has several environments.

    Processes are spawned. In process w, the generators of torch, numpy and Python have the seed
    *base* + w, where torch's global generator draws *base*.

    Raises:
        UsageError: an argument is invalid, or the policy does not return actions.
        RldsError: a process failed.
    """

    _source: Processes

    @takes_fields(MultiSyncOptions)
    def __init__(self, options: MultiSyncOptions) -> None:
        count = len(options.create_env_fn)
        frames = split_frames("frames_per_batch", options.frames[0], count, "processes")
        self._cat_results = options.cat_results
        self._update_at_each_batch = options.update_at_each_batch
        source = Processes(options, frames)
        super().__init__(options, source, source.devices[0])

    def _collect(self) -> TensorDict:
        if self._update_at_each_batch:
            self.update_policy_weights_()
        is_random = self._is_random(self._frames)
        workers = range(len(self._source))
        for worker in workers:
            self._source.request(worker, random=is_random)
        parts = [self._source.batch(worker) for worker in workers]
        if not isinstance(self._cat_results, int):
            return torch.stack(parts)
        if not -parts[0].ndim <= self._cat_results < parts[0].ndim:
            raise wrong_value(
                "cat_results",
                f"a dimension of batches with {parts[0].ndim}",
                self._cat_results,
                kind=OutOfRange,
            )
        return torch.cat(parts, self._cat_results)


@accepts_keywords
class MultiAsyncCollector(DataCollector):
    """Collects in several processes; each batch is from the process that finishes first.

    A process starts its next batch when its last one is returned, with the current weights. A
    buffer holds the batches of several processes one after another: a slice sampler with
    ``trajectory_key=("collector", "traj_ids")`` never mixes two trajectories in a slice, but cuts a
    trajectory where a batch of another process follows.

    Processes are spawned. In process w, the generators of torch, numpy and Python have the seed
    *base* + w, where torch's global generator draws *base*.

    Raises:
        UsageError: an argument is invalid, or the policy does not return actions.
        RldsError: a process failed.
    """

    _source: Processes

    @takes_fields(MultiProcessOptions)
    def __init__(self, options: MultiProcessOptions) -> None:
        self._update_at_each_batch = options.update_at_each_batch
        source = Processes(options, options.frames[0])
        super().__init__(options, source, source.devices[0])

    def _collect(self) -> TensorDict:
        self._start_idle(self._frames)
        batch = self._source.first_batch()
        if self._update_at_each_batch:
            self.update_policy_weights_()
        self._start_idle(self._frames + self.frames_per_batch)
        return batch

    def _start_idle(self, num_returned: int) -> None:
        """Start a batch in every idle process, up to ``total_frames`` frames."""
        for worker in range(len(self._source)):
            num_frames = num_returned + self._source.num_requested * self.frames_per_batch
            if not self._source.is_busy(worker) and self._is_due(num_frames):
                self._source.request(worker, random=self._is_random(num_frames))


@dataclass(frozen=True, kw_only=True)
class DistributedOptions(MultiSyncOptions):
    """The arguments of a collector in processes of a cluster.

    Args:
        sync: return batches of all processes, as ``MultiSyncCollector``; False returns batches of
            the process that finishes first, as ``MultiAsyncCollector``.
        engine: ``"local"`` for processes of this machine, or ``"dask"`` or ``"ray"`` for workers
            of a cluster.
        address: the address of the cluster, such as ``tcp://host:8786``; None for Ray's default.
        update_interval: the number of batches between calls of ``update_policy_weights_()``, if
            the policy is a module; None for no calls.
        collector_kwargs: further arguments of this collector, as a mapping.
    """

    sync: bool = False
    engine: Engine = "local"
    address: str | None = None
    update_interval: int | None = None
    collector_kwargs: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.update_interval is not None:
            whole_number("update_interval", self.update_interval, 1)

    def pool(self) -> AbstractContextManager[Executor] | None:
        """Return the cluster, or None for processes of this machine."""
        workers = Workers(engine=self.engine, address=self.address)
        return None if self.engine == "local" else workers.pool()


@dataclass(frozen=True, kw_only=True)
class SyncDistributedOptions(DistributedOptions):
    """The arguments of a collector that waits for all processes of a cluster."""

    sync: bool = True
    update_interval: int | None = 1


@dataclass(frozen=True, kw_only=True)
class RayOptions(DistributedOptions):
    """The arguments of a collector whose processes are Ray actors.

    Args:
        ray_init_config: the arguments of ``ray.init``, which connects to a cluster or starts one
            if this process is not connected.
        remote_configs: the resources of each process, such as ``{"num_cpus": 1}``.
    """

    engine: Engine = "ray"
    ray_init_config: Mapping[str, Any] | None = None
    remote_configs: Mapping[str, Any] | None = None

    def pool(self) -> AbstractContextManager[Executor] | None:
        """Return the cluster, or None for processes of this machine."""
        other = super().pool()  # raises an error if the engine is not installed
        if self.engine != "ray":
            return other
        from datasets_cli.parallel.ray_cluster import ray_pool

        init = {"address": self.address, **(self.ray_init_config or {})}
        return ray_pool(self.address, init, **(self.remote_configs or {}))


@accepts_keywords
class DistributedCollector(MultiAsyncCollector, MultiSyncCollector):
    """Collects in processes of a cluster or of this machine.

    Rows and their order are the same as with ``MultiSyncCollector`` or ``MultiAsyncCollector`` and
    as many processes. Each process runs one actor.

    Raises:
        UsageError: an argument is invalid, or the policy does not return actions.
        RldsError: a process failed, or the cluster is lost or has no free worker.
    """

    _source: Processes

    @takes_fields(DistributedOptions)
    def __init__(self, options: DistributedOptions) -> None:
        self._start(options)

    def _start(self, options: DistributedOptions) -> None:
        if options.collector_kwargs:
            options = replace(options, **options.collector_kwargs, collector_kwargs=None)
        self._is_sync, self._cat_results = options.sync, options.cat_results
        self._update_at_each_batch = options.update_at_each_batch
        is_module = isinstance(options.policy, torch.nn.Module)
        self._interval = options.update_interval if is_module else None
        count = len(options.create_env_fn) if options.sync else 1
        frames = split_frames("frames_per_batch", options.frames[0], count, "processes")
        source = Processes(options, frames, options.pool())
        DataCollector.__init__(self, options, source, source.devices[0])

    def _collect(self) -> TensorDict:
        if self._interval is not None and self._num_batches % self._interval == 0:
            self.update_policy_weights_()
        kind = MultiSyncCollector if self._is_sync else MultiAsyncCollector
        return kind._collect(self)


@accepts_keywords
class DistributedSyncCollector(DistributedCollector):
    """A ``DistributedCollector`` that waits for all processes and updates weights every batch."""

    @takes_fields(SyncDistributedOptions)
    def __init__(self, options: SyncDistributedOptions) -> None:
        self._start(options)


@accepts_keywords
class RayCollector(DistributedCollector):
    """A ``DistributedCollector`` whose processes are Ray actors."""

    @takes_fields(RayOptions)
    def __init__(self, options: RayOptions) -> None:
        self._start(options)
