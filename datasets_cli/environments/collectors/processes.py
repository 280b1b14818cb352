"""Processes that collect, seen from the one that started them."""

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
    CLOSE,
    SECONDS,
    Job,
    Line,
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
    """Processes that collect; each does its commands in their order."""

    # They end when `close` is called, this object is no longer used, or the program ends.
    # pool: the cluster whose actors they are. renewed: whether one that dies is made again.

    def __init__(
        self,
        options: SeveralProcesses,
        frames: int,
        pool: AbstractContextManager[Executor] | None = None,
        renewed: bool = False,
    ) -> None:
        self._jobs, self._renewed = _jobs(options, frames, elsewhere=pool is not None), renewed
        self._lines: list[Line] = []
        stack = ExitStack()
        # Before the program joins its processes, which would wait for these forever.
        self._end = util.Finalize(self, _end, (self._lines, stack), exitpriority=10)
        self._cluster = None if pool is None else cast(Cluster, stack.enter_context(pool))
        self._policy = options.policy
        self.numbering = Numbering()
        self.newest = 0
        """The process whose batch was returned last."""
        self._batches: dict[int, TensorDict] = {}  # that came before they were waited for
        self._waiting: list[int] = []  # for a batch, in the order in which they were asked
        self._commands: dict[int, tuple[Any, ...]] = {}  # the last one of each process
        self._newest: dict[int, bytes] = {}  # weights
        self._latest: dict[int, TensorDict] = {}  # where the trajectories of each process stand
        self._losses: Counter[int] = Counter()  # of each process, since its last batch
        self._next_seed: int | None = None  # that no environment has had
        self.cut: list[int] = []
        """The numbers of trajectories that ended with their process."""
        self._weights: dict[int, Any] = {}  # those that a process does not have yet
        for worker, job in enumerate(self._jobs):
            self._lines.append(Line(job, self._cluster))
            self._send(worker, "made")
        made = [self._answer(worker, "made") for worker in range(len(self))]
        self.devices = [device for device, _ in made]
        """Where the tensors of each environment are; None where they have no device."""
        self._lanes = [lanes for _, lanes in made]

    def __len__(self) -> int:
        return len(self._jobs)

    def ask(self, worker: int, *, random: bool) -> None:
        """Begin a batch in a process that was not asked for one, with the newest weights."""
        self._send(worker, "collect", random)
        self._waiting.append(worker)

    def asked(self, worker: int) -> bool:
        """Return whether a process was asked for a batch that it has not given yet."""
        return worker in self._waiting

    def batch(self, worker: int) -> TensorDict:
        """Return the batch that was asked for; wait for it."""
        if worker not in self._batches:
            self._receive(worker)
        self._waiting.remove(worker)
        self.newest = worker
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
            readable = wait([self._lines[worker].connection for worker in self._waiting])
            ready = [each for each in self._waiting if self._lines[each].connection in readable]
        return self.batch(ready[0])

    def set_seed(self, seed: int, static_seed: bool) -> int:
        self._drop()
        for worker in range(len(self)):
            seed = self._call(worker, "set_seed", seed, static_seed)
        self._next_seed = seed + static_seed
        return seed

    def reset(self) -> None:
        self._drop()
        for worker in range(len(self)):
            self._call(worker, "reset")

    def update_weights(self, weights: PolicyWeights) -> None:
        known = known_weights(self._policy, self._policy if weights is None else weights)
        self._newest = dict.fromkeys(range(len(self)), pack_weights(known))
        self._weights = dict.fromkeys(self._newest, self._put(self._newest[0]))

    def _put(self, weights: bytes) -> Any:
        return weights if self._cluster is None else self._cluster.put(weights)

    def states(self) -> list[CollectorState]:
        return [state for worker in range(len(self)) for state in self._call(worker, "states")]

    def load_states(self, states: list[CollectorState]) -> None:
        self._drop()
        for worker, state in enumerate(states):
            self._call(worker, "load_states", [state])
            self._latest.pop(worker, None)
            if "policy" in state:
                self._newest[worker] = pack_weights(state["policy"])

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
        self._send(worker, name, *arguments)
        return self._answer(worker, name)

    def _send(self, worker: int, *command: Any) -> None:
        self._check()
        self._commands[worker] = command
        with suppress(OSError):  # it has ended: noticed when its answer is waited for
            self._lines[worker].send(command, self._weights.pop(worker, None))

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
            name, content = self._lines[worker].receive()
        except (EOFError, OSError) as error:
            self._renew(worker, error)
            return self._receive(worker)
        if name == "error":
            self.close()
            raise content
        if isinstance(content, Packed):
            self._batches[worker] = unpack(content)
            self._losses[worker] = 0
            if self._renewed:
                self._latest[worker] = self._batches[worker].select(
                    COLLECTOR_NUMBER, ("next", "done")
                )
        return name, content

    def _renew(self, worker: int, error: Exception) -> None:
        """Make a process again that ended, and give it the command that it did not do."""
        try:
            how = f"Collector process {worker} {self._lines[worker].how_it_ended()}."
            self._losses[worker] += 1
            if not self._renewed or self._losses[worker] == MAX_LOST_WORKERS:
                raise RldsError(
                    f"{how} Its environment may have crashed, or the machine is out of memory. "
                    "Make the collector again; load_state_dict continues its counts."
                ) from error
            self._lines[worker].close()
            self._jobs[worker] = self._continued(worker, how)
            self._lines[worker] = Line(self._jobs[worker], self._cluster)
        except BaseException:
            self.close()
            raise
        if worker in self._newest:
            self._weights[worker] = self._put(self._newest[worker])
        self._send(worker, *self._commands[worker])

    def _continued(self, worker: int, how: str) -> Job:
        """Return the job of a process in place of one that ended, and note what ended with it."""
        job, cut = self._jobs[worker], []
        if (latest := self._latest.pop(worker, None)) is not None:
            last = latest[..., -1]
            open_ends = last[COLLECTOR_NUMBER][~last["next", "done"].squeeze(-1)]
            cut = self.numbering.of(open_ends).tolist()
            begun = int(latest[COLLECTOR_NUMBER].max()) // job.num_processes + 1
            job = replace(job, trajectories=begun)
        self.cut += cut
        text = f"{how} It is made again. Trajectories that end with their last given row: {cut}."
        warnings.warn(text, stacklevel=2)
        # Seeds that no process has had: its random numbers are not those of its first rows again.
        job = replace(job, seed=job.seed + job.num_processes, environment_seed=self._next_seed)
        if self._next_seed is not None:
            self._next_seed += self._lanes[worker]
        return job


