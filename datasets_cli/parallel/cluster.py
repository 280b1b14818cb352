"""What executors have in common; of Dask and Ray, what each worker answers, and what is lost."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from functools import partial
from typing import Any, ParamSpec, TypeVar

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")

WorkerOutcome = Any
"""What a function returned on a worker, or the exception that it raised there."""

Tell = Callable[[bytes, Any], bytes]
"""Calls ``call`` of an actor with a message and what was put; LostWorker where it is gone."""

ROOM_SECONDS = 120.0
"""That an actor waits for a worker: one that starts, or starts again, imports torch."""


class TaskExecutor(Executor):
    """An executor that is handed each task as a call without arguments."""

    @abstractmethod
    def begin(self, task: Callable[[], Result]) -> Future[Result]:
        """Hand a task to what runs it, and return its future."""

    def submit(
        self, fn: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Future[Result]:
        """Hand a function and its arguments over as one call, and return its future."""
        return self.begin(partial(fn, *args, **kwargs))


class Cluster(TaskExecutor):
    """An executor whose workers are processes of other machines, or of this one."""

    @abstractmethod
    def ask_each(self, function: Callable[[Any], Any], argument: Any) -> dict[str, WorkerOutcome]:
        """Call a function once on each worker that is there, and return the outcomes by worker."""

    @abstractmethod
    def actor(self, kind: type, argument: Any) -> Tell:
        """Make an object alone in the process of a worker, until nothing tells it more."""

    @abstractmethod
    def put(self, value: Any) -> Any:
        """Send a value to where the workers are, once; return what stands for it in ``Tell``."""


def pass_on(
    outcome: Callable[[], Any], meaning: Callable[[Exception], Exception], future: Future[Any]
) -> None:
    """Give a future what an engine's own future has."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = outcome()
    except Exception as error:
        future.set_exception(meaning(error))
    else:
        future.set_result(result)


@contextmanager
def quiet(*loggers: str) -> Iterator[None]:
    """Keep an engine from logging, in many lines, what we say in one."""
    named = [logging.getLogger(name) for name in loggers]
    levels = [logger.level for logger in named]
    for logger in named:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(named, levels, strict=True):
            logger.setLevel(level)


class LostWorker(Exception):
    """The worker of a task ended before the task did; other tasks are not affected."""

    def __init__(self, how: str, num_workers: int = 1) -> None:
        super().__init__(how, num_workers)
        self.how, self.num_workers = how, num_workers


class LostCluster(Exception):
    """Nothing runs tasks any more; the text says what was lost, and what to do."""


def no_room(engine: str) -> LostCluster:
    """Return the error of a cluster that has no worker for an actor."""
    return LostCluster(
        f"{engine} had no free worker for {ROOM_SECONDS:.0f} seconds; each process that collects "
        "needs one. Start more workers, or collect in fewer processes."
    )
