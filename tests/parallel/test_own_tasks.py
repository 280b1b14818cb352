"""Tasks of one piece of work on an executor that others use."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from datasets_cli.parallel.tasks import OwnTasks


def test_at_the_end_none_of_the_tasks_runs_and_those_of_others_do() -> None:
    done: list[str] = []
    begun, release = threading.Event(), threading.Event()

    def first() -> None:
        begun.set()
        release.wait()
        done.append("first")

    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(ZeroDivisionError), OwnTasks(pool) as own:
            own.submit(first)
            own.submit(done.append, "second")
            others = pool.submit(done.append, "of others")
            begun.wait()
            threading.Timer(0.05, release.set).start()
            raise ZeroDivisionError
        assert done[0] == "first"
        others.result()
    assert done == ["first", "of others"]


def test_what_an_executor_has_cancelled_at_its_end_is_not_waited_for() -> None:
    release = threading.Event()
    pool = ThreadPoolExecutor(1)
    with OwnTasks(pool) as own:
        own.submit(release.wait)
        own.submit(release.wait)
        pool.shutdown(wait=False, cancel_futures=True)
        release.set()
