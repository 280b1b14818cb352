"""Ray: its cluster runs the tasks."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import ray
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    GetTimeoutError,
    NodeDiedError,
    OutOfMemoryError,
    RayError,
    RayTaskError,
    WorkerCrashedError,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from datasets_cli.errors import RldsError, UsageError
from datasets_cli.parallel.cluster import (
    ROOM_SECONDS,
    Cluster,
    LostCluster,
    LostWorker,
    Tell,
    WorkerOutcome,
    no_room,
    pass_on,
)

Result = TypeVar("Result")

CONNECT_SECONDS = 10.0
_DIED = (WorkerCrashedError, NodeDiedError, ActorDiedError, ActorUnavailableError)


@contextmanager
def ray_pool(
    address: str | None, config: Mapping[str, Any] | None = None, **actors: Any
) -> Iterator[Executor]:
    """Give the workers of a cluster; a connection that the caller has made stays."""
    # config: of `ray.init`, which starts a cluster where there is none; actors: of each of them.
    is_ours = not ray.is_initialized()
    if is_ours and config is not None:
        ray.init(**config)
    elif is_ours:
        _connect(address)
    elif address not in (None, "auto", ray.get_runtime_context().gcs_address):
        raise UsageError(
            f"This process is connected to the Ray cluster "
            f"{ray.get_runtime_context().gcs_address}, and the address is {address}. Leave the "
            "address out, or call ray.shutdown() first."
        )
    workers = _RayWorkers(actors)
    try:
        yield workers
    finally:
        workers.cancel()
        if is_ours:
            ray.shutdown()


def _connect(address: str | None) -> None:
    try:
        _knock(address)
        ray.init(address=address or "auto", log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        where = f"at {address}" if address else "by RAY_ADDRESS or on this machine"
        raise RldsError(
            f"There is no Ray cluster {where} ({error}). Start one, `ray start --head`, and give "
            "its address, such as host:6379."
        ) from error


def _knock(address: str | None) -> None:
    """Connect to an address and hang up: Ray itself tries one where nothing listens for minutes."""
    host, colon, port = (address or "").rpartition("://")[2].rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()


class _RayWorkers(Cluster):
    """The workers of the cluster that this process is connected to."""

    def __init__(self, actors: Mapping[str, Any]) -> None:
        self._actors = {"num_cpus": 1, **actors, "max_restarts": 0}
        self._call = ray.remote(max_retries=0)(_call)
        self._taken: set[ray.ObjectRef] = set()

    def begin(self, task: Callable[[], Result]) -> Future[Result]:
        """Hand the task to Ray, which tries none again, and return its future."""
        future: Future[Result] = Future()
        taken = self._call.remote(task)
        self._taken.add(taken)

        def done(theirs: Future[Result]) -> None:
            self._taken.discard(taken)
            pass_on(theirs.result, _meaning, future)

        taken.future().add_done_callback(done)
        return future

    def ask_each(self, function: Callable[[Any], Any], argument: Any) -> dict[str, WorkerOutcome]:
        """Call a function on each node that can run tasks."""
        asked = {
            f"{node['NodeManagerAddress']} ({node['NodeID'][:8]})": self._call.options(
                num_cpus=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], False),
            ).remote(partial(function, argument))
            for node in ray.nodes()
            if node["Alive"] and node["Resources"].get("CPU")
        }
        return {name: _outcome(taken) for name, taken in asked.items()}

    def actor(self, kind: type, argument: Any) -> Tell:
        """Make an object in a process that Ray starts for it, and return its ``call``."""
        held: Any = ray.remote(kind).options(**self._actors).remote(argument)
        try:
            ray.get(held.__ray_ready__.remote(), timeout=ROOM_SECONDS)
        except GetTimeoutError as error:
            raise no_room("Ray") from error

        def tell(message: bytes, value: ray.ObjectRef | None) -> bytes:
            if not ray.is_initialized():  # it would start a cluster
                raise LostCluster("This process is not connected to Ray any more.")
            try:
                answer: bytes = ray.get(held.call.remote(message, value))
            except RayError as error:
                raise _meaning(error) from error
            return answer

        return tell

    def put(self, value: Any) -> Any:
        """Put a value from where each machine gets it once."""
        return ray.put(value)

    def cancel(self) -> None:
        """Cancel what has not ended."""
        for taken in list(self._taken):
            ray.cancel(taken)


def _call(task: Callable[[], Any]) -> Any:
    return task()


def _outcome(taken: ray.ObjectRef) -> WorkerOutcome:
    try:
        return ray.get(taken)
    except RayError as error:
        return _meaning(error)


def _meaning(error: Exception) -> Exception:
    if isinstance(error, RayTaskError):
        return error.cause if isinstance(error.cause, Exception) else RldsError(str(error))
    if isinstance(error, OutOfMemoryError):
        return LostWorker("was ended by Ray because memory ran out")
    if isinstance(error, _DIED):
        return LostWorker("died, as one does that is killed or that memory runs out for")
    if isinstance(error, RayError):
        return LostCluster(f"The cluster of Ray was lost ({error}). Run the same call again.")
    return error
