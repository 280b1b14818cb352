"""The worker processes of a collector, as its own process controls them."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import replace
from functools import partial
from multiprocessing import util
from multiprocessing.connection import wait
from typing import Any, cast

import torch
from tensordict import TensorDict

from datasets_cli.core.options import part_of
from datasets_cli.environments.actions import OutOfBounds
from datasets_cli.environments.collectors.options import (
    HOOKS,
    CollectorOptions,
    MultiProcessOptions,
)
from datasets_cli.environments.collectors.source import (
    CollectorState,
    PolicyWeights,
    checked_weights,
)
from datasets_cli.environments.collectors.worker import (
    CLOSE,
    CLOSE_SECONDS,
    DESCRIBE,
    Channel,
    Job,
    Packed,
    pack_weights,
    unpack,
)
from datasets_cli.errors import RldsError
from datasets_cli.parallel.cluster import Cluster
from datasets_cli.parallel.tasks import MAX_LOST_WORKERS
from datasets_cli.parallel.workers import pickle_by_value
from datasets_cli.replay.trajectories.seams import COLLECTOR_NUMBER, Numbering


class Processes:
    """The worker processes of a collector; each runs its commands in order."""

    # They end with `close`, with the last reference to this object, or with the program.
    # pool: the cluster that runs the processes as actors; None for processes of this machine.
    # restarts: replace a process that dies.

    def __init__(
        self,
        options: MultiProcessOptions,
        frames: int,
        pool: AbstractContextManager[Executor] | None = None,
        restarts: bool = False,
    ) -> None:
        self._jobs = _jobs(options, frames, elsewhere=pool is not None)
        self._restarts = restarts
        self._channels: list[Channel] = []
        stack = ExitStack()
        # Runs before the program joins its child processes, which would wait for these forever.
        self._close = util.Finalize(self, _close, (self._channels, stack), exitpriority=10)
        self._cluster = None if pool is None else cast(Cluster, stack.enter_context(pool))
        self._policy = options.policy
        self.numbering = Numbering()
        self.last_worker = 0
        """The process of the last returned batch."""
        self._batches: dict[int, TensorDict] = {}  # received, but not returned yet
        self._busy: list[int] = []  # processes with a requested batch, in the order of requests
        self._commands: dict[int, tuple[Any, ...]] = {}  # the last command of each process
        self._newest_weights: dict[int, bytes] = {}
        self._pending_weights: dict[int, Any] = {}  # not sent yet
        self._last_numbers: dict[int, TensorDict] = {}  # of trajectories, in each last batch
        self._losses: Counter[int] = Counter()  # deaths of each process since its last batch
        self._next_seed: int | None = None  # unused by any environment
        self.interrupted: list[int] = []
        """The numbers of trajectories that ended with their process."""
        for worker, job in enumerate(self._jobs):
            self._channels.append(Channel(job, self._cluster))
            self._send(worker, DESCRIBE)
        descriptions = [self._answer(worker, DESCRIBE) for worker in range(len(self))]
        self.devices = [device for device, _ in descriptions]
        """The device of each environment's tensors, or None."""
        self._num_lanes = [num_lanes for _, num_lanes in descriptions]

    def __len__(self) -> int:
        return len(self._jobs)

    def request(self, worker: int, *, random: bool) -> None:
        """Start a batch in an idle process, with the newest weights."""
        self._send(worker, "collect", random)
        self._busy.append(worker)

    def is_busy(self, worker: int) -> bool:
        """Return whether a requested batch of a process was not returned yet."""
        return worker in self._busy

    def batch(self, worker: int) -> TensorDict:
        """Wait for the requested batch of a process, and return it."""
        if worker not in self._batches:
            self._receive(worker)
        self._busy.remove(worker)
        self.last_worker = worker
        return self._batches.pop(worker)

    @property
    def num_requested(self) -> int:
        """The number of requested batches that were not returned yet."""
        return len(self._busy)

    def first_batch(self) -> TensorDict:
        """Wait for the first finished batch of any process, and return it."""
        self._check_open()
        ready = [worker for worker in self._busy if worker in self._batches]
        if not ready:
            readable = wait([self._channels[worker].connection for worker in self._busy])
            ready = [each for each in self._busy if self._channels[each].connection in readable]
        return self.batch(ready[0])

    def set_seed(self, seed: int, static_seed: bool) -> int:
        self._discard_batches()
        for worker in range(len(self)):
            seed = self._call(worker, "set_seed", seed, static_seed)
        self._next_seed = seed + static_seed
        return seed

    def reset(self) -> None:
        self._discard_batches()
        for worker in range(len(self)):
            self._call(worker, "reset")

    def update_weights(self, weights: PolicyWeights) -> None:
        by_name = checked_weights(self._policy, self._policy if weights is None else weights)
        packed = pack_weights(by_name)
        self._newest_weights = dict.fromkeys(range(len(self)), packed)
        self._pending_weights = dict.fromkeys(self._newest_weights, self._put(packed))

    def _put(self, weights: bytes) -> Any:
        return weights if self._cluster is None else self._cluster.put(weights)

    def states(self) -> list[CollectorState]:
        return [state for worker in range(len(self)) for state in self._call(worker, "states")]

    def load_states(self, states: list[CollectorState]) -> None:
        self._discard_batches()
        for worker, state in enumerate(states):
            self._call(worker, "load_states", [state])
            self._last_numbers.pop(worker, None)
            if "policy" in state:
                self._newest_weights[worker] = pack_weights(state["policy"])

    def close(self) -> None:
        self._close()

    def __repr__(self) -> str:
        return f"{len(self)} processes"

    def _discard_batches(self) -> None:
        for worker in range(len(self)):
            if self.is_busy(worker):
                self.batch(worker)

    def _call(self, worker: int, name: str, *arguments: Any) -> Any:
        """Run a command in a process after its requested batch, and return the answer."""
        if self.is_busy(worker) and worker not in self._batches:
            self._receive(worker)  # first, or both processes could wait for the other to read
        self._send(worker, name, *arguments)
        return self._answer(worker, name)

    def _send(self, worker: int, *command: Any) -> None:
        self._check_open()
        self._commands[worker] = command
        with suppress(OSError):  # the process ended; `_receive` handles that
            self._channels[worker].send(command, self._pending_weights.pop(worker, None))

    def _check_open(self) -> None:
        if not self._close.still_active():
            raise RldsError(
                "The processes of the collector were closed because one of them failed.",
                advice=_RESTART,
            )

    def _answer(self, worker: int, name: str) -> Any:
        command, content = self._receive(worker)
        assert command == name
        return content

    def _receive(self, worker: int) -> tuple[str, Any]:
        """Return the next message of a process; a batch is also stored."""
        try:
            name, content = self._channels[worker].receive()
        except (EOFError, OSError) as error:
            self._replace(worker, error)
            return self._receive(worker)
        if name == "error":
            self.close()
            raise content
        if isinstance(content, Packed):
            self._batches[worker] = unpack(content)
            self._losses[worker] = 0
            if self._restarts:
                self._last_numbers[worker] = self._batches[worker].select(
                    COLLECTOR_NUMBER, ("next", "done")
                )
        return name, content

    def _replace(self, worker: int, error: Exception) -> None:
        """Start a new process in place of one that ended, and repeat its last command."""
        try:
            found = self._channels[worker].exit_reason()
            reason = f"Collector process {worker} {found}."
            self._losses[worker] += 1
            if not self._restarts or self._losses[worker] == MAX_LOST_WORKERS:
                raise RldsError(
                    f"{reason} Its environment may have crashed, or the machine is out of memory.",
                    found=found,
                    advice=_RESTART,
                ) from error
            self._channels[worker].close()
            self._jobs[worker] = self._replacement(worker, reason)
            self._channels[worker] = Channel(self._jobs[worker], self._cluster)
        except BaseException:
            self.close()
            raise
        if worker in self._newest_weights:
            self._pending_weights[worker] = self._put(self._newest_weights[worker])
        self._send(worker, *self._commands[worker])

    def _replacement(self, worker: int, reason: str) -> Job:
        """Return the job of a new process, and register the interrupted trajectories."""
        job, interrupted = self._jobs[worker], []
        if (numbers := self._last_numbers.pop(worker, None)) is not None:
            last = numbers[..., -1]
            unfinished = last[COLLECTOR_NUMBER][~last["next", "done"].squeeze(-1)]
            interrupted = self.numbering.of(unfinished).tolist()
            # Process w of W numbers its trajectories w, W + w, 2 W + w, ...
            num_trajectories = int(numbers[COLLECTOR_NUMBER].max()) // job.num_processes + 1
            job = replace(job, num_trajectories=num_trajectories)
        self.interrupted += interrupted
        text = f"{reason} A new process replaces it. Interrupted trajectories: {interrupted}."
        warnings.warn(text, stacklevel=2)
        # An unused seed: the random numbers of the first rows are not repeated.
        job = replace(job, seed=job.seed + job.num_processes, environment_seed=self._next_seed)
        if self._next_seed is not None:
            self._next_seed += self._num_lanes[worker]
        return job


