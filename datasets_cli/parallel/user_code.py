"""The user's code: the text of its modules, their imports, and errors that name its lines.

A module is the user's unless it is installed: Python's library, installed packages and this package
are not. Modules are found as an import would find them, without importing them, so the result is
the same before an import, after it, and on a worker.
"""

from __future__ import annotations

import ast
import hashlib
import os
import sys
import sysconfig
import tokenize
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec, resolve_name, spec_from_file_location
from itertools import accumulate
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar

import datasets_cli
from datasets_cli.errors import RldsError

Result = TypeVar("Result")

LIBRARIES = frozenset({"numpy", "tensordict", "torch"})
"""Libraries that are identified by their names; workers must have the same versions."""

_PACKAGE = Path(datasets_cli.__file__).parent.resolve()
_OURS = f"{Path(__file__).parents[1]}{os.sep}"  # as tracebacks have it, with symbolic links
_PYTHON = tuple(Path(sysconfig.get_path(kind)).resolve() for kind in ("stdlib", "platstdlib"))


@lru_cache(maxsize=4096)
def is_of_user(file: str | Path) -> bool:
    """Return whether a file is the user's own, and not installed."""
    path = Path(file)
    is_ours = str(file).startswith("<frozen") or path.resolve().is_relative_to(_PACKAGE)
    return not (is_ours or _is_in_package(path) or _is_pythons(path))


def is_pythons_own(name: str) -> bool:
    """Return whether a module is Python's own, and not a user's file of the same name."""
    path = getattr(sys.modules.get(name), "__file__", None)
    return path is None or (not _is_in_package(Path(path)) and _is_pythons(Path(path)))


def _is_in_package(path: Path) -> bool:
    return not {"site-packages", "dist-packages"}.isdisjoint(path.parts)


def _is_pythons(path: Path) -> bool:
    return any(map(path.resolve().is_relative_to, _PYTHON))


@dataclass(frozen=True)
class UserModule:
    """A module by its name and its file, loaded or not."""

    name: str
    file: Path

    @classmethod
    def of(cls, module: ModuleType | None) -> UserModule | None:
        """Return the module of a loaded one; None without a Python file."""
        file = getattr(module, "__file__", None) or ""
        if module is None or Path(file).suffix != ".py":
            return None
        return cls(module.__name__, Path(file).absolute())

    @property
    def folder(self) -> Path:
        """The folder on the Python path: that of lib.py for lib, that above pkg/ for pkg.code."""
        is_package = self.file.stem == "__init__"
        levels = self.name.count(".") + (is_package and self.name != "__main__")
        return self.file.parents[levels]

    @property
    def place(self) -> str:
        """The path of the file below that folder, ``pkg/code.py``, equal on every machine."""
        return self.file.relative_to(self.folder).as_posix()

    @property
    def text(self) -> str | None:
        """The text of the file, with line endings as newlines; None without a file."""
        return text_of(self.file)

    @property
    def digest(self) -> str | None:
        """The sha256 of the text; None without a text."""
        text = self.text
        return None if text is None else hashlib.sha256(text.encode()).hexdigest()

    @property
    def _imported_names(self) -> tuple[str, ...]:
        is_package = self.file.stem == "__init__"
        package = self.name if is_package else self.name.rpartition(".")[0]
        return names_imported(self.text or "", package)


def text_of(file: str | Path) -> str | None:
    """Return the text of a Python file, in its declared encoding; None if it cannot be read."""
    if Path(file).suffix != ".py":
        return None
    try:
        with tokenize.open(file) as opened:
            return opened.read()
    except (OSError, SyntaxError, UnicodeDecodeError):
        return None


@lru_cache(maxsize=256)
def names_imported(text: str, package: str) -> tuple[str, ...]:
    """Return the names that the imports in a text may load, also imports within functions."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return ()
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            try:
                base = resolve_name("." * node.level + (node.module or ""), package or None)
            except ImportError:  # beyond the package
                continue
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return tuple(dict.fromkeys(names))


def imported_by(roots: Iterable[UserModule]) -> list[UserModule]:
    """Return the user's modules that modules import, to any depth, in the order of imports."""
    known = {root.file: root for root in roots}
    imported: dict[Path, UserModule] = {}

    def visit(names: Iterable[str], folder: Path) -> None:
        for module in _found(names, folder):
            if module.file not in known:
                known[module.file] = module
                visit(module._imported_names, folder)
                imported[module.file] = module

    for root in list(known.values()):
        if is_of_user(root.file):
            visit(root._imported_names, root.folder)
    return [*imported.values()]


