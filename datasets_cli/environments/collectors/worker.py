"""What runs in a process that collects: it does what it is told, one command after the other."""

from __future__ import annotations

import pickle
import random
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any, NamedTuple

import numpy as np
import torch
from tensordict import TensorDict, is_leaf_nontensor

from datasets_cli.environments.actions import Outside
from datasets_cli.environments.collectors.options import CollectorOptions
from datasets_cli.environments.collectors.source import BatchSource, environment_of
from datasets_cli.errors import RldsError
from datasets_cli.parallel.cluster import Cluster, LostCluster, LostWorker, Tell
from datasets_cli.parallel.workers import Worker, WorkerContext

CLOSE = "close"
"""The last command of a process, which answers with the actions that were out of bounds."""


@dataclass(frozen=True)
class Job:
    """What a process needs to make a source of batches."""

    pickled: tuple[bytes, ...]  # what makes the environment, its arguments, the policy
    options: CollectorOptions
    frames: int
    number: int
    num_processes: int
    seed: int
    # Of one that is made again: how many trajectories there were, and the next seed if there is.
    trajectories: int = 0
    environment_seed: int | None = None


class Packed(NamedTuple):
    """A TensorDict in the form that is sent: arrays are pickled ten times as fast as tensors."""

    leaves: dict[Any, Any]
    shape: tuple[int, ...]
    names: list[str | None]


def pack(tensordict: TensorDict) -> Packed:
    """Return what is sent of a TensorDict."""
    leaves = tensordict.items(True, True, is_leaf=is_leaf_nontensor)
    arrays = {key: _array(value) for key, value in leaves}
    return Packed(arrays, tuple(tensordict.shape), tensordict.names)


def pack_weights(weights: Mapping[str, Any]) -> bytes:
    """Return what is sent of a module's weights, as they are now."""
    arrays = {name: _array(value) for name, value in weights.items()}
    return pickle.dumps(arrays, protocol=5)


def _array(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach().cpu()
    return value if value.dtype == torch.bfloat16 else value.numpy()


def _tensor(value: Any) -> Any:
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


def unpack(packed: Packed) -> TensorDict:
    """Return the TensorDict of which that was sent."""
    leaves = {key: _tensor(value) for key, value in packed.leaves.items()}
    return TensorDict(leaves, packed.shape, names=packed.names)


class CollectorWorker:
    """Does what it is told, one command after the other."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._source: BatchSource | None = None
        self.is_closed = False

    def call(self, message: bytes, weights: Any = None) -> bytes:
        """Return the answer to a message; what came past it are weights, or what gives them."""
        command, sent = pickle.loads(message)
        try:
            given = weights() if callable(weights) else weights
            answer = command[0], self._do(*command, weights=given or sent)
            return pickle.dumps(answer, protocol=5)
        except Exception as error:
            return pickle.dumps(("error", _sendable(error, self._job.number)))

    def _do(self, name: str, *arguments: Any, weights: bytes | None) -> Any:
        """Return what a command gives; it is done with other weights if they came."""
        if name == CLOSE:
            return self.close()
        if self._source is None:
            torch.set_num_threads(1)  # there is a process for each core
            self._source = _source(self._job)
        source = self._source
        if weights is not None:
            arrays = pickle.loads(weights)
            source.update_weights({key: _tensor(arrays[key]) for key in arrays})
        if name == "made":
            return source.environment.device, source.environment.lanes.num_lanes
        result = getattr(source, name)(*arguments)
        return pack(result) if name == "collect" else result

    def close(self) -> Outside:
        """Close the environment; return its actions that were out of bounds."""
        self.is_closed = True
        source, self._source = self._source, None
        return Outside() if source is None else source.close_in_silence()


def work(connection: Connection, job: Job) -> None:
    """Do what the other end of a connection says, until it closes."""
    worker = CollectorWorker(job)
    with suppress(EOFError, ConnectionError):  # the other process has ended
        while not worker.is_closed:
            connection.send_bytes(worker.call(connection.recv_bytes()))
    worker.close()


def _source(job: Job) -> BatchSource:
    random.seed(job.seed)
    np.random.seed(job.seed % 2**32)
    torch.manual_seed(job.seed)
    create, arguments, policy = map(pickle.loads, job.pickled)
    environment = environment_of(create, arguments, job.options)
    source = BatchSource(
        environment,
        policy,
        job.options,
        job.frames,
        job.number,
        job.num_processes,
        job.trajectories,
    )
    if job.environment_seed is not None:
        source.set_seed(job.environment_seed, False)
    return source


def _sendable(error: Exception, worker: int) -> RldsError:
    if isinstance(error, RldsError):
        return error
    return RldsError(
        f"Collector process {worker} failed: {type(error).__name__}: {error}. In that process:\n"
        f"{''.join(traceback.format_exception(error)).rstrip()}"
    )


SECONDS = 10  # that a worker has to close its environments


class Line:
    """A line to a worker, whose end is the end of its connection."""

    # A thread tells an actor what comes through the pipe: one waits for it as for a process.

    def __init__(self, job: Job, cluster: Cluster | None) -> None:
        self.connection, theirs = WorkerContext().Pipe()
        self._weights: Any = None
        self._error: Exception | None = None
        self.worker: Worker | Thread
        if cluster is None:
            # Daemons cannot start processes, as a ParallelEnv does.
            self.worker = Worker(target=work, args=(theirs, job), daemon=False)
            self.worker.start()
            theirs.close()  # which is open in the process
            return
        try:
            tell = cluster.actor(CollectorWorker, job)
        except LostCluster as error:
            raise RldsError(str(error)) from error
        self.worker = Thread(target=self._hand_on, args=(theirs, tell), daemon=True)
        self.worker.start()

    def _hand_on(self, connection: Connection, tell: Tell) -> None:
        with connection, suppress(EOFError, OSError):
            while True:
                message = connection.recv_bytes()
                weights, self._weights = self._weights, None
                try:
                    answer = tell(message, weights)
                except Exception as error:
                    self._error = error
                    return
                connection.send_bytes(answer)

    def send(self, command: tuple[Any, ...], weights: Any = None) -> None:
        """Send a command, with the weights that the policy gets before it is done."""
        if isinstance(self.worker, Thread):  # they were put, and go past the pipe
            self._weights, weights = weights, None
        self.connection.send_bytes(pickle.dumps((command, weights), protocol=5))

    def receive(self) -> tuple[str, Any]:
        """Return an answer; EOFError where the worker ended."""
        name, content = pickle.loads(self.connection.recv_bytes())
        return name, content

    def how_it_ended(self) -> str:
        """Return how the worker ended; RldsError where more than it was lost."""
        self.worker.join(SECONDS)
        if isinstance(self.worker, Worker):
            return f"ended with exit code {self.worker.exitcode}, before it was told to"
        if isinstance(self._error, LostWorker):
            return self._error.how
        raise RldsError(f"The collector's cluster failed: {self._error}") from self._error

    def close(self) -> None:
        """Wait for the worker to end, not long."""
        self.connection.close()
        self.worker.join(SECONDS)
        if isinstance(self.worker, Worker) and self.worker.is_alive():
            self.worker.terminate()
            self.worker.join()
