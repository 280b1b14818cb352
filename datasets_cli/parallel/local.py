"""Processes of this machine, each with one task at a time: one that is killed costs that task."""

from __future__ import annotations

import pickle
import signal
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any, TypeVar

from datasets_cli.errors import RldsError
from datasets_cli.parallel.cluster import LostWorker, TaskExecutor
from datasets_cli.parallel.workers import WorkerContext

Result = TypeVar("Result")

_SECONDS_A_LOOK = 1.0  # at a worker whose pipe a process that it started may hold open
_END = b""


class LocalWorkers(TaskExecutor):
    """An executor of processes that start when needed; a new one takes a lost one's place."""

    # The future of a task whose process ended has a `LostWorker`, and no other future has. Use it
    # in a `with` statement.

    def __init__(self, num_workers: int) -> None:
        # A thread waits for each process, so that it is known which task a lost one had.
        self._num_workers = num_workers
        self._threads = ThreadPoolExecutor(num_workers, "waits for a worker")
        self._lock = threading.Lock()
        self._all: set[_WorkerProcess] = set()
        self._idle: list[_WorkerProcess] = []
        self._is_ended = False

    def begin(self, task: Callable[[], Result]) -> Future[Result]:
        """Return the future of a task that runs in the next free process."""
        with self._lock:
            if len(self._all) < self._num_workers and not self._is_ended:
                self._idle.append(self._start())
        return self._threads.submit(self._run, task)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes once they have done what was submitted; at once without ``wait``."""
        if not wait:  # each task writes what the next run writes again
            with self._lock:
                self._is_ended = True
                for worker in self._all:
                    worker.kill()
        self._threads.shutdown(wait=True, cancel_futures=cancel_futures or not wait)
        with self._lock:
            self._is_ended = True
            for worker in self._idle:
                worker.end()

    def _run(self, task: Callable[[], Result]) -> Result:
        pickled = bytes(ForkingPickler.dumps(task))
        worker = self._take()
        try:
            is_result, value = worker.run(pickled)
        except LostWorker:
            with self._lock:
                self._all.discard(worker)
            raise
        with self._lock:
            self._idle.append(worker)
        if not is_result:
            raise value
        return value  # type: ignore[no-any-return]

    def _take(self) -> _WorkerProcess:
        with self._lock:
            if self._is_ended:
                raise LostWorker("was ended")
            # There are as many threads as processes: without an idle one, one was lost.
            return self._idle.pop() if self._idle else self._start()

    def _start(self) -> _WorkerProcess:
        worker = _WorkerProcess()
        self._all.add(worker)
        return worker


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
                f"A worker process cannot be started ({error}). Fewer workers need less memory and "
                "fewer processes; 0 work in this process."
            ) from error
        finally:
            theirs.close()  # so that the end of the process is the end of the pipe

    def run(self, task: bytes) -> tuple[bool, Any]:
        """Return whether a task gave a result, and that, or what it raised."""
        try:
            self._pipe.send_bytes(task)
            # What the worker forked may hold the pipe open when the worker itself is gone.
            while not self._pipe.poll(_SECONDS_A_LOOK):
                if self._process.exitcode is not None:
                    raise EOFError
            answer = self._pipe.recv_bytes()
        except (EOFError, OSError):
            self._process.join(_SECONDS_A_LOOK)
            self.kill()  # one that closed its pipe lives
            self._process.join()
            self._pipe.close()
            raise LostWorker(how_ended(self._process.exitcode or 0)) from None
        is_result, value = pickle.loads(answer)
        return is_result, value

    def end(self) -> None:
        """Let the process end, which waits for work."""
        try:
            self._pipe.send_bytes(_END)
        except OSError:
            self.kill()
        self._process.join()
        self._pipe.close()

    def kill(self) -> None:
        """End the process at once; one that is dead keeps its exit code."""
        self._process.kill()


def how_ended(exit_code: int) -> str:
    """Return what ended a process, as it follows its name in messages."""
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    names = {int(each): each.name for each in signal.Signals}
    name = names.get(-exit_code, f"signal {-exit_code}")
    memory = ", as the system does where memory runs out" if name == "SIGKILL" else ""
    return f"was killed by {name}{memory}"


def _serve(pipe: Connection) -> None:
    """Do one task after the other; runs in the process."""
    while True:
        try:
            task = pipe.recv_bytes()
        except (EOFError, OSError):  # the parent is gone
            return
        if task == _END:
            return
        answer = _answer(task)
        try:
            pipe.send_bytes(answer)
        except OSError:
            return


def _answer(task: bytes) -> bytes:
    """Run a task; return, pickled, whether it gave a result, and that or what it raised."""
    try:
        return bytes(ForkingPickler.dumps((True, pickle.loads(task)())))
    except Exception as error:
        if not isinstance(error, RldsError):
            error.add_note(f"In a worker process:\n{traceback.format_exc()}")
        try:
            answer = bytes(ForkingPickler.dumps((False, error)))
            pickle.loads(answer)  # some exceptions pickle, and cannot be made again
        except Exception:
            told = RldsError(f"{type(error).__name__}: {error}")
            answer = bytes(ForkingPickler.dumps((False, told)))
        return answer
