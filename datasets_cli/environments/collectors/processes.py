"""The worker processes of a collector, as its own process controls them."""

from __future__ import annotations

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
    DESCRIBE,
    Channel,
    Job,
    Packed,
    pack_weights,
    unpack,
)
from datasets_cli.errors import RldsError
from datasets_cli.parallel.cluster import Cluster
from datasets_cli.parallel.workers import pickle_by_value
from datasets_cli.replay.trajectories.seams import Numbering


class Processes:
    """The worker processes of a collector; each runs its commands in order."""

    # They end with `close`, with the last reference to this object, or with the program.
    # pool: the cluster that runs the processes as actors; None for processes of this machine.

    def __init__(
        self,
        options: MultiProcessOptions,
        frames: int,
        pool: AbstractContextManager[Executor] | None = None,
    ) -> None:
        self._jobs = _jobs(options, frames, elsewhere=pool is not None)
        self._channels: list[Channel] = []
        stack = ExitStack()
        # Runs before the program joins its child processes, which would wait for these forever.
        self._close = util.Finalize(self, _close, (self._channels, stack), exitpriority=10)
        self._cluster = None if pool is None else cast(Cluster, stack.enter_context(pool))
        self._policy = options.policy
        self.numbering = Numbering()
        self._batches: dict[int, TensorDict] = {}  # received, but not returned yet
        self._busy: list[int] = []  # processes with a requested batch, in the order of requests
        self._pending_weights: dict[int, bytes] = {}  # not sent yet
        for worker, job in enumerate(self._jobs):
            self._channels.append(Channel(job, self._cluster))
            self._send(worker, DESCRIBE)
        self.devices = [self._answer(worker, DESCRIBE) for worker in range(len(self))]
        """The device of each environment's tensors, or None."""

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
        return seed

    def reset(self) -> None:
        self._discard_batches()
        for worker in range(len(self)):
            self._call(worker, "reset")

    def update_weights(self, weights: PolicyWeights) -> None:
        by_name = checked_weights(self._policy, self._policy if weights is None else weights)
        self._pending_weights = dict.fromkeys(range(len(self)), pack_weights(by_name))

    def states(self) -> list[CollectorState]:
        return [state for worker in range(len(self)) for state in self._call(worker, "states")]

    def load_states(self, states: list[CollectorState]) -> None:
        self._discard_batches()
        for worker, state in enumerate(states):
            self._call(worker, "load_states", [state])

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
            try:
                found = self._channels[worker].exit_reason()
            finally:
                self.close()
            raise RldsError(
                f"Collector process {worker} {found}. Its environment may have crashed, or the "
                "machine is out of memory.",
                found=found,
                advice=_RESTART,
            ) from error
        if name == "error":
            self.close()
            raise content
        if isinstance(content, Packed):
            self._batches[worker] = unpack(content)
        return name, content


_RESTART = "Create a new collector; load_state_dict continues the counts."


def _close(channels: list[Channel], pool: ExitStack) -> None:
    with pool:
        for channel in channels:
            with suppress(OSError):  # the process ended
                channel.send((CLOSE,))
        for channel in channels:
            channel.close()


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
