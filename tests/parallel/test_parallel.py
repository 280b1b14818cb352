"""Parallel work: pools of processes, clusters, tasks and what is lost."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from multiprocessing import popen_spawn_posix
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import pytest

from datasets_cli.cli.main import main
from datasets_cli.errors import RldsError, UsageError, install_extra
from datasets_cli.parallel import dask_cluster, engine
from datasets_cli.parallel.engine import Workers
from datasets_cli.parallel.local import how_ended, local_pool
from datasets_cli.parallel.tasks import CallingProcess, OwnTasks, run_tasks
from datasets_cli.parallel.workers import Worker
from tests.support.events import Events


def dies(task: tuple[Path, int, int]) -> int:
    """Kill this process as often as a folder does not have that number of files for the task."""
    folder, number, times = task
    done = len(list(folder.glob(f"{number}-*")))
    if done < times:
        (folder / f"{number}-{done}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def name(task: tuple[Path, int, int]) -> str:
    return f"part {task[1]}"


def test_a_killed_worker_costs_its_own_task_which_is_tried_again(tmp_path: Path) -> None:
    tasks = [(tmp_path, number, 2 * (number == 3)) for number in range(8)]
    events = Events()
    with local_pool(2) as pool:
        done = list(run_tasks(pool, dies, tasks, "", name=name, progress=events))
    assert sorted(number for _, number in done) == list(range(8))
    killed = "the worker of part 3 was killed by SIGKILL, as the system does when memory runs out"
    assert events.notes == [f"{killed}; it is tried again"] * 2


def test_a_task_that_kills_every_worker_is_an_error_that_names_it(tmp_path: Path) -> None:
    message = r"each time that it worked on part 1: the last one was killed by SIGKILL.*It stays\."
    with pytest.raises(RldsError, match=message), local_pool(2) as pool:
        tasks = [(tmp_path, number, 9 * (number == 1)) for number in range(4)]
        list(run_tasks(pool, dies, tasks, "It stays.", name=name))
    assert len(list(tmp_path.iterdir())) == 3


def exit_by_itself(code: int) -> None:
    sys.exit(code)


def test_a_function_that_exits_ends_its_worker_and_not_the_caller() -> None:
    message = r"A worker process died.*ended with exit code 5.* The rest is kept\. Use fewer"
    with pytest.raises(RldsError, match=message), local_pool(1) as pool:
        list(run_tasks(pool, exit_by_itself, [5], "The rest is kept."))


def fork_and_die(seconds: float) -> None:
    if os.fork() == 0:  # holds the worker's pipe open
        time.sleep(seconds)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_dead_worker_whose_child_lives_is_noticed() -> None:
    begun = time.monotonic()
    with pytest.raises(RldsError, match="SIGKILL"), local_pool(1) as pool:
        list(run_tasks(pool, fork_and_die, [60.0], ""))
    assert time.monotonic() - begun < 50


class Odd(Exception):
    """Pickles, and cannot be made again."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first)


def raise_odd(number: int) -> None:
    raise Odd("it is odd", "")


def raise_plain(number: int) -> None:
    raise ValueError("it is plain")


def return_what_does_not_pickle(number: int) -> object:
    return lambda: number


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (raise_odd, RldsError, "Odd: it is odd"),
        (raise_plain, ValueError, "it is plain"),
        (return_what_does_not_pickle, Exception, "pickle"),
    ],
)
def test_what_a_task_raises_comes_back_and_the_worker_stays(
    function: object, error: type[Exception], message: str
) -> None:
    with local_pool(1) as pool:
        process = pool.submit(os.getpid).result()
        with pytest.raises(error, match=message):
            pool.submit(function, 1).result()  # type: ignore[arg-type]
        assert pool.submit(os.getpid).result() == process


def test_no_process_is_left_after_the_work_or_an_error() -> None:
    with local_pool(2) as pool:
        assert list(run_tasks(pool, abs, [-1, -2, -3], "")) is not None
    with pytest.raises(ValueError, match="plain"), local_pool(2) as pool:
        list(run_tasks(pool, raise_plain, [1, 2, 3], ""))
    assert not multiprocessing.active_children()


def test_how_a_process_ended_is_told_by_its_signal_or_exit_code() -> None:
    assert how_ended(3) == "ended with exit code 3"
    assert how_ended(-signal.SIGSEGV) == "was killed by SIGSEGV"


