"""Signals before, during and after the work, and streams that the shell closed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from datasets_cli import api
from datasets_cli.cli import main as cli
from datasets_cli.cli.main import main
from datasets_cli.progress import Silent

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


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_while_modules_are_imported_has_its_code_and_no_traceback(
    number: int, code: int
) -> None:
    script = SIGNAL_AT_IMPORT.format(number=int(number))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, b"", b"")


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_that_comes_in_a_destructor_is_not_lost(
    number: int, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Last:
        def __del__(self) -> None:
            signal.raise_signal(number)

    def work(*_: object, **__: object) -> None:
        Last()  # what a destructor raises, Python drops
        time.sleep(30)

    monkeypatch.setattr(api, "dataset_path", work)
    assert main(["path", "demo/iris"]) == code
    error = capsys.readouterr().err
    assert "run the same command again" in error and "Traceback" not in error


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_that_comes_while_one_is_sent_again_is_not_lost(
    number: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, sent = cli._send_later, []

    class Last:
        def __del__(self) -> None:
            signal.raise_signal(number)

    def send_at_once(number: int) -> None:
        sent.append(number)
        if len(sent) == 1:  # as where the system has run the other thread first
            signal.raise_signal(number)
        else:
            send(number)

    def work(*_: object, **__: object) -> None:
        Last()
        time.sleep(30)

    monkeypatch.setattr(cli, "_send_later", send_at_once)
    monkeypatch.setattr(api, "dataset_path", work)
    assert main(["path", "demo/iris"]) == code and sent == [number, number]


def test_ctrl_c_in_a_terminal_reaches_the_workers_too_and_only_the_command_speaks(
    door: str, tmp_path: Path
) -> None:
    (tmp_path / "slow.py").write_text(
        "import time, pathlib\n"
        "def slow(batch):\n"
        "    if len(batch) > 2:\n"
        "        pathlib.Path('begun').touch()\n"
        "        time.sleep(60)\n"
        "    return batch\n"
    )
    arguments = ["preprocess", door, "--fn", "slow:slow", "--out", "x", "--workers", "2"]
    child = subprocess.Popen(
        [sys.executable, "-m", "datasets_cli", *arguments],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not (tmp_path / "begun").exists():
        assert child.poll() is None
        time.sleep(0.02)
    os.killpg(child.pid, signal.SIGINT)
    _, error = child.communicate(timeout=30)
    assert child.returncode == 130
    assert error.splitlines()[-1].startswith("Interrupted.") and "Traceback" not in error


@pytest.mark.parametrize(
    ("call", "code"), [("list", 0), ("info nosuch", 3), ("delete demo/iris", 2)]
)
@pytest.mark.parametrize("closed", [">&- 2>&-", "<&- >&- 2>&-"])
def test_without_stdout_and_stderr_the_exit_code_still_says_it(
    closed: str, call: str, code: int, config: object
) -> None:
    api.download("demo/iris", progress=Silent())
    command = f"{sys.executable} -m datasets_cli {call} {closed}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, b"", b"")
