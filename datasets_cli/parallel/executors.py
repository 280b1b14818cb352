"""Where parallel work runs: anything that is a ``concurrent.futures.Executor``."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor, Future
from multiprocessing.pool import Pool
from typing import ParamSpec, TypeVar

from datasets_cli.errors import UsageError
from datasets_cli.parallel.local import LocalWorkers

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


class CallingProcess(Executor):
    """An executor that runs each task at once in the calling process, for debugging."""

    def submit(
        self, fn: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Future[Result]:
        """Run the task and return its finished future."""
        future: Future[Result] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class PoolExecutor(Executor):
    """An executor that runs tasks on a pool of ``multiprocessing``, which is the caller's to
    end.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def submit(
        self, fn: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Future[Result]:
        """Hand the task to the pool and return its future."""
        future: Future[Result] = Future()
        future.set_running_or_notify_cancel()  # a pool does not take back what it was handed
        self._pool.apply_async(fn, args, kwargs, future.set_result, future.set_exception)
        return future


def local_executor(num_workers: int | None) -> Executor:
    """Return an executor on this machine."""
    if num_workers is None:
        num_workers = os.cpu_count() or 1
    if num_workers < 0:
        raise UsageError(f"{num_workers} workers cannot work; expected 0 or more.")
    if num_workers == 0:
        return CallingProcess()
    return LocalWorkers(num_workers)
