"""Worker processes that never import the file which started them, and functions on their way there.

A process that multiprocessing spawns imports the caller's main file, to find the functions of it.
A script without a guard (``if __name__ == "__main__":``) then begins a second time in each worker.
Here functions travel by value, so that workers do not need that file.

A function that travels by name is what its module is over there: a worker that has another text of
it, or imported it before it was edited, would give other values under the same digest.
"""

from __future__ import annotations

import functools
import importlib
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
from datasets_cli.parallel.user_modules import (
    LIBRARIES,
    UserModule,
    file_of,
    imported_by,
    is_of_user,
    is_stale,
)

# Compared by their versions; Python's own come with Python.
_BY_VERSION = LIBRARIES | {"cloudpickle"}


def imported_sources(pickled: bytes) -> dict[str, str]:
    """Return the modules that reading a pickle imports, each with the sha256 of its text."""
    # Those of Python and of libraries whose versions are compared, and those without a file, are
    # left out. Those of the user's that are imported by others count, which have loaded them here.
    reader = _Reader(io.BytesIO(pickled))
    reader.load()
    modules = [UserModule.of(sys.modules[name]) for name in sorted(reader.modules)]
    roots = [each for each in modules if each is not None]
    inner = [each for each in imported_by(roots) if each.name in sys.modules]
    digests = {each.name: each.digest for each in [*inner, *roots]}
    return {name: digest for name, digest in digests.items() if digest is not None}


def difference(name: str, digest: str) -> str | None:
    """Return how a module differs in this process, or None; it is imported."""
    try:
        module = importlib.import_module(name)
    except Exception as error:  # whatever a user's module does
        return f"it cannot import the module {name} ({type(error).__name__}: {error})"
    if source_digest(module) != digest:
        return f"its module {name} ({module.__file__}) has another text than the one here"
    if is_stale(module):
        return f"it imported the module {name} before {module.__file__} was edited: start it again"
    return None


def source_digest(module: ModuleType) -> str | None:
    """Return the sha256 of a module's text; None if it has no text."""
    known = UserModule.of(module)
    return None if known is None else known.digest


class _Reader(pickle.Unpickler):
    """Reads a pickle and notes the modules that it imports."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.modules: set[str] = set()

    def find_class(self, module: str, name: str) -> Any:
        """Return what a name of a module stands for."""
        named = super().find_class(module, name)
        self._note(module)
        if (module, name) == ("cloudpickle.cloudpickle", "subimport"):
            return self._imported  # a module that a function by value names
        return named

    def _imported(self, name: str) -> ModuleType:
        module = importlib.import_module(name)
        self._note(name)
        return module

    def _note(self, name: str) -> None:
        top = name.partition(".")[0]
        if top not in _BY_VERSION and top not in sys.stdlib_module_names and name != "__main__":
            self.modules.add(name)


_MAIN_FILE = ("init_main_from_name", "init_main_from_path")
_lock = threading.Lock()


_CTRL_C = frozenset({signal.SIGINT})


@contextmanager
def _ctrl_c_after() -> Iterator[None]:
    """Have a Ctrl-C that another thread takes meanwhile interrupt this one afterwards."""
    # A process that was not told all would end with a traceback.
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
    """A process without the caller's main file, which leaves Ctrl-C to the one that started it."""

    # A terminal sends it to both, and from the first moment on: a Python that begins, or imports
    # torch, would end with a traceback, or abort where C does not expect an exception.

    def start(self) -> None:
        """Start the process; it begins as this thread is, without Ctrl-C."""
        resource_tracker.ensure_running()  # whose own start would let Ctrl-C through again
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _CTRL_C)
        try:
            with _ctrl_c_after(), without_main_file():
                super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def run(self) -> None:
        """Do what the process is for."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _CTRL_C)
        super().run()


class WorkerContext(SpawnContext):
    """What a pool, or a ``DataLoader``, starts its processes with."""

    # They are new ones, never forked: torch's threads would leave locks held in the child.

    Process = Worker


@contextmanager
def without_main_file() -> Iterator[None]:
    """Leave the main file out of what this thread tells the processes that it spawns."""
    thread = threading.get_ident()
    with _lock:
        original: Callable[[str], dict[str, Any]] = spawn.get_preparation_data

        def remaining_data(name: str) -> dict[str, Any]:
            data = original(name)
            if threading.get_ident() == thread:  # another thread may start a process, too
                data = {key: value for key, value in data.items() if key not in _MAIN_FILE}
            return data

        spawn.get_preparation_data = remaining_data
        try:
            yield
        finally:
            spawn.get_preparation_data = original  # type: ignore[assignment]


def pickle_by_value(value: Any, elsewhere: bool = False) -> bytes:
    """Return a pickle that a worker can read without the caller's main file."""
    # What the main file defines, and the module of a function where a worker could not import it,
    # is in it by value.
    module = _own_module(value, elsewhere)
    if module is not None:
        cloudpickle.register_pickle_by_value(module)
    try:
        return bytes(cloudpickle.dumps(value))
    except (pickle.PicklingError, TypeError, AttributeError, RuntimeError) as error:
        raise UsageError(
            f"A function, or what it refers to, cannot be given to a worker process ({error}). "
            "Make a lock, an open file or a connection within the function, or in its module."
        ) from error
    finally:
        if module is not None:
            cloudpickle.unregister_pickle_by_value(module)


class _Pickler(cloudpickle.Pickler):
    """Functions by value as cloudpickle has them, tensors by shared memory as a process does."""

    dispatch_table: ClassVar[ChainMap[Any, Any]] = ChainMap(
        cloudpickle.Pickler.dispatch_table,
        ForkingPickler._extra_reducers,  # type: ignore[attr-defined]
    )


def pickle_for_child(value: Any) -> bytes:
    """Return a pickle for the process that is being started: as its arguments are pickled."""
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
    if is_stale(module):  # a new process would import what the file has now
        return module
    if elsewhere:
        return module if is_of_user(file) else None
    there = file_of(module.__name__, None)
    is_same = there is not None and Path(there).resolve() == Path(file).resolve()
    return None if is_same else module
