"""What Dask and Ray have in common: workers that can each be asked, and what is lost with them."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any

WorkerOutcome = Any
"""What a function returned on a worker, or the exception that it raised there."""


class Cluster(Executor):
    """An executor whose workers are processes of other machines, or of this one."""

    @abstractmethod
    def ask_each(self, function: Callable[[Any], Any], argument: Any) -> dict[str, WorkerOutcome]:
        """Call a function once on each worker that is there, and return the outcomes by worker."""


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
    found = [logging.getLogger(name) for name in loggers]
    levels = [logger.level for logger in found]
    for logger in found:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(found, levels, strict=True):
            logger.setLevel(level)


class LostWorker(Exception):
    """The worker of a task ended before the task did; other tasks are not affected."""

    def __init__(self, how: str, num_workers: int = 1) -> None:
        super().__init__(how, num_workers)
        self.how, self.num_workers = how, num_workers


class LostCluster(Exception):
    """Nothing runs tasks any more; the text says what was lost, and what to do."""
