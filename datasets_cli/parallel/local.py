"""Local worker processes, each with one task at a time: a killed one costs only its task."""

from __future__ import annotations

import os
import pickle
import signal
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from threading import Lock, get_ident
from typing import Any, TypeVar

from datasets_cli.errors import RldsError
from datasets_cli.parallel.tasks import CallingProcess, LostWorker, TaskExecutor
from datasets_cli.parallel.workers import WorkerContext

Result = TypeVar("Result")

_POLL_SECONDS = 1.0
_END = b""


@contextmanager
def local_pool(num_workers: int | None) -> Iterator[Executor]:
    """Yield an executor of this machine; after an error its workers are killed."""
    count = (os.cpu_count() or 1) if num_workers is None else num_workers
    executor = LocalWorkers(count) if count else CallingProcess()
    is_done = False
    try:
        yield executor
        is_done = True
    finally:
        executor.shutdown(wait=is_done)


class LocalWorkers(TaskExecutor):
    """An executor of processes that start when needed; a new one replaces a lost one."""

    # Each thread has one process and waits for it, so the task of a lost process is known. That
    # task raises `LostWorker`.

    def __init__(self, num_workers: int) -> None:
        self._threads = ThreadPoolExecutor(num_workers, "local-worker")
        self._processes: dict[int, _WorkerProcess] = {}  # by thread
        self._lock = Lock()
        self._is_ended = False

    def begin(self, task: Callable[[], Result]) -> Future[Result]:
        """Submit a task to the next free process and return its future."""
        return self._threads.submit(self._run, task)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes after all submitted tasks; kill them now without ``wait``."""
        if not wait:  # the next run repeats killed tasks
            with self._lock:
                self._is_ended = True
                for process in self._processes.values():
                    process.kill()
        self._threads.shutdown(wait=True, cancel_futures=cancel_futures or not wait)
        for process in self._processes.values():
            process.end()

    def _run(self, task: Callable[[], Result]) -> Result:
        pickled, thread = bytes(ForkingPickler.dumps(task)), get_ident()
        with self._lock:
            if self._is_ended:
                raise LostWorker("was ended")
            if thread not in self._processes:
                self._processes[thread] = _WorkerProcess()
            process = self._processes[thread]
        try:
            is_result, value = process.run(pickled)
        except LostWorker:
            with self._lock:
                del self._processes[thread]
            raise
        if not is_result:
            raise value
        return value  # type: ignore[no-any-return]


class _WorkerProcess:
    """One process and the pipe to it."""

    def __init__(self) -> None:
        context = WorkerContext()
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,))
        try:
            self._process.start()
        except OSError as error:
            raise RldsError(
                f"A worker process cannot be started ({error}).",
                advice="Use fewer workers, which need less memory; 0 works in this process.",
            ) from error
        finally:
            theirs.close()  # so that the pipe ends with the process

    def run(self, task: bytes) -> tuple[bool, Any]:
        """Run a pickled task; return (True, its result) or (False, its exception)."""
        try:
            self._pipe.send_bytes(task)
            # A child of the worker may hold the pipe open after the worker's end.
            while not self._pipe.poll(_POLL_SECONDS):
                if self._process.exitcode is not None:
                    raise EOFError
            answer = self._pipe.recv_bytes()
        except (EOFError, OSError):
            self._process.join(_POLL_SECONDS)
            self.kill()  # a worker that closed its pipe still lives
            self._process.join()
            self._pipe.close()
            raise LostWorker(how_ended(self._process.exitcode or 0)) from None
        is_result, value = pickle.loads(answer)
        return is_result, value

    def end(self) -> None:
        """End the idle process."""
        try:
            self._pipe.send_bytes(_END)
        except OSError:
            self.kill()
        self._process.join()
        self._pipe.close()

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()


def how_ended(exit_code: int) -> str:
    """Return how a process ended, as a predicate for messages."""
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    names = {int(each): each.name for each in signal.Signals}
    name = names.get(-exit_code, f"signal {-exit_code}")
    memory = ", as the system does when memory runs out" if name == "SIGKILL" else ""
    return f"was killed by {name}{memory}"


def _serve(pipe: Connection) -> None:
    """Run tasks in the worker process, one at a time, until the pipe ends."""
    with suppress(EOFError, OSError):  # the parent ended
        while task := pipe.recv_bytes():
            pipe.send_bytes(_answer(task))


def _answer(task: bytes) -> bytes:
    """Run a task; return its outcome, pickled, as ``_WorkerProcess.run`` returns it."""
    try:
        return bytes(ForkingPickler.dumps((True, pickle.loads(task)())))
    except Exception as error:
        if not isinstance(error, RldsError):
            error.add_note(f"In a worker process:\n{traceback.format_exc()}")
        try:
            answer = bytes(ForkingPickler.dumps((False, error)))
            pickle.loads(answer)  # some exceptions can be pickled, and not unpickled
        except Exception:
            substitute = RldsError(f"{type(error).__name__}: {error}")
            answer = bytes(ForkingPickler.dumps((False, substitute)))
        return answer
