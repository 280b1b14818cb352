"""Ray: its cluster runs the tasks."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any, TypeVar

import ray
import ray.exceptions as failures

from datasets_cli.errors import RldsError, UsageError
from datasets_cli.parallel.cluster import ACTOR_SECONDS, Call, Cluster, future_of, no_free_worker
from datasets_cli.parallel.tasks import LostCluster, LostWorker

Result = TypeVar("Result")

CONNECT_SECONDS = 10.0


@contextmanager
def ray_pool(
    address: str | None, config: Mapping[str, Any] | None = None, **actors: Any
) -> Iterator[Executor]:
    """Yield the workers of a cluster; a connection that the caller opened stays open."""
    # config: arguments of `ray.init`, which starts a cluster. actors: options of each actor.
    is_ours = not ray.is_initialized()
    if is_ours and config is not None:
        ray.init(**config)
    elif is_ours:
        _connect(address)
    elif address not in (None, "auto", here := ray.get_runtime_context().gcs_address):
        raise UsageError(
            f"address is {address}, and this process is connected to the Ray cluster {here}.",
            argument="address",
            expected=here,
            found=address,
            advice="Leave the address out, or call ray.shutdown() first.",
        )
    workers = _RayWorkers(actors)
    try:
        yield workers
    finally:
        for reference in [*workers.submitted]:
            ray.cancel(reference)
        if is_ours:
            ray.shutdown()


def _connect(address: str | None) -> None:
    try:
        # Ray itself waits for minutes for an address where nothing listens.
        host, colon, port = (address or "").rpartition("://")[2].rpartition(":")
        if colon and port.isdecimal():
            socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
        ray.init(address=address or "auto", log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        where = f"at {address}" if address else "by RAY_ADDRESS or on this machine"
        raise RldsError(
            f"No Ray cluster answers {where} ({error}).",
            argument="address",
            found=address,
            advice="`ray start --head` starts one. Give its address, such as host:6379.",
        ) from error


class _RayWorkers(Cluster):
    """The workers of the cluster that this process is connected to."""

    def __init__(self, actors: Mapping[str, Any]) -> None:
        self._actors = {"num_cpus": 1, **actors, "max_restarts": 0}
        self._call = ray.remote(max_retries=0)(_call)
        self.submitted: set[ray.ObjectRef] = set()
        """The tasks that have not ended."""

    def begin(self, task: Callable[[], Result]) -> Future[Result]:
        reference = self._call.remote(task)
        self.submitted.add(reference)
        theirs = reference.future()
        theirs.add_done_callback(lambda _: self.submitted.discard(reference))
        return future_of(theirs, _translated)

    def actor(self, kind: type, argument: Any) -> Call:
        actor: Any = ray.remote(kind).options(**self._actors).remote(argument)
        try:
            ray.get(actor.__ray_ready__.remote(), timeout=ACTOR_SECONDS)
        except failures.GetTimeoutError as error:
            raise no_free_worker("Ray") from error

        def call(message: bytes) -> bytes:
            if not ray.is_initialized():  # ray.get would start a cluster
                raise LostCluster("This process is not connected to Ray any more.")
            try:
                answer: bytes = ray.get(actor.call.remote(message))
            except failures.RayError as error:
                raise _translated(error) from error
            return answer

        return call


def _call(task: Callable[[], Any]) -> Any:
    return task()


def _translated(error: Exception) -> Exception:
    match error:
        case failures.RayTaskError(cause=Exception() as cause):
            return cause
        case failures.RayTaskError():
            return RldsError(str(error))
        case (
            failures.WorkerCrashedError()
            | failures.NodeDiedError()
            | failures.OutOfMemoryError()
            | failures.ActorDiedError()
            | failures.ActorUnavailableError()
        ):
            return LostWorker("died, killed or out of memory")
        case failures.RayError():
            return LostCluster(f"The cluster of Ray was lost ({error}). Run the same call again.")
    return error
