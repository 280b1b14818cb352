"""Tasks on an executor: each result as it is ready, and the end of all when one fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, as_completed
from contextlib import contextmanager
from typing import TypeVar

from datasets_cli.errors import RldsError
from datasets_cli.parallel.executors import CallingProcess, local_executor, stop

Task = TypeVar("Task")
Result = TypeVar("Result")


def run_tasks(
    executor: Executor, function: Callable[[Task], Result], tasks: Sequence[Task], kept: str
) -> Iterator[tuple[Task, Result]]:
    """Yield each task with its result, as they are done; in order in the calling process.

    What is not begun is cancelled when a task fails, or when the caller stops asking for more.

    Args:
        executor: where the tasks run.
        function: what a worker calls; it and the tasks can be pickled.
        tasks: every task.
        kept: a sentence that says what a broken run leaves.

    Raises:
        RldsError: a worker died, or all that the executor has; any other error of a task is raised
            as it is.
    """
    if isinstance(executor, CallingProcess):
        for task in tasks:
            yield task, function(task)
        return
    futures: dict[Future[Result], Task] = {}
    try:
        for task in tasks:
            futures[executor.submit(function, task)] = task
        for future in as_completed(futures):
            yield futures[future], future.result()
    # Cancelled: by an executor that lost what runs its tasks, such as the scheduler of a cluster.
    except (BrokenExecutor, CancelledError) as error:
        raise RldsError(
            "A worker process died: it was killed, ran out of memory, or, in an executor of the "
            "caller's, could not start because the script has no "
            f'`if __name__ == "__main__":`. {kept} Fewer workers need less memory; 0 work in this '
            "process."
        ) from error
    finally:
        for future in futures:
            future.cancel()


@contextmanager
def local_pool(num_workers: int | None) -> Iterator[Executor]:
    """Give an executor of this machine; after an error its workers are ended, not waited for.

    Args:
        num_workers: processes; all cores where None, the calling process where 0.

    Raises:
        UsageError: a negative number.
    """
    with local_executor(num_workers) as executor:
        try:
            yield executor
        except BaseException:
            stop(executor)
            raise
