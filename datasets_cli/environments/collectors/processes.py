"""Processes that collect, seen from the one that started them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing import util
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
from tensordict import TensorDict

from datasets_cli.environments.actions import Outside
from datasets_cli.environments.collectors.options import (
    HOOKS,
    CollectorOptions,
    SeveralProcesses,
)
from datasets_cli.environments.collectors.source import (
    CollectorState,
    PolicyWeights,
    known_weights,
)
from datasets_cli.environments.collectors.worker import (
    CLOSED,
    Job,
    Packed,
    pack_weights,
    receive,
    send,
    unpack,
    work,
)
from datasets_cli.errors import RldsError
from datasets_cli.options import part_of
from datasets_cli.parallel.workers import Worker, WorkerContext, pickle_by_value

_SECONDS = 10  # that a process has to close its environments


class Processes:
    """Processes that collect; each does its commands in their order."""

    # They end when `close` is called, this object is no longer used, or the program ends.

    def __init__(self, options: SeveralProcesses, frames: int) -> None:
        jobs = _jobs(options, frames)
        context = WorkerContext()
        self._connections: list[Connection] = []
        self._workers: list[Worker] = []
        # Before the program joins its processes, which would wait for these forever.
        self._end = util.Finalize(self, _end, (self._connections, self._workers), exitpriority=10)
        for job in jobs:
            ours, theirs = context.Pipe()
            # Daemons cannot start processes, as a ParallelEnv does.
            worker = Worker(target=work, args=(theirs, job), daemon=False)
            worker.start()
            theirs.close()  # so that the end of the process is the end of the connection
            self._connections.append(ours)
            self._workers.append(worker)
        self._policy = options.policy
        self._batches: dict[int, TensorDict] = {}  # that came before they were waited for
        self._waiting: list[int] = []  # for a batch, in the order in which they were asked
        self._weights: dict[int, dict[str, Any]] = {}  # that a process does not have yet
        self.devices = [self._answer(worker, "made") for worker in range(len(jobs))]
        """Where the tensors of each environment are; None where they have no device."""

    def __len__(self) -> int:
        return len(self._workers)

    def ask(self, worker: int, *, random: bool) -> None:
        """Begin a batch in a process that was not asked for one, with the newest weights."""
        self._send(worker, "collect", random, self._weights.pop(worker, None))
        self._waiting.append(worker)

    def asked(self, worker: int) -> bool:
        """Return whether a process was asked for a batch that it has not given yet."""
        return worker in self._waiting

    def batch(self, worker: int) -> TensorDict:
        """Return the batch that was asked for; wait for it."""
        if worker not in self._batches:
            self._receive(worker)
        self._waiting.remove(worker)
        return self._batches.pop(worker)

    @property
    def num_asked(self) -> int:
        """How many batches were asked for, and are not given yet."""
        return len(self._waiting)

    def first_batch(self) -> TensorDict:
        """Return the batch that is ready first; wait for it."""
        self._check()
        ready = [worker for worker in self._waiting if worker in self._batches]
        if not ready:
            readable = wait([self._connections[worker] for worker in self._waiting])
            ready = [each for each in self._waiting if self._connections[each] in readable]
        return self.batch(ready[0])

    def set_seed(self, seed: int, static_seed: bool) -> int:
        self._drop()
        for worker in range(len(self)):
            seed = self._call(worker, "set_seed", seed, static_seed)
        return seed

    def reset(self) -> None:
        self._drop()
        for worker in range(len(self)):
            self._call(worker, "reset")

    def update_weights(self, weights: PolicyWeights) -> None:
        known = known_weights(self._policy, self._policy if weights is None else weights)
        self._weights = dict.fromkeys(range(len(self)), pack_weights(known))

    def states(self) -> list[CollectorState]:
        return [state for worker in range(len(self)) for state in self._call(worker, "states")]

    def load_states(self, states: list[CollectorState]) -> None:
        self._drop()
        for worker, state in enumerate(states):
            self._call(worker, "load_states", [state])

    def close(self) -> None:
        self._end()

    def __repr__(self) -> str:
        return f"{len(self)} processes"

    def _drop(self) -> None:
        for worker in range(len(self)):
            if self.asked(worker):
                self.batch(worker)

    def _call(self, worker: int, name: str, *arguments: Any) -> Any:
        """Give a process a command after the batch that it was asked for; return the answer."""
        if self.asked(worker) and worker not in self._batches:
            self._receive(worker)  # neither process then waits for the other to read
        if worker in self._weights:
            self._send(worker, "update_weights", self._weights.pop(worker))
            self._answer(worker, "update_weights")
        self._send(worker, name, *arguments)
        return self._answer(worker, name)

    def _send(self, worker: int, *message: Any) -> None:
        self._check()
        try:
            send(self._connections[worker], message)
        except OSError as error:
            raise self._ended(worker) from error

    def _check(self) -> None:
        if not self._end.still_active():
            raise RldsError(
                "The collector's processes were ended when one of them failed. Make the collector "
                "again; load_state_dict continues its counts."
            )

    def _answer(self, worker: int, name: str) -> Any:
        answered, content = self._receive(worker)
        assert answered == name
        return content

    def _receive(self, worker: int) -> tuple[str, Any]:
        """Return the next message of a process; a batch is kept."""
        try:
            name, content = receive(self._connections[worker])
        except (EOFError, OSError) as error:
            raise self._ended(worker) from error
        if name == "error":
            self.close()
            raise content
        if isinstance(content, Packed):
            self._batches[worker] = unpack(content)
        return name, content

    def _ended(self, worker: int) -> RldsError:
        process = self._workers[worker]
        process.join(_SECONDS)
        self.close()
        return RldsError(
            f"Collector process {worker} ended with exit code {process.exitcode}, before it was "
            "told to. Its environment may have crashed, or the machine is out of memory. Make the "
            "collector again; load_state_dict continues its counts."
        )


def _end(connections: Sequence[Connection], workers: Sequence[Worker]) -> None:
    for connection in connections:
        with suppress(OSError):  # it has ended
            send(connection, ("close",))
    outside = sum(map(_last_word, connections), Outside())
    if outside.count:
        warnings.warn(f"The environments of {len(workers)} processes: {outside}", stacklevel=2)
    for worker in workers:
        worker.join(_SECONDS)
        if worker.is_alive():
            worker.terminate()
            worker.join()


def _last_word(connection: Connection) -> Outside:
    """Read what a process still sends, and return its actions that were out of bounds."""
    outside = Outside()
    with suppress(EOFError, OSError):  # it has ended
        while connection.poll(_SECONDS):
            name, content = receive(connection)
            if name == CLOSED:
                outside = content
                break
    connection.close()
    return outside


def _jobs(options: SeveralProcesses, frames: int) -> list[Job]:
    arguments, count = options.create_env_kwargs, len(options.create_env_fn)
    given = arguments if isinstance(arguments, Sequence) else [arguments] * count
    seed = int(torch.randint(2**62, ()))  # of torch's global random numbers
    # What a process does not need stays here.
    here: Any = dict.fromkeys(("postproc", "replay_buffer", *HOOKS))
    shared = replace(part_of(options, CollectorOptions), **here)
    return [
        Job(
            tuple(map(pickle_by_value, (create_env_fn, given[number], options.policy))),
            shared,
            frames,
            number,
            count,
            seed + number,
        )
        for number, create_env_fn in enumerate(options.create_env_fn)
    ]
