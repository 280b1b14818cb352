"""Python processes, for tests of what scripts, shells and workers do.

``started`` is what a shell does; importing torch then takes some four seconds in each process.
``preloaded`` is for tests of something else than that: multiprocessing's fork server has imported
torch and others' packages, nothing of ours and nothing of a test's, and each process, workers
included, is a fork of it. What is of the caller comes as it comes to a started process: by
arguments, streams, the environment, and what a worker is told in a pickle.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, chdir, suppress
from multiprocessing import forkserver, popen_forkserver, spawn
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Protocol

from tests.support.forked_interpreter import Setting, run_like_python
from tests.support.paths import PROJECT

_OTHERS = [
    *("torch", "torch.utils.data", "tensordict", "h5py", "cloudpickle", "typer", "tqdm"),
    *("gymnasium", "pytest", "hypothesis"),  # the latter for functions of test modules
]
_SECONDS = 200  # after which a process that hangs is killed

Done = subprocess.CompletedProcess[str]


class Python(Protocol):
    """A way to run a Python."""

    def __call__(self, *arguments: str, folder: Path | None = None, text: str = "") -> Done:
        """Run it to its end."""


def started(*arguments: str, folder: Path | None = None, text: str = "") -> Done:
    """Run a Python, as a shell does."""
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=folder, input=text, capture_output=True, text=True, timeout=_SECONDS,
        check=False,
    )  # fmt: skip


def imported_by(code: str, *arguments: str) -> set[str]:
    """Run code in a Python as a shell does; return the packages that it imports."""
    names = "{name.partition('.')[0] for name, module in sys.modules.items() if module}"
    done = started("-c", f"{code}\nimport sys; print(*{names})", *arguments)
    assert done.returncode == 0, done.stderr
    return {*done.stdout.splitlines()[-1].split()}


def imported_by_commands(*commands: str) -> set[str]:
    code = "import sys; from datasets_cli.cli.main import main\n"
    return imported_by(f"{code}for each in sys.argv[1:]: assert main(each.split()) == 0", *commands)


def preloaded(*arguments: str, folder: Path | None = None, text: str = "") -> Done:
    """Do the same in a fork of a process that has imported torch; its workers are forks, too."""
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(3)]
        files[0].write(text)
        files[0].seek(0)
        streams = [file.fileno() for file in files]
        with chdir(folder or "."):
            process = fork(*arguments, streams=streams)
        process.join(_SECONDS)
        process.kill()
        assert process.exitcode is not None, f"{arguments} took over {_SECONDS} s"
        for file in files:
            file.seek(0)
        _, output, error = (file.read() for file in files)
        return Done(arguments, process.exitcode, output, error)


def fork(
    *arguments: str,
    streams: Sequence[int],
    environment: Mapping[str, str] | None = None,
) -> SpawnProcess:
    """Start a Python as a fork of the server."""
    process = _Fork(target=run_like_python, args=(PreloadedPopen, [*arguments]))
    process.setting = Setting(streams, os.environ if environment is None else environment)
    process.start()
    return process


class Piped:
    """A Python in a fork of the server, which reads from a pipe and writes into another."""

    def __init__(self, *arguments: str) -> None:
        (theirs, ours), (output, written) = os.pipe(), os.pipe()
        self._process = fork(*arguments, streams=[theirs, written, 2])
        os.close(theirs)
        os.close(written)
        self._input, self.stdout = open(ours, "w"), open(output)  # noqa: SIM115

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def __enter__(self) -> Piped:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        self._input.close()
        self.stdout.close()

    def kill(self) -> None:
        self._process.kill()

    def write(self, text: str) -> None:
        """Give it a text to read."""
        self._input.write(text)
        self._input.flush()

    def finish(self, text: str = "") -> int:
        """Give it a text to read, wait for its end, and return its exit code."""
        with suppress(BrokenPipeError), self._input:
            self._input.write(text)
        with self.stdout:
            self.stdout.read()
        self._process.join(_SECONDS)
        assert self.returncode is not None
        return self.returncode


class PreloadedPopen(popen_forkserver.Popen):
    """Starts a process as a fork of the server; for multiprocessing, in place of spawning it."""

    def _launch(self, process_obj: Any) -> None:
        start_server()
        original = spawn.get_preparation_data
        setting = getattr(process_obj, "setting", Setting((1, 2), os.environ))
        # What is told first is read first, before the caller's main file is imported.
        spawn.get_preparation_data = lambda name: {"setting": setting, **original(name)}
        try:
            super()._launch(process_obj)
        finally:
            spawn.get_preparation_data = original


class _Fork(SpawnProcess):
    setting: Setting

    @staticmethod
    def _Popen(process_obj: Any) -> Any:  # noqa: N802
        return PreloadedPopen(process_obj)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "setting"}


def start_server() -> None:
    if forkserver.get_inherited_fds() is None:
        forkserver.set_forkserver_preload([*_OTHERS, run_like_python.__module__])
        with chdir(PROJECT):  # where it finds this package
            forkserver.ensure_running()
