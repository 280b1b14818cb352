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
    ACTOR_SECONDS,
    Call,
    Cluster,
    LostCluster,
    LostWorker,
    no_free_worker,
    pass_on,
)

Result = TypeVar("Result")

CONNECT_SECONDS = 10.0
_DIED = (WorkerCrashedError, NodeDiedError, ActorDiedError, ActorUnavailableError)


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
        workers.cancel()
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
        self._submitted: set[ray.ObjectRef] = set()

    def begin(self, task: Callable[[], Result]) -> Future[Result]:
        future: Future[Result] = Future()
        reference = self._call.remote(task)
        self._submitted.add(reference)

        def done(theirs: Future[Result]) -> None:
            self._submitted.discard(reference)
            pass_on(theirs.result, _translated, future)

        reference.future().add_done_callback(done)
        return future

    def ask_each(self, function: Callable[[Any], Any], argument: Any) -> dict[str, Any]:
        # Once on each node that can run tasks: all its workers have the same files and versions.
        references = {}
        for node in ray.nodes():
            if node["Alive"] and node["Resources"].get("CPU"):
                there = NodeAffinitySchedulingStrategy(node["NodeID"], False)
                call = self._call.options(num_cpus=0, scheduling_strategy=there)
                name = f"{node['NodeManagerAddress']} ({node['NodeID'][:8]})"
                references[name] = call.remote(partial(function, argument))
        return {name: _outcome(reference) for name, reference in references.items()}

    def actor(self, kind: type, argument: Any) -> Call:
        actor: Any = ray.remote(kind).options(**self._actors).remote(argument)
        try:
            ray.get(actor.__ray_ready__.remote(), timeout=ACTOR_SECONDS)
        except GetTimeoutError as error:
            raise no_free_worker("Ray") from error

        def call(message: bytes, value: ray.ObjectRef | None) -> bytes:
            if not ray.is_initialized():  # ray.get would start a cluster
                raise LostCluster("This process is not connected to Ray any more.")
            try:
                answer: bytes = ray.get(actor.call.remote(message, value))
            except RayError as error:
                raise _translated(error) from error
            return answer

        return call

    def put(self, value: Any) -> Any:
        return ray.put(value)

    def cancel(self) -> None:
        """Cancel the tasks that have not ended."""
        for reference in list(self._submitted):
            ray.cancel(reference)


def _call(task: Callable[[], Any]) -> Any:
    return task()


def _outcome(reference: ray.ObjectRef) -> Any:
    try:
        return ray.get(reference)
    except RayError as error:
        return _translated(error)


def _translated(error: Exception) -> Exception:
    match error:
        case RayTaskError(cause=Exception() as cause):
            return cause
        case RayTaskError():
            return RldsError(str(error))
        case OutOfMemoryError():
            return LostWorker("was ended by Ray because memory ran out")
        case _ if isinstance(error, _DIED):
            return LostWorker("died, killed or out of memory")
        case RayError():
            return LostCluster(f"The cluster of Ray was lost ({error}). Run the same call again.")
    return error
