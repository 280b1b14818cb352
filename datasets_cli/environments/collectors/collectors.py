"""Collectors: in this process, in several that wait for each other, and in several that do not."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from threading import RLock, Thread
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

from datasets_cli.core.options import takes_fields
from datasets_cli.environments.collectors.options import (
    CollectorOptions,
    JoinedProcesses,
    OneProcess,
    SeveralProcesses,
    share_of,
    warn_of_more,
)
from datasets_cli.environments.collectors.processes import Processes
from datasets_cli.environments.collectors.source import (
    BatchSource,
    CollectorState,
    PolicyWeights,
    environment_of,
)
from datasets_cli.errors import UsageError
from datasets_cli.replay.trajectories.seams import (
    COLLECTOR_NUMBER,
    Numbering,
    skip_numbers_of,
)
from datasets_cli.replay.trajectories.split import split_trajectories
from datasets_cli.torchrl.keywords import accepts_keywords


class NoLength(UsageError, TypeError):
    """The length of a collector without an end; ``tqdm`` and ``list`` expect a ``TypeError``."""


class DataCollector(ABC):
    """Collects rows from environments, batch after batch.

    Attributes:
        policy: the policy that was given; None for random actions.
        policy_version: None: versions are not tracked.
        postproc: the function of each batch, which ``set_postproc`` sets.
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
            warn_of_more("total_frames", total, -(-total // frames) * frames, "batches are whole")
        self.init_random_frames = options.init_random_frames or 0
        self.is_closed = False
        # Batches are where the environments' tensors are, unless a device was given.
        self._device = options.batches_on or device
        self._frames = self._num_batches = 0
        self.policy: Any = getattr(options, "policy", None)
        self.postproc = options.postproc
        self._lock = RLock()  # the thread of `start` against the user's
        self._thread: Thread | None = None
        self._failure: Exception | None = None
        if (storage := getattr(options.replay_buffer, "storage", None)) is not None:
            skip_numbers_of(storage)

    def __len__(self) -> int:
        """Return the number of batches that ``total_frames`` are collected in."""
        if self.total_frames == -1:
            raise NoLength(
                "A collector with total_frames=-1 has no length. Give it total_frames, or count "
                "its batches."
            )
        return math.ceil(self.total_frames / self.frames_per_batch)

    def __bool__(self) -> bool:
        return True  # it is no container: one without a length is a collector, too

    def _is_due(self, begun: int) -> bool:
        """Return whether another batch is to be collected after some frames."""
        return self.total_frames == -1 or begun < self.total_frames

    def _is_random(self, begun: int) -> bool:
        """Return whether the batch after some frames is one of random actions."""
        first = self._options.init_random_frames
        return first is not None and begun < first

    def __iter__(self) -> Iterator[TensorDictBase | None]:
        """Yield batches until there were ``total_frames``; a second loop continues the first."""
        while self._is_due(self._frames):
            yield self.next()

    def next(self) -> TensorDictBase | None:
        """Return the next batch; None where it is written to a replay buffer.

        Raises:
            UsageError: the collector is shut down, or there were ``total_frames``.
        """
        with self._lock:
            self._check_open()
            if not self._is_due(self._frames):
                raise UsageError(f"The collector has given all of its {self._frames} frames.")
            if self._options.pre_collect_hook is not None:
                self._options.pre_collect_hook()
            batch = self._collect()
            batch[COLLECTOR_NUMBER] = self._source.numbering.of(batch[COLLECTOR_NUMBER])
            return self._delivered(batch)

    def start(self) -> None:
        """Collect into the replay buffer in a thread, until the last frame or ``shutdown``.

        Raises:
            UsageError: there is no replay buffer, or the thread was started already.
        """
        self._check_open()
        if self._options.replay_buffer is None or self._thread is not None:
            found = "no replay_buffer" if self._thread is None else "a thread that was started"
            raise UsageError(
                f"start() of {type(self).__name__} collects into a replay buffer, once; found "
                f"{found}. Make the collector with replay_buffer=buffer, and start it once."
            )
        self._thread = Thread(target=self._fill, name="rlds-collector", daemon=True)
        self._thread.start()

    def _fill(self) -> None:
        """Collect until the end; ``shutdown`` raises the error that ended it."""
        try:
            while not self.is_closed and self._is_due(self._frames):
                self.next()
                time.sleep(0.001)  # a thread that waits for the lock gets it
        except Exception as error:
            self._failure = None if self.is_closed else error

    def set_postproc(self, postproc: Callable[[Any], Any]) -> None:
        """Set the function of a batch that returns the batch that is given.

        Raises:
            UsageError: the collector has one.
        """
        if self.postproc is not None:
            raise UsageError(f"{type(self).__name__} has a postproc: {self.postproc!r}.")
        self.postproc = postproc

    def _delivered(self, batch: TensorDictBase) -> TensorDictBase | None:
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
        """Reset every environment with a seed; return the first seed that was not used.

        Args:
            seed: of the first environment; the others have the numbers after it.
            static_seed: give every environment the same seed, and return it.
        """
        with self._lock:
            self._check_open()
            return self._source.set_seed(seed, static_seed)

    def reset(self) -> None:
        """Begin new trajectories in every environment."""
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
        """Give the policy other weights, in every process from its next batch on.

        Args:
            policy_or_weights: a module, its ``state_dict`` or a TensorDict of it; where None, the
                policy that the collector was given, as it is now, of which it has a copy where it
                is on another device or in another process.
            weights: the same.
            policy: the same.
            others: ``worker_ids`` and ``weights_dict``, which are None, and ``model_id``, which may
                be ``"policy"``: every process has the same policy.

        Raises:
            UsageError: the policy has no weights, or others; or there are several of them.
        """
        self._check_open()
        given = [each for each in (policy_or_weights, weights, policy) if each is not None]
        asked = [name for name, value in others.items() if value is not None and value != "policy"]
        if len(given) > 1 or asked:
            found = ", ".join([f"{len(given)} of them", *asked])
            raise UsageError(
                "update_policy_weights_ takes one module, state_dict or TensorDict, for every "
                f"process. Found: {found}."
            )
        with self._lock:
            self._source.update_weights(given[0] if given else None)

    def state_dict(self) -> CollectorState:
        """Return the counts of frames and trajectories, and the policy's state if it has one.

        Environments are not in it: after ``load_state_dict`` new trajectories begin.
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
            UsageError: it is not the state of such a collector.
        """
        self._check_open()
        states, count = state_dict.get("sources"), len(self._source.states())
        if not isinstance(states, list) or len(states) != count:
            raise UsageError(
                f"{type(self).__name__} has {count} sources of batches. Expected: the state of one "
                "that has as many."
            )
        with self._lock:
            self._source.load_states(states)
            self._source.numbering = Numbering(state_dict["trajectories"])
            self._frames = state_dict["frames"]
            self._num_batches = state_dict["iter"]

    def shutdown(self) -> None:
        """Close the environments, and end the processes that they are in.

        Raises:
            Exception: what ended the thread of ``start``.
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
            raise UsageError(f"{type(self).__name__} is shut down. Make another one.")

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self._source}, frames_per_batch={self.frames_per_batch}, "
            f"total_frames={self.total_frames})"
        )


@accepts_keywords
class Collector(DataCollector):
    """Collects rows from an environment in this process, batch after batch.

        collector = Collector(GymEnv("CartPole-v1"), frames_per_batch=200, total_frames=1000)
        for batch in collector:
            replay_buffer.extend(batch)

    Trajectories begin again when they end, and not between two batches. The environment is reset,
    and the policy called once, when the collector is made.

    Raises:
        UsageError: numbers do not fit together, or the policy does not give actions.
    """

    _source: BatchSource

    @takes_fields(OneProcess)
    def __init__(self, options: OneProcess) -> None:
        environment = environment_of(options.create_env_fn, options.create_env_kwargs, options)
        self.env = getattr(environment, "given", environment)
        source = BatchSource(environment, options.policy, options, options.frames[0])
        super().__init__(options, source, environment.device)

    def _collect(self) -> TensorDict:
        return self._source.collect(random=self._is_random(self._frames))


@accepts_keywords
class MultiSyncCollector(DataCollector):
    """Collects rows in several processes; a batch has equally many rows of each.

    Rows of one environment stay in one lane of the batch, and trajectories continue in the next
    batch, so that a buffer of as many dimensions holds them whole: with ``cat_results="stack"``,
    ``LazyTensorStorage(size, ndim=2)``, or ``ndim=3`` where environments are side by side.

    Processes are spawned. The random numbers of torch, numpy and Python in process w begin with a
    seed that torch's global ones give, plus w.

    Raises:
        UsageError: numbers do not fit together, or the policy does not give actions.
        RldsError: a process failed.
    """

    _source: Processes

    @takes_fields(JoinedProcesses)
    def __init__(self, options: JoinedProcesses) -> None:
        count = len(options.create_env_fn)
        frames = share_of("frames_per_batch", options.frames[0], count, "processes")
        self._joined = options.cat_results
        self._update_at_each_batch = options.update_at_each_batch
        source = Processes(options, frames)
        super().__init__(options, source, source.devices[0])

    def _collect(self) -> TensorDict:
        if self._update_at_each_batch:
            self.update_policy_weights_()
        is_random = self._is_random(self._frames)
        workers = range(len(self._source))
        for worker in workers:
            self._source.ask(worker, random=is_random)
        parts = [self._source.batch(worker) for worker in workers]
        if not isinstance(self._joined, int):
            return torch.stack(parts)
        if not -parts[0].ndim <= self._joined < parts[0].ndim:
            raise UsageError(
                f"cat_results is {self._joined}, and the batches of one process have "
                f"{parts[0].ndim} dimensions."
            )
        return torch.cat(parts, self._joined)


@accepts_keywords
class MultiAsyncCollector(DataCollector):
    """Collects rows in several processes; a batch is of the one that is ready first.

    A process begins its next batch when one is taken, with the weights of that time. In a buffer
    the batches of several processes follow each other: a slice sampler with
    ``trajectory_key=("collector", "traj_ids")`` puts no rows of two trajectories into a slice, and
    cuts those that continue in a later batch.

    Processes are spawned. The random numbers of torch, numpy and Python in process w begin with a
    seed that torch's global ones give, plus w.

    Raises:
        UsageError: numbers do not fit together, or the policy does not give actions.
        RldsError: a process failed.
    """

    _source: Processes

    @takes_fields(SeveralProcesses)
    def __init__(self, options: SeveralProcesses) -> None:
        self._update_at_each_batch = options.update_at_each_batch
        source = Processes(options, options.frames[0])
        super().__init__(options, source, source.devices[0])

    def _collect(self) -> TensorDict:
        self._ask_idle(self._frames)
        batch = self._source.first_batch()
        if self._update_at_each_batch:
            self.update_policy_weights_()
        self._ask_idle(self._frames + self.frames_per_batch)
        return batch

    def _ask_idle(self, taken: int) -> None:
        """Begin a batch in every process that has none to do, as long as more are due."""
        for worker in range(len(self._source)):
            begun = taken + self._source.num_asked * self.frames_per_batch
            if not self._source.asked(worker) and self._is_due(begun):
                self._source.ask(worker, random=self._is_random(begun))
