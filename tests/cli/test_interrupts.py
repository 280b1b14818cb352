"""Signals before, during and after the work, and streams that the shell closed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import popen_fork, util
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import pytest

import datasets_cli
from datasets_cli.cli.main import main
from datasets_cli.core.progress import silent
from datasets_cli.preprocessing import origin
from tests.support.forked import Forked

SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143)]

# What the console script does, with a signal at the first import that takes time.
SIGNAL_AT_IMPORT = """
import os, sys
class Finder:
    def find_spec(self, name, *rest):
        if name == "typer":
            os.kill(os.getpid(), {number})
sys.meta_path.insert(0, Finder())
from datasets_cli.__main__ import run
sys.argv = ["rlds", "list"]
run()
"""


# Python ignores the exception there; the module system has such a callback for each import.
SIGNAL_IN_CALLBACK = """
import signal, time, weakref
from datasets_cli.cli.parser.command import Interrupted, interruptible
class Lock: pass
lock = Lock()
reference = weakref.ref(lock, lambda _: signal.raise_signal({number}))
try:
    with interruptible():
        del lock
        time.sleep(60)
except Interrupted as interrupted:
    raise SystemExit(interrupted.code)
"""


@pytest.mark.parametrize(
    "script", [SIGNAL_AT_IMPORT, SIGNAL_IN_CALLBACK], ids=["import", "weakref"]
)
@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_while_modules_are_imported_has_its_code_and_no_traceback(
    number: int, code: int, script: str
) -> None:
    command = [sys.executable, "-c", script.format(number=int(number))]
    done = subprocess.run(command, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, b"", b"")


@pytest.mark.parametrize("command", [["-m", "datasets_cli"], ["PATH/rlds"]], ids=str)
def test_an_interrupt_while_the_package_is_imported_ends_without_a_traceback(
    command: list[str], tmp_path: Path
) -> None:
    finder = SIGNAL_AT_IMPORT.partition("from datasets_cli")[0].format(number=int(signal.SIGINT))
    (tmp_path / "sitecustomize.py").write_text(finder.replace("typer", "datasets_cli.version"))
    (tmp_path / "rlds").write_text("from datasets_cli.__main__ import run\nrun()\n")
    done = subprocess.run(
        [sys.executable, *(each.replace("PATH", f"{tmp_path}") for each in command), "list"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}"}, capture_output=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


SLOW = """
import multiprocessing, os, pathlib, time
def slow(batch):
    if multiprocessing.parent_process():
        pathlib.Path(f"{os.getpid()}.begun").touch()
        time.sleep(120)
    return batch
"""


SMALL_PARTS = """
import sys
from datasets_cli.preprocessing import origin
origin.rows_per_block = lambda row_bytes: 200  # so that there is work for each worker
from datasets_cli.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


class ForkedWorker(popen_fork.Popen):
    """A worker that is forked without the signal handlers of its parent, as one that is spawned."""

    def _launch(self, process_obj: Any) -> None:
        run = process_obj.run

        def run_as_spawned() -> None:
            for number, _ in SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            run()

        process_obj.run = run_as_spawned  # in the worker: its parent may fork it in a thread
        super()._launch(process_obj)


def forked(arguments: list[str], folder: Path) -> Forked:
    """A command that is a session of its own, in a fork; so are its workers."""

    def command() -> int:
        os.setsid()
        origin.rows_per_block = lambda row_bytes: 200
        SpawnProcess._Popen = staticmethod(ForkedWorker)  # type: ignore[assignment]
        try:
            return main(arguments)
        finally:  # as Python ends
            threading._shutdown()  # type: ignore[attr-defined]
            util._exit_function()  # type: ignore[attr-defined]

    return Forked(command, folder)


class Started:
    def __init__(self, arguments: list[str], folder: Path) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-c", SMALL_PARTS, *arguments],
            cwd=folder,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.pid = self._child.pid

    def assert_running(self) -> None:
        assert self._child.poll() is None

    def finish(self) -> tuple[int, str]:
        _, error = self._child.communicate(timeout=30)
        return self._child.returncode, error


Start = Callable[[int], tuple[Forked | Started, list[int]]]


@pytest.fixture(params=[forked, pytest.param(Started, marks=pytest.mark.slow)])
def start(request: pytest.FixtureRequest, door: str, tmp_path: Path) -> Start:
    """Start ``rlds preprocess`` with workers that sleep, and give their ids once they do."""

    def begin(num_workers: int) -> tuple[Forked | Started, list[int]]:
        (tmp_path / "slow.py").write_text(SLOW)
        arguments = ["preprocess", door, "--fn", "slow:slow", "--name", "x"]
        child = request.param([*arguments, "--workers", str(num_workers)], tmp_path)
        while len(begun := [*tmp_path.glob("*.begun")]) < num_workers:
            child.assert_running()
            time.sleep(0.02)
        return child, [int(path.stem) for path in begun]

    return begin


def test_ctrl_c_in_a_terminal_reaches_the_workers_too_and_only_the_command_speaks(
    start: Start,
) -> None:
    child, _ = start(2)
    os.killpg(child.pid, signal.SIGINT)
    code, error = child.finish()
    assert code == 130
    assert error.splitlines()[-1].startswith("Interrupted.") and "Traceback" not in error


def test_an_interrupt_ends_the_workers_too(start: Start) -> None:
    child, (worker,) = start(1)
    os.kill(child.pid, signal.SIGINT)
    code, error = child.finish()
    assert (code, "Traceback" in error) == (130, False)
    for _ in range(100):
        if not Path(f"/proc/{worker}").exists():
            break
        time.sleep(0.05)
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


@pytest.mark.parametrize(
    ("closed", "call", "code"),
    [
        (">&- 2>&-", "list", 0),
        ("<&- 2>&-", "info nosuch", 3),
        ("<&- >&- 2>&-", "delete demo/iris", 2),
    ],
)
def test_without_stdout_and_stderr_the_exit_code_still_says_it(
    closed: str, call: str, code: int, config: object
) -> None:
    datasets_cli.download("demo/iris", progress=silent)
    command = f"{sys.executable} -m datasets_cli {call} {closed}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, b"", b"")
