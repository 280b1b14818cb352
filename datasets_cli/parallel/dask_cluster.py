"""Dask: its scheduler hands the tasks to its workers."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import distributed
from distributed.comm.core import CommClosedError
from distributed.scheduler import KilledWorker
from distributed.versions import VersionMismatchWarning

from datasets_cli.errors import RldsError
from datasets_cli.parallel.cluster import (
    ROOM_SECONDS,
    Cluster,
    LostCluster,
    LostWorker,
    Tell,
    WorkerOutcome,
    no_room,
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

    def actor(self, kind: type, argument: Any) -> Tell:
        """Make an object in a process without an actor, of any client, and return its ``call``."""
        try:
            address = self._free_worker()
            place = {"workers": address, "allow_other_workers": False, "pure": False, "retries": 0}
            with self._client.as_current():  # where an actor finds the client that it talks by
                held: Any = self._client.submit(kind, argument, actor=True, **place).result()
        except (OSError, RuntimeError, CancelledError) as error:
            raise self._meaning(CommClosedError()) from error

        def tell(message: bytes, value: distributed.Future | None) -> bytes:
            given = None if value is None else partial(_value_of, str(value.key))
            try:
                with self._client.as_current():
                    answer: bytes = held.call(message, given).result()
            except (OSError, RuntimeError) as error:  # Dask's words of an actor that is gone
                if self._client.status == "running":
                    raise LostWorker(f"at {address} died") from error
                raise self._meaning(CommClosedError()) from error
            return answer

        return tell

    def _free_worker(self) -> str:
        """Return the address of a process that has no actor; wait for it, not forever."""
        end = time.monotonic() + ROOM_SECONDS
        while not (free := self._client.run_on_scheduler(_without_actor)):
            if time.monotonic() > end:
                raise no_room("Dask")
            time.sleep(0.1)
        return str(free[0])

    def put(self, value: Any) -> Any:
        """Send a value to one worker, from which the others have it."""
        return self._client.scatter([value], broadcast=True, hash=False)[0]

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


def _without_actor(dask_scheduler: distributed.Scheduler) -> list[str]:
    """Return the addresses of the workers that have no actor, as the scheduler knows them."""
    return [address for address, each in dask_scheduler.workers.items() if not each.actors]


def _value_of(key: str) -> Any:
    """Return a value that was sent to all workers, on one of them."""
    return distributed.get_worker().data[key]