def named_in(text: str, folder: Path) -> list[UserModule]:
    """Return the user's modules that a text imports."""
    return list(_found(names_imported(text, ""), folder))


def _found(names: Iterable[str], folder: Path) -> Iterator[UserModule]:
    """Yield the user's modules among names, with the packages that contain them."""
    installed: set[str] = set()
    for name in names:
        first, *rest = name.split(".")
        if first in installed:
            continue
        for parent in accumulate([first, *rest], "{}.{}".format):
            file = file_of(parent, folder)
            if file is not None and not is_of_user(file):
                installed.add(first)
                break
            if file is not None:
                yield UserModule(parent, Path(file).absolute())


def file_of(name: str, folder: Path | None) -> str | None:
    """Return the file that an import of a name would load from a folder or the Python path."""
    first, *rest = name.split(".")
    spec = _spec_of(first, folder)
    if spec is None:
        return None
    if not rest:
        return spec.origin if spec.has_location else None
    # Below it by hand: importlib would import each package to find its modules.
    *packages, last = rest
    for parent in map(Path, spec.submodule_search_locations or ()):
        inner = parent.joinpath(*packages, last)
        for path in (inner / "__init__.py", inner.with_name(f"{last}.py")):
            if path.is_file():
                return str(path)
    return None


def _spec_of(first: str, folder: Path | None) -> ModuleSpec | None:
    folders = [] if folder is None else [str(folder)]
    spec = PathFinder.find_spec(first, [*folders, *sys.path])
    if spec is None:  # a package that is installed to be edited may have its own finder
        specs = (finder.find_spec(first, None) for finder in sys.meta_path)
        spec = next((spec for spec in specs if spec is not None), None)
    return spec


def is_stale(module: ModuleType) -> bool:
    """Return whether the file of a loaded module was edited since, in any of its functions."""
    known = UserModule.of(module)
    text = None if known is None else known.text
    if text is None:
        return False
    path = str(module.__file__)
    try:
        in_file = set(_codes(compile(text, path, "exec", dont_inherit=True)))
    except (SyntaxError, ValueError):
        return True
    return any(code not in in_file for code in _loaded_codes(vars(module), path))


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of all functions and classes that code defines."""
    for item in code.co_consts:
        if isinstance(item, CodeType):
            yield item
            yield from _codes(item)


def _loaded_codes(names: Any, path: str) -> Iterator[CodeType]:
    """Yield the code of the functions and methods in a namespace that a file defines."""
    for value in list(names.values()):
        if isinstance(value, FunctionType) and value.__code__.co_filename == path:
            yield value.__code__
        elif isinstance(value, type) and sys.modules.get(value.__module__) is not None:
            methods = (item for item in vars(value).values() if isinstance(item, FunctionType))
            yield from (item.__code__ for item in methods if item.__code__.co_filename == path)


@contextmanager
def module_of(name: str, path: Path, whose: str) -> Iterator[ModuleType]:
    """Import a file or a folder as a module of this name, for the duration of the block."""
    file, folders = (path / "__init__.py", [str(path)]) if path.is_dir() else (path, None)
    spec = spec_from_file_location(name, file, submodule_search_locations=folders)
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    before = {each: sys.modules.pop(each) for each in [*sys.modules] if _is_of(each, name)}
    sys.modules[name] = module
    execute = spec.loader.exec_module
    try:
        call_user_code(whose, "its code", lambda: execute(module), path)
        yield module
    finally:
        for each in [each for each in sys.modules if _is_of(each, name)]:
            del sys.modules[each]
        sys.modules |= before


def _is_of(module: str, name: str) -> bool:
    return f"{module}.".startswith(f"{name}.")


def call_user_code(
    whose: str, what: str, call: Callable[[], Result], path: Path | None = None
) -> Result:
    """Call user code and return its result; an error names the line of the user's file."""
    try:
        return call()
    except Exception as error:
        raise user_error(whose, f"fails in {what}{line_of(error, path)}", error) from error


def line_of(error: BaseException | None, path: Path | None = None) -> str:
    """Return the line of a user's file in which an error was raised, for a message."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__) if error else []
    theirs = [each.filename for each in frames if not each.filename.startswith(_OURS)]
    file = str(path) if path else "".join(theirs[:1])  # of the called function
    lines = [each.lineno for each in frames if file and file in each.filename]
    return f" in line {lines[-1]}{'' if path else f' of {file}'}" if lines else ""


def user_error(whose: str, what: str, error: Exception) -> RldsError:
    """Return the error of user code that raised."""
    return RldsError(f"The {whose} {what}: {type(error).__name__}: {error}.")
