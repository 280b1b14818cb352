"""Worker processes that never import the file which started them.

A process that multiprocessing spawns imports the caller's main file, to find the functions of it.
A script without a guard (``if __name__ == "__main__":``) then begins a second time in each worker.
Here functions travel by value, so that workers do not need that file.
"""

from __future__ import annotations

import functools
import io
import pickle
import sys
import sysconfig
import threading
from collections import ChainMap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import spawn
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import cloudpickle

import datasets_cli
from datasets_cli.errors import UsageError
from datasets_cli.parallel.modules import is_stale

_MAIN_FILE = ("init_main_from_name", "init_main_from_path")
_lock = threading.Lock()


class Worker(SpawnProcess):
    """A process that starts without the caller's main file."""

    def start(self) -> None:
        """Start the process."""
        with without_main_file():
            super().start()


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
            found = original(name)
            if threading.get_ident() == thread:  # another thread may start a process of its own
                found = {key: value for key, value in found.items() if key not in _MAIN_FILE}
            return found

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
    if module is None:
        return _dumps(value)
    cloudpickle.register_pickle_by_value(module)
    try:
        return _dumps(value)
    finally:
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


def _dumps(value: Any) -> bytes:
    try:
        pickled: bytes = cloudpickle.dumps(value)
    except (pickle.PicklingError, TypeError, AttributeError, RuntimeError) as error:
        raise UsageError(
            f"A function, or what it refers to, cannot be given to a worker process ({error}). "
            "Make a lock, an open file or a connection within the function, or in its module."
        ) from error
    return pickled


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
        return None if _is_installed(Path(file)) else module
    # importlib.util.find_spec would find what this process has imported already.
    name = module.__name__.partition(".")[0]
    found = (finder.find_spec(name, None) for finder in sys.meta_path)
    spec = next((spec for spec in found if spec is not None), None)
    if spec is None:
        return module
    if "." in module.__name__:  # a package that is there has its modules
        return None
    is_same = spec.origin is not None and Path(spec.origin).resolve() == Path(file).resolve()
    return None if is_same else module


def _is_installed(file: Path) -> bool:
    """Tell whether a file is of Python, of an installed package or of this one."""
    homes = [Path(sysconfig.get_path("stdlib")), Path(datasets_cli.__file__).parent]
    is_package = {"site-packages", "dist-packages"} & set(file.parts)
    return bool(is_package) or any(file.resolve().is_relative_to(home) for home in homes)
