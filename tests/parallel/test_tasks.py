"""Tasks on executors: order, results, cancellation, and a worker that dies."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from typing import Any

import pytest

from datasets_cli.errors import RldsError
from datasets_cli.parallel.local import local_pool
from datasets_cli.parallel.tasks import CallingProcess, run_tasks


def square(number: int) -> int:
    return number * number


def die(number: int) -> int:
    os._exit(1)


def sleep(seconds: float) -> None:
    time.sleep(seconds)


@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_every_task_comes_once_with_its_result(num_workers: int) -> None:
    with local_pool(num_workers) as pool:
        done = list(run_tasks(pool, square, range(7), ""))
    assert sorted(done) == [(number, number * number) for number in range(7)]


def test_the_calling_process_works_only_as_results_are_asked_for() -> None:
    begun: list[int] = []
    results = run_tasks(CallingProcess(), begun.append, [1, 2, 3], "")
    assert next(results) == (1, None) and begun == [1]
    assert next(results) == (2, None) and begun == [1, 2]


def test_what_is_not_begun_is_cancelled_when_a_task_fails() -> None:
    begun: list[int] = []
    gate = threading.Event()

    def fail_first(number: int) -> None:
        begun.append(number)
        if number == 0:
            raise ValueError("the first")
        gate.wait(30)

    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(ValueError, match="the first"):
            list(run_tasks(pool, fail_first, range(9), ""))
        gate.set()
    assert len(begun) <= 2  # the next one may have begun already


def test_what_was_taken_is_cancelled_when_no_more_is() -> None:
    class Shut(ThreadPoolExecutor):
        def submit(self, *arguments: Any, **options: Any) -> Future[Any]:
            if taken:
                raise BrokenExecutor("lost")
            taken.append(Future())
            return taken[-1]

    taken: list[Future[Any]] = []
    with pytest.raises(RldsError, match="A worker process died"), Shut(1) as pool:
        list(run_tasks(pool, square, [1, 2], ""))
    assert taken[0].cancelled()


def test_a_worker_that_dies_is_an_error_that_says_what_is_kept() -> None:
    message = r"A worker process died.* The rest is kept\. Use fewer"
    with pytest.raises(RldsError, match=message), local_pool(1) as pool:
        list(run_tasks(pool, die, [1, 2], "The rest is kept."))


def test_an_error_ends_the_workers_without_waiting_for_them() -> None:
    begun = time.monotonic()
    with pytest.raises(ZeroDivisionError), local_pool(1) as pool:
        pool.submit(square, 1).result()  # the process has started
        pool.submit(sleep, 100)
        raise ZeroDivisionError
    assert time.monotonic() - begun < 50
