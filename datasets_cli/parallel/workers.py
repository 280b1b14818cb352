"""Worker processes that never import the caller's main file, and pickles of functions for them.

A process that multiprocessing spawns imports the caller's main file to find its functions. A script
without a guard (``if __name__ == "__main__":``) would then run a second time in each worker. Here
the functions of the main file are pickled by value, so workers do not need the file.
"""

from __future__ import annotations

import functools
import io
import pickle
import signal
import sys
import threading
from collections import ChainMap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker, spawn
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import cloudpickle

from datasets_cli.errors import UsageError
from datasets_cli.parallel.user_code import file_of, is_of_user, is_stale

_MAIN_FILE = ("init_main_from_name", "init_main_from_path")
_CTRL_C = frozenset({signal.SIGINT})
_lock = threading.Lock()


@contextmanager
def _ctrl_c_after() -> Iterator[None]:
    """Delay a Ctrl-C until the end of the block."""
    # A process that received half of its arguments would end with a traceback.
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    numbers: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: numbers.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        for number in numbers[:1]:
            signal.raise_signal(number)


class Worker(SpawnProcess):
    """A process without the caller's main file, which leaves Ctrl-C to its parent."""

    # A terminal sends Ctrl-C to both, from the first moment: a Python that starts, or imports
    # torch, would end with a traceback, or abort where C does not expect an exception.

    def start(self) -> None:
        """Start the process with Ctrl-C blocked, in it and in this thread."""
        resource_tracker.ensure_running()  # its own start would unblock Ctrl-C again
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _CTRL_C)
        try:
            with _ctrl_c_after(), without_main_file():
                super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def run(self) -> None:
        """Run the target of the process."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _CTRL_C)
        super().run()


class WorkerContext(SpawnContext):
    """The context of processes of a pool or a ``DataLoader``."""

    # Processes are spawned, never forked: torch's threads would leave locks held in the child.

    Process = Worker


@contextmanager
def without_main_file() -> Iterator[None]:
    """Leave the main file out of the preparation data of processes that this thread spawns."""
    thread = threading.get_ident()
    with _lock:
        original: Callable[[str], dict[str, Any]] = spawn.get_preparation_data

        def remaining_data(name: str) -> dict[str, Any]:
            data = original(name)
            if threading.get_ident() == thread:  # another thread may spawn a process, too
                data = {key: value for key, value in data.items() if key not in _MAIN_FILE}
            return data

        spawn.get_preparation_data = remaining_data
        try:
            yield
        finally:
            spawn.get_preparation_data = original  # type: ignore[assignment]


def pickle_by_value(value: Any, elsewhere: bool = False) -> bytes:
    """Return a pickle that a worker can read without the caller's main file."""
    # The definitions of the main file, and of a module that a worker could not import, are in it by
    # value.
    module = _own_module(value, elsewhere)
    if module is not None:
        cloudpickle.register_pickle_by_value(module)
    try:
        return bytes(cloudpickle.dumps(value))
    except (pickle.PicklingError, TypeError, AttributeError, RuntimeError) as error:
        raise UsageError(
            f"A function, or an object that it refers to, cannot be pickled for a worker process "
            f"({error}).",
            advice="Create a lock, an open file or a connection within the function, or in its "
            "module.",
        ) from error
    finally:
        if module is not None:
            cloudpickle.unregister_pickle_by_value(module)


class _Pickler(cloudpickle.Pickler):
    """Pickles functions by value, as cloudpickle, and tensors by shared memory."""

    dispatch_table: ClassVar[ChainMap[Any, Any]] = ChainMap(
        cloudpickle.Pickler.dispatch_table,
        ForkingPickler._extra_reducers,  # type: ignore[attr-defined]
    )


def pickle_for_child(value: Any) -> bytes:
    """Return a pickle for a child process that is being spawned."""
    # Functions and classes of the main file are in it by value; tensors share their memory.
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


def _own_module(value: Any, elsewhere: bool) -> ModuleType | None:
    """Return the module of a function if a new process could not import the same one."""
    while isinstance(value, functools.partial):
        value = value.func
    named = value if hasattr(value, "__qualname__") else type(value)
    module = sys.modules.get(getattr(named, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    if module is None or file is None or module.__name__ == "__main__":
        return None
    if is_stale(module):  # a new process would import the edited file
        return module
    if elsewhere:
        return module if is_of_user(file) else None
    there = file_of(module.__name__, None)
    is_same = there is not None and Path(there).resolve() == Path(file).resolve()
    return None if is_same else module
