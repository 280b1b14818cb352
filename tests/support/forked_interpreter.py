"""What a fork of the server does to be like a started Python; see ``interpreters``.

The server imports this file, so that nothing of ours may be imported at its top.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import runpy
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver, process
from multiprocessing.context import SpawnProcess
from multiprocessing.reduction import DupFd
from multiprocessing.resource_tracker import ensure_running
from pathlib import Path
from types import ModuleType
from typing import Any

_PATH = sys.path[1:]  # all but the folder that Python was started in


class Setting:
    """The environment and streams of a process, which a fork takes where it reads this."""

    def __init__(self, streams: Sequence[int], environment: Mapping[str, str]) -> None:
        self._streams, self._environment = streams, environment

    def __reduce__(self) -> Any:
        return _take, (dict(self._environment), [DupFd(stream) for stream in self._streams])


def _take(environment: dict[str, str], streams: list[Any]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    for stream, number in zip(streams, (0, 1, 2)[-len(streams) :], strict=True):
        descriptor = stream.detach()
        os.dup2(descriptor, number)
        os.close(descriptor)


def run_like_python(popen: Any, arguments: list[str]) -> None:
    SpawnProcess._Popen = staticmethod(popen)  # type: ignore[assignment,method-assign]
    # multiprocessing would start another server.
    forkserver._forkserver.ensure_running = ensure_running  # type: ignore[attr-defined]
    multiprocessing.set_start_method(None, force=True)
    process.ORIGINAL_DIR = str(Path.cwd())  # type: ignore[attr-defined]
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    try:
        _run(*arguments)
    except Exception:
        traceback.print_exc()
        sys.exit(1)
    finally:  # in Python's order, which is not that of multiprocessing
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()


def _run(what: str, *rest: str) -> None:
    if what == "-m":
        sys.path[:], sys.argv = [str(Path.cwd()), *_PATH], [*rest]
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        return
    sys.path[:], sys.argv = ["", *_PATH], [what, *rest]
    main = sys.modules["__main__"] = ModuleType("__main__")
    if what == "-c":
        text, name, sys.argv = rest[0], "<string>", ["-c", *rest[1:]]
    elif what == "-":
        text, name, main.__file__ = sys.stdin.read(), "<stdin>", "<stdin>"
    else:
        path = Path(what).resolve()
        text, name, main.__file__ = path.read_text(), str(path), str(path)
        sys.path[0] = str(path.parent)
    exec(compile(text, name, "exec"), main.__dict__)