class CtrlC:
    """Comes while a process reads what it is told, before it does anything."""

    def __reduce__(self) -> tuple[Callable[[int], None], tuple[int]]:
        return signal.raise_signal, (signal.SIGINT,)


def test_a_worker_that_starts_leaves_ctrl_c_to_its_parent(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(SpawnProcess, "_Popen", staticmethod(popen_spawn_posix.Popen))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    worker = Worker(target=print, args=(CtrlC(),))
    worker.start()
    worker.join()
    assert (worker.exitcode, capfd.readouterr().err) == (0, "")
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


class MetByCtrlC(popen_spawn_posix.Popen):
    """Has this process interrupted, as when another thread took the signal."""

    def _launch(self, process_obj: object) -> None:
        signal.getsignal(signal.SIGINT)(signal.SIGINT, None)  # type: ignore[operator,misc]
        super()._launch(process_obj)  # type: ignore[misc]


def test_ctrl_c_while_a_worker_is_told_what_to_do_comes_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SpawnProcess, "_Popen", staticmethod(MetByCtrlC))
    worker = Worker(target=print)
    with pytest.raises(KeyboardInterrupt):
        worker.start()
    worker.join()
    assert worker.exitcode == 0


def square(number: int) -> int:
    return number * number


def sleep(seconds: float) -> None:
    time.sleep(seconds)


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


def test_an_error_ends_the_workers_without_waiting_for_them() -> None:
    begun = time.monotonic()
    with pytest.raises(ZeroDivisionError), local_pool(1) as pool:
        pool.submit(square, 1).result()  # the process has started
        pool.submit(sleep, 100)
        raise ZeroDivisionError
    assert time.monotonic() - begun < 50


WRONG: list[tuple[dict[str, Any], str, object]] = [
    ({"engine": "spark"}, "engine", "spark"),
    ({"engine": "dask"}, "address", None),
    ({"address": "tcp://host:1"}, "address", "tcp://host:1"),
    ({"num_workers": -1}, "num_workers", -1),
    ({"num_workers": "2"}, "num_workers", "2"),
    ({"executor": "dask"}, "executor", "str"),
    ({"engine": "dask", "address": 8786}, "address", 8786),
    ({"engine": "ray", "executor": ThreadPoolExecutor(1)}, "executor", None),
]


@pytest.mark.parametrize(("arguments", "name", "found"), WRONG)
def test_workers_that_cannot_be_are_refused(
    arguments: dict[str, Any], name: str, found: object
) -> None:
    with pytest.raises(UsageError) as caught:
        Workers(**arguments)
    assert (caught.value.argument, caught.value.found) == (name, found)


@pytest.mark.parametrize(("name", "address"), [("dask", "tcp://host:1"), ("ray", None)])
def test_an_engine_that_is_not_installed_says_what_to_install(
    name: Any, address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "find_spec", lambda name: None)
    with pytest.raises(UsageError) as caught:
        Workers(engine=name, address=address)
    assert caught.value.advice == install_extra(name)


@pytest.mark.parametrize(
    ("name", "address"), [("dask", "tcp://127.0.0.1:9"), ("ray", "127.0.0.1:9")]
)
def test_a_cluster_that_does_not_answer_is_an_error_within_its_time(
    name: Any, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_cluster, "CONNECT_SECONDS", 0.3)
    with pytest.raises(RldsError) as caught, Workers(engine=name, address=address).pool():
        pass
    assert caught.value.found == address and isinstance(caught.value.__cause__, OSError)


def test_the_command_line_passes_the_engine_on(
    door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(dask_cluster, "CONNECT_SECONDS", 0.3)
    (tmp_path / "same_rows.py").write_text("def same(batch):\n    return batch\n")
    call = ["preprocess", door, "--fn", "same_rows:same", "--name", "x", "--engine", "dask"]
    assert main([*call, "--address", "tcp://127.0.0.1:9"]) == 1
    assert "tcp://127.0.0.1:9" in capsys.readouterr().err
    assert main(call) == 2
    assert "needs the address" in capsys.readouterr().err
    assert main([*call, "--workers", "2"]) == 2
    assert "Omit --workers or --engine" in capsys.readouterr().err


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