def _end(lines: list[Line], pool: ExitStack) -> None:
    with pool:
        for line in lines:
            with suppress(OSError):  # it has ended
                line.send((CLOSE,))
        outside = sum(map(_last_word, lines), Outside())
        if outside.count:
            warnings.warn(f"The environments of {len(lines)} processes: {outside}", stacklevel=2)
        for line in lines:
            line.close()


def _last_word(line: Line) -> Outside:
    """Read what a process still sends, and return its actions that were out of bounds."""
    with suppress(EOFError, OSError):  # it has ended
        while line.connection.poll(SECONDS):
            name, content = line.receive()
            if name == CLOSE:
                outside: Outside = content
                return outside
    return Outside()


def _jobs(options: SeveralProcesses, frames: int, elsewhere: bool) -> list[Job]:
    arguments, count = options.create_env_kwargs, len(options.create_env_fn)
    given = arguments if isinstance(arguments, Sequence) else [arguments] * count
    seed = int(torch.randint(2**62, ()))  # of torch's global random numbers
    pickled = partial(pickle_by_value, elsewhere=elsewhere)
    # What a process does not need stays here.
    here: Any = dict.fromkeys(("postproc", "replay_buffer", *HOOKS))
    shared = replace(part_of(options, CollectorOptions), **here)
    return [
        Job(
            tuple(map(pickled, (create_env_fn, given[number], options.policy))),
            shared,
            frames,
            number,
            count,
            seed + number,
        )
        for number, create_env_fn in enumerate(options.create_env_fn)
    ]
