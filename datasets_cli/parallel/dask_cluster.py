"""Dask: its scheduler hands the tasks to its workers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future
from contextlib import contextmanager
from typing import Any, TypeVar

import distributed
from distributed.comm.core import CommClosedError
from distributed.scheduler import KilledWorker
from distributed.versions import VersionMismatchWarning

from datasets_cli.errors import RldsError
from datasets_cli.parallel.cluster import (
    Cluster,
    LostCluster,
    LostWorker,
    WorkerOutcome,
    pass_on,
    quiet,
)

Result = TypeVar("Result")

CONNECT_SECONDS = 10.0
_LOGGERS = ("distributed", "distributed.client", "distributed.core", "tornado.application")


@contextmanager
def dask_pool(address: str) -> Iterator[Executor]:
    """Give the workers of a scheduler; what they have not begun is cancelled at the end."""
    with quiet(*_LOGGERS):
        try:
            with warnings.catch_warnings():
                # A worker that is only starting has no versions yet; we compare those that count.
                warnings.simplefilter("ignore", VersionMismatchWarning)
                client = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError) as error:
            raise RldsError(
                f"There is no scheduler of Dask at {address} ({error}). Expected an address such "
                "as tcp://host:8786 (--address). `dask scheduler` starts one, and `dask worker "
                "ADDRESS --nthreads 1` a worker."
            ) from error
        try:
            yield _DaskWorkers(client, address)
        finally:
            client.close(timeout=2)


class _DaskWorkers(Cluster):
    """The workers of a client's scheduler."""

    # Not `client.get_executor()`, whose futures never end where the connection is lost while a
    # result is fetched.

    def __init__(self, client: distributed.Client, address: str) -> None:
        self._client, self._address = client, address
        self._taken: list[distributed.Future] = []  # Dask drops a task whose future is dropped

    def begin(self, task: Callable[[], Result]) -> Future[Result]:
        """Hand the task to the scheduler and return its future."""
        # A task that raises is not tried again; one whose worker died is, by the scheduler, as
        # often as its `allowed-failures` says.
        future: Future[Result] = Future()
        theirs = self._client.submit(task, pure=False, retries=0)
        self._taken.append(theirs)
        theirs.add_done_callback(lambda done: pass_on(done.result, self._meaning, future))
        return future

    def ask_each(self, function: Callable[[Any], Any], argument: Any) -> dict[str, WorkerOutcome]:
        """Call a function on each worker."""
        return dict(self._client.run(function, argument, on_error="return"))

    def _meaning(self, error: Exception) -> Exception:
        if isinstance(error, KilledWorker):
            return LostWorker(
                f"at {error.last_worker.address} died, as one does that is killed or that memory "
                "runs out for",
                error.allowed_failures + 1,
            )
        if isinstance(error, (CancelledError, CommClosedError, TimeoutError)):
            return LostCluster(
                f"The scheduler of Dask at {self._address} was lost. Start it and its workers "
                "again, and run the same call."
            )
        return error
