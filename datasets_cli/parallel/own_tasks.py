"""The tasks of one piece of work, on an executor that others use at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from concurrent.futures import wait as wait_for
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


@contextmanager
def own_tasks(executor: Executor) -> Iterator[Executor]:
    """Give an executor that passes tasks on; none of them runs any more at its end."""
    # What they write can then be removed, after an error too.
    with _OwnTasks(executor) as own:
        yield own


class _OwnTasks(Executor):
    """Passes tasks on to an executor that others use too, and ends none but these."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._futures: list[Future[Any]] = []

    def submit(
        self, fn: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Future[Result]:
        future = self._executor.submit(fn, *args, **kwargs)
        self._futures.append(future)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Cancel what is not begun, and wait for the rest."""
        # Not for what is cancelled: an executor that has ended never notices that.
        wait_for([future for future in self._futures if not future.cancel()])
