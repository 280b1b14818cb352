"""Dask: its scheduler hands the tasks to its workers."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import distributed
from distributed.comm.core import CommClosedError
from distributed.scheduler import KilledWorker
from distributed.versions import VersionMismatchWarning

from datasets_cli.errors import RldsError
from datasets_cli.parallel.cluster import ACTOR_SECONDS, Call, Cluster, future_of, no_free_worker
from datasets_cli.parallel.tasks import LostCluster, LostWorker

Result = TypeVar("Result")

CONNECT_SECONDS = 10.0
_LOGGERS = ("distributed", "distributed.client", "distributed.core", "tornado.application")


@contextmanager
def dask_pool(address: str) -> Iterator[Executor]:
    """Yield the workers of a scheduler; tasks that did not start are cancelled at the end."""
    with ExitStack() as stack:
        for logger in map(logging.getLogger, _LOGGERS):  # our errors replace their many lines
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.CRITICAL + 1)
        client = _connect(address)
        stack.callback(client.close, timeout=2)
        yield _DaskWorkers(client, address)


def _connect(address: str) -> distributed.Client:
    try:
        with warnings.catch_warnings():
            # A worker that is still starting reports no versions; our check compares them.
            warnings.simplefilter("ignore", VersionMismatchWarning)
            return distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise RldsError(
            f"No Dask scheduler answers at {address} ({error}).",
            argument="address",
            found=address,
            advice="Expected an address such as tcp://host:8786. `dask scheduler` starts a "
            "scheduler, and `dask worker ADDRESS --nthreads 1` a worker.",
        ) from error


class _DaskWorkers(Cluster):
    """The workers of a client's scheduler."""

    # Not `client.get_executor()`: its futures never end if the connection is lost while a result
    # is fetched.

    def __init__(self, client: distributed.Client, address: str) -> None:
        self._client, self._address = client, address
        self._submitted: list[distributed.Future] = []  # Dask drops a task with its future

    def begin(self, task: Callable[[], Result]) -> Future[Result]:
        # Dask does not repeat a task that raises, but one whose worker died, up to its
        # `allowed-failures`.
        self._submitted.append(self._client.submit(task, pure=False, retries=0))
        return future_of(self._submitted[-1], self._translated)

    def actor(self, kind: type, argument: Any) -> Call:
        try:
            address = self._free_worker()
            place = {"workers": address, "allow_other_workers": False, "pure": False, "retries": 0}
            with self._client.as_current():  # an actor talks through the current client
                actor: Any = self._client.submit(kind, argument, actor=True, **place).result()
        except (OSError, RuntimeError, CancelledError) as error:
            raise self._lost() from error

        def call(message: bytes) -> bytes:
            try:
                with self._client.as_current():
                    answer: bytes = actor.call(message).result()
            except (OSError, RuntimeError) as error:  # Dask's errors of an actor that died
                if self._client.status == "running":
                    raise LostWorker(f"at {address} died") from error
                raise self._lost() from error
            return answer

        return call

    def _free_worker(self) -> str:
        """Return the address of a worker without an actor of any client, once there is one."""
        end = time.monotonic() + ACTOR_SECONDS
        while not (free := self._client.run_on_scheduler(_without_actor)):
            if time.monotonic() > end:
                raise no_free_worker("Dask")
            time.sleep(0.1)
        return str(free[0])

    def _translated(self, error: Exception) -> Exception:
        if isinstance(error, KilledWorker):
            how = f"at {error.last_worker.address} died, killed or out of memory"
            return LostWorker(how, error.allowed_failures + 1)
        is_lost = isinstance(error, (CancelledError, CommClosedError, TimeoutError))
        return self._lost() if is_lost else error

    def _lost(self) -> LostCluster:
        return LostCluster(
            f"The scheduler of Dask at {self._address} was lost. Start it and its workers again, "
            "and run the same call."
        )


def _without_actor(dask_scheduler: distributed.Scheduler) -> list[str]:
    return [address for address, each in dask_scheduler.workers.items() if not each.actors]
