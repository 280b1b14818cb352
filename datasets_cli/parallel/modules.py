"""The modules that a pickle imports, and whether two processes would import the same text.

A function that travels by name is what its module is over there: a worker that has another text of
it, or imported it before it was edited, would give other values under the same digest.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import pickle
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

# Compared by their versions; Python's own come with Python.
_BY_VERSION = frozenset({"cloudpickle", "numpy", "tensordict", "torch"})


def imported_sources(pickled: bytes) -> dict[str, str]:
    """Return the modules that reading a pickle imports, each with the sha256 of its text."""
    # Those of Python and of libraries whose versions are compared, and those without a file, are
    # left out.
    reader = _Reader(io.BytesIO(pickled))
    reader.load()
    digests = {name: source_digest(sys.modules[name]) for name in sorted(reader.modules)}
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
    """Return the sha256 of a module's text; None where it has none."""
    text = _text_of(module)
    return None if text is None else hashlib.sha256(text.encode()).hexdigest()


def is_stale(module: ModuleType) -> bool:
    """Tell whether a function of a module is not the one that its file has now."""
    text = _text_of(module)
    if text is None:
        return False
    path = str(module.__file__)
    try:
        in_file = set(_codes(compile(text, path, "exec", dont_inherit=True)))
    except (SyntaxError, ValueError):
        return True
    return any(code not in in_file for code in _loaded_codes(vars(module), path))


def _text_of(module: ModuleType) -> str | None:
    """Return the text of a module's file, with plain lines whatever the system's are."""
    path = getattr(module, "__file__", None) or ""
    if Path(path).suffix != ".py":
        return None
    try:
        with tokenize.open(path) as file:
            return file.read()
    except (OSError, SyntaxError, UnicodeDecodeError):
        return None


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of everything that is defined in some code."""
    for item in code.co_consts:
        if isinstance(item, CodeType):
            yield item
            yield from _codes(item)


def _loaded_codes(names: Any, path: str) -> Iterator[CodeType]:
    """Yield the code of the functions among some names, and of methods, that a file defines."""
    for value in list(names.values()):
        if isinstance(value, FunctionType) and value.__code__.co_filename == path:
            yield value.__code__
        elif isinstance(value, type) and sys.modules.get(value.__module__) is not None:
            methods = (item for item in vars(value).values() if isinstance(item, FunctionType))
            yield from (item.__code__ for item in methods if item.__code__.co_filename == path)


class _Reader(pickle.Unpickler):
    """Reads a pickle and notes the modules that it imports."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.modules: set[str] = set()

    def find_class(self, module: str, name: str) -> Any:
        """Return what a name of a module stands for."""
        found = super().find_class(module, name)
        self._note(module)
        if (module, name) == ("cloudpickle.cloudpickle", "subimport"):
            return self._imported  # a module that a function by value names
        return found

    def _imported(self, name: str) -> ModuleType:
        module = importlib.import_module(name)
        self._note(name)
        return module

    def _note(self, name: str) -> None:
        top = name.partition(".")[0]
        if top not in _BY_VERSION and top not in sys.stdlib_module_names and name != "__main__":
            self.modules.add(name)
