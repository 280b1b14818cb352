"""Commands in forked processes, which have imported everything: a start takes no seconds."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import torch


class Forked:
    """A process like one that a shell starts: nothing of pytest is left in it."""

    def __init__(self, function: Callable[[], int], folder: Path, **environment: str) -> None:
        self._error = folder.with_suffix(f".{time.monotonic_ns()}.stderr")
        self._error.touch()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _become(function, folder, self._error, environment)

    def error_line(self) -> str:
        while "\n" not in (text := self._error.read_text()):
            self.assert_running()
            time.sleep(0.01)
        return text.splitlines()[0]

    def assert_running(self) -> None:
        assert os.waitpid(self.pid, os.WNOHANG) == (0, 0), self._error.read_text()

    def finish(self) -> tuple[int, str]:
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status), self._error.read_text()


def _become(
    function: Callable[[], int], folder: Path, error: Path, environment: dict[str, str]
) -> None:
    """Be the new process, which never returns."""
    code = 70
    try:
        signal.alarm(100)  # a test that hangs ends
        torch.set_num_threads(1)  # a forked process does not have the threads of its parent
        with error.open("wb") as file:
            os.dup2(file.fileno(), 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.stdout, sys.stderr = open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
        logging.getLogger().handlers.clear()
        warnings.resetwarnings()
        os.environ.update(environment)
        os.chdir(folder)
        sys.path.insert(0, str(folder))
        code = function()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
