"""Processes of this machine: one that is killed costs its own task, and nothing hangs."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing import popen_spawn_posix
from multiprocessing.context import SpawnProcess
from pathlib import Path

import pytest

from datasets_cli.errors import RldsError
from datasets_cli.parallel.local import how_ended, local_pool
from datasets_cli.parallel.tasks import run_tasks
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
    with pytest.raises(RldsError, match="ended with exit code 5"), local_pool(1) as pool:
        list(run_tasks(pool, exit_by_itself, [5], ""))


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
