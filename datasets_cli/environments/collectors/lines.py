"""Lines to workers that collect: to a process, or to an actor of a cluster."""

from __future__ import annotations

import pickle
from contextlib import suppress
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any

from datasets_cli.environments.collectors.worker import CollectorWorker, Job, work
from datasets_cli.errors import RldsError
from datasets_cli.parallel.cluster import Cluster, LostCluster, LostWorker, Tell
from datasets_cli.parallel.workers import Worker, WorkerContext

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