_RESTART = "Create a new collector; load_state_dict continues the counts."


def _close(channels: list[Channel], pool: ExitStack) -> None:
    with pool:
        for channel in channels:
            with suppress(OSError):  # the process ended
                channel.send((CLOSE,))
        total = sum(map(_out_of_bounds, channels), OutOfBounds())
        if total.count:
            warnings.warn(f"The environments of {len(channels)} processes: {total}", stacklevel=2)
        for channel in channels:
            channel.close()


def _out_of_bounds(channel: Channel) -> OutOfBounds:
    """Read the remaining messages of a process, and return its actions out of bounds."""
    with suppress(EOFError, OSError):  # the process ended
        while channel.connection.poll(CLOSE_SECONDS):
            name, content = channel.receive()
            if name == CLOSE:
                out_of_bounds: OutOfBounds = content
                return out_of_bounds
    return OutOfBounds()


def _jobs(options: MultiProcessOptions, frames: int, elsewhere: bool) -> list[Job]:
    kwargs, count = options.create_env_kwargs, len(options.create_env_fn)
    mappings = kwargs if isinstance(kwargs, Sequence) else [kwargs] * count
    seed = int(torch.randint(2**62, ()))  # from torch's global generator
    pickled = partial(pickle_by_value, elsewhere=elsewhere)
    # Only this process calls these functions and writes to the buffer.
    local: Any = dict.fromkeys(("postproc", "replay_buffer", *HOOKS))
    shared = replace(part_of(options, CollectorOptions), **local)
    return [
        Job(
            tuple(map(pickled, (create_env_fn, mappings[number], options.policy))),
            shared,
            frames,
            number,
            count,
            seed + number,
        )
        for number, create_env_fn in enumerate(options.create_env_fn)
    ]
