"""The worker process of a collector, and the channel to it."""

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

from datasets_cli.environments.collectors.options import CollectorOptions
from datasets_cli.environments.collectors.source import BatchSource, make_environment
from datasets_cli.errors import RldsError
from datasets_cli.parallel.cluster import Call, Cluster
from datasets_cli.parallel.tasks import LostCluster, LostWorker
from datasets_cli.parallel.workers import Worker, WorkerContext

DESCRIBE = "describe"
"""The first command of a process; the answer is the device of its environment."""
CLOSE = "close"
"""The last command of a process."""


@dataclass(frozen=True)
class Job:
    """The description of a process's source of batches."""

    pickled: tuple[bytes, ...]  # create_env_fn, create_env_kwargs and policy
    options: CollectorOptions
    frames: int
    number: int
    num_processes: int
    seed: int


class Packed(NamedTuple):
    """A TensorDict as numpy arrays, which are pickled ten times as fast as tensors."""

    leaves: dict[Any, Any]
    shape: tuple[int, ...]
    names: list[str | None]


def pack(tensordict: TensorDict) -> Packed:
    """Convert a TensorDict to numpy arrays."""
    leaves = tensordict.items(True, True, is_leaf=is_leaf_nontensor)
    arrays = {key: _array(value) for key, value in leaves}
    return Packed(arrays, tuple(tensordict.shape), tensordict.names)


def pack_weights(weights: Mapping[str, Any]) -> bytes:
    """Return the current weights of a module as a pickle of numpy arrays."""
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
    """Convert numpy arrays back to the TensorDict."""
    leaves = {key: _tensor(value) for key, value in packed.leaves.items()}
    return TensorDict(leaves, packed.shape, names=packed.names)


class CollectorWorker:
    """Runs the commands of a collector one after another, in a worker process."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._source: BatchSource | None = None
        self.is_closed = False

    def call(self, message: bytes) -> bytes:
        """Run the command of a message and return the pickled answer."""
        command, weights = pickle.loads(message)
        try:
            return pickle.dumps((command[0], self._run(*command, weights=weights)), protocol=5)
        except Exception as error:
            return pickle.dumps(("error", _as_rlds_error(error, self._job.number)))

    def _run(self, name: str, *arguments: Any, weights: bytes | None) -> Any:
        """Load new weights, if any, then run a command and return its result."""
        if name == CLOSE:
            return self.close()
        if self._source is None:
            torch.set_num_threads(1)  # one process per core
            self._source = _make_source(self._job)
        source = self._source
        if weights is not None:
            arrays = pickle.loads(weights)
            source.update_weights({key: _tensor(arrays[key]) for key in arrays})
        if name == DESCRIBE:
            return source.environment.device
        result = getattr(source, name)(*arguments)
        return pack(result) if name == "collect" else result

    def close(self) -> None:
        """Close the environment."""
        self.is_closed = True
        if self._source is not None:
            self._source.close()


def run_worker(connection: Connection, job: Job) -> None:
    """Run the commands of a connection until it closes."""
    worker = CollectorWorker(job)
    with suppress(EOFError, ConnectionError):  # the collector's process ended
        while not worker.is_closed:
            connection.send_bytes(worker.call(connection.recv_bytes()))
    worker.close()


def _make_source(job: Job) -> BatchSource:
    random.seed(job.seed)
    np.random.seed(job.seed % 2**32)
    torch.manual_seed(job.seed)
    create_env_fn, kwargs, policy = map(pickle.loads, job.pickled)
    environment = make_environment(create_env_fn, kwargs, job.options)
    return BatchSource(environment, policy, job.options, job.frames, job.number, job.num_processes)


def _as_rlds_error(error: Exception, worker: int) -> RldsError:
    if isinstance(error, RldsError):
        return error
    found = f"{type(error).__name__}: {error}"
    lines = "".join(traceback.format_exception(error)).rstrip()
    return RldsError(
        f"Collector process {worker} failed: {found}. Its traceback:\n{lines}", found=found
    )


CLOSE_SECONDS = 10
"""The time limit for a worker to close its environments."""


class Channel:
    """A connection to a worker: a process of this machine, or an actor of a cluster."""

    # A thread forwards the messages of the pipe to an actor, so that both are waited for alike.

    def __init__(self, job: Job, cluster: Cluster | None) -> None:
        self.connection, theirs = WorkerContext().Pipe()
        self._error: Exception | None = None
        self.worker: Worker | Thread
        if cluster is None:
            # Daemons cannot start processes, as a ParallelEnv does.
            self.worker = Worker(target=run_worker, args=(theirs, job), daemon=False)
            self.worker.start()
            theirs.close()  # the process has its own copy
            return
        try:
            call = cluster.actor(CollectorWorker, job)
        except LostCluster as error:
            raise RldsError(str(error)) from error
        self.worker = Thread(target=self._forward, args=(theirs, call), daemon=True)
        self.worker.start()

    def _forward(self, connection: Connection, call: Call) -> None:
        with connection, suppress(EOFError, OSError):
            while True:
                message = connection.recv_bytes()
                try:
                    answer = call(message)
                except Exception as error:
                    self._error = error
                    return
                connection.send_bytes(answer)

    def send(self, command: tuple[Any, ...], weights: bytes | None = None) -> None:
        """Send a command, and weights that the policy loads before it."""
        self.connection.send_bytes(pickle.dumps((command, weights), protocol=5))

    def receive(self) -> tuple[str, Any]:
        """Return the next answer; raise EOFError if the worker ended."""
        name, content = pickle.loads(self.connection.recv_bytes())
        return name, content

    def exit_reason(self) -> str:
        """Return how the worker ended, or raise an error if the whole cluster failed."""
        self.worker.join(CLOSE_SECONDS)
        if isinstance(self.worker, Worker):
            return f"ended with exit code {self.worker.exitcode} before it was closed"
        if isinstance(self._error, LostWorker):
            return self._error.how
        found = str(self._error)
        raise RldsError(f"The collector's cluster failed: {found}", found=found) from self._error

    def close(self) -> None:
        """Wait until the worker has closed its environment; terminate one that takes too long."""
        # An actor reads CLOSE after the command that it still runs, and only over an open pipe.
        with suppress(EOFError, OSError):  # the worker ended
            while self.connection.poll(CLOSE_SECONDS) and self.receive()[0] != CLOSE:
                pass
        self.connection.close()
        self.worker.join(CLOSE_SECONDS)
        if isinstance(self.worker, Worker) and self.worker.is_alive():
            self.worker.terminate()
            self.worker.join()
