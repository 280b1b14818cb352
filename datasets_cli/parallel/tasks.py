"""Tasks on any executor: results in the order of completion, lost workers, the first error."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from concurrent.futures import wait as wait_for
from functools import partial
from multiprocessing.pool import Pool
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from datasets_cli.core.progress import Note, Progress, silent
from datasets_cli.errors import RldsError

Task = TypeVar("Task")
Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")

MAX_LOST_WORKERS = 3
"""Attempts at a task whose worker dies each time."""


class LostWorker(Exception):
    """The worker of a task ended before the task did; other tasks are not affected."""

    def __init__(self, how: str, num_workers: int = 1) -> None:
        super().__init__(how, num_workers)
        self.how, self.num_workers = how, num_workers


class LostCluster(Exception):
    """The cluster does not answer. The message names it and the next step."""


class TaskExecutor(Executor):
    """An executor of calls without arguments."""

    @abstractmethod
    def begin(self, task: Callable[[], Result]) -> Future[Result]:
        """Submit a task and return its future."""

    def submit(
        self, fn: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Future[Result]:
        """Submit a function with its arguments and return its future."""
        return self.begin(partial(fn, *args, **kwargs))


class CallingProcess(TaskExecutor):
    """An executor that runs each task at once in the calling process, for debugging."""

    def begin(self, task: Callable[[], Result]) -> Future[Result]:
        """Run the task and return its finished future."""
        future: Future[Result] = Future()
        try:
            future.set_result(task())
        except Exception as error:
            future.set_exception(error)
        return future


class PoolExecutor(TaskExecutor):
    """An executor of a caller's ``multiprocessing`` pool, which it never ends."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def begin(self, task: Callable[[], Result]) -> Future[Result]:
        """Submit the task and return its future."""
        future: Future[Result] = Future()
        future.set_running_or_notify_cancel()  # a pool cannot cancel a task
        self._pool.apply_async(task, (), {}, future.set_result, future.set_exception)
        return future


class OwnTasks(TaskExecutor):
    """A part of a shared executor whose own tasks have all ended at its end."""

    # The files that they write can then be removed, also after an error.

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._futures: list[Future[Any]] = []

    def begin(self, task: Callable[[], Result]) -> Future[Result]:
        """Submit the task and return its future."""
        future = self._executor.submit(task)
        self._futures.append(future)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Cancel the tasks that have not started, and wait for the running ones."""
        # Not for cancelled ones: an executor that has ended never notifies them.
        wait_for([future for future in self._futures if not future.cancel()])


def run_tasks(
    executor: Executor,
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    kept: str,
    *,
    name: Callable[[Task], str] = lambda task: "a task",
    progress: Progress = silent,
) -> Iterator[tuple[Task, Result]]:
    """Yield each task with its result once it is done; in order in the calling process."""
    # A task whose worker is lost runs again in another one, if the executor reports the task. Tasks
    # that have not started are cancelled when one fails or the caller stops iterating.
    if isinstance(executor, CallingProcess):
        for task in tasks:
            yield task, function(task)
        return
    try:
        yield from _run_submitted(executor, function, tasks, kept, name, progress)
    except LostCluster as cluster:
        raise RldsError(f"{cluster} {kept}") from cluster
    # Cancelled: by an executor that lost what runs its tasks.
    except (BrokenExecutor, CancelledError) as error:
        raise RldsError(
            "A worker process died: it was killed, ran out of memory, or, in an executor of the "
            "caller's, could not start because the script has no "
            f'`if __name__ == "__main__":`. {kept}',
            advice="Use fewer workers, which need less memory; 0 works in this process.",
        ) from error


def _run_submitted(
    executor: Executor,
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    kept: str,
    name: Callable[[Task], str],
    progress: Progress,
) -> Iterator[tuple[Task, Result]]:
    # as_completed ignores futures that are added later.
    ended: SimpleQueue[Future[Result]] = SimpleQueue()
    numbers: dict[Future[Result], int] = {}
    lost: Counter[int] = Counter()

    def submit(number: int) -> None:
        future = executor.submit(function, tasks[number])
        numbers[future] = number
        future.add_done_callback(ended.put)

    try:
        for number in range(len(tasks)):
            submit(number)
        while numbers:
            future = ended.get()
            number = numbers.pop(future)
            try:
                result = future.result()
            except LostWorker as worker:
                lost[number] += worker.num_workers
                if lost[number] >= MAX_LOST_WORKERS:
                    raise RldsError(
                        f"A worker process died each time that it worked on {name(tasks[number])}: "
                        f"the last one {worker.how}. {kept}",
                        found=worker.how,
                        advice="Use fewer workers or smaller chunks, which need less memory; 0 "
                        "workers work in this process, where the cause may show.",
                    ) from worker
                text = f"the worker of {name(tasks[number])} {worker.how}; it is tried again"
                progress(Note(text))
                submit(number)
                continue
            yield tasks[number], result
    finally:
        for future in numbers:
            future.cancel()
