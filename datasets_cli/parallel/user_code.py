"""User code: importing a file for a time, and errors that name its line."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from datasets_cli.errors import RldsError

Result = TypeVar("Result")
OURS = f"{Path(__file__).parents[1]}{os.sep}"


@contextmanager
def module_of(name: str, path: Path, whose: str) -> Iterator[ModuleType]:
    """Import a file or a folder as a module of this name, for the duration of the block."""
    file, folders = (path / "__init__.py", [str(path)]) if path.is_dir() else (path, None)
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=folders)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
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
    theirs = [each.filename for each in frames if not each.filename.startswith(OURS)]
    file = str(path) if path else "".join(theirs[:1])  # of the called function
    lines = [each.lineno for each in frames if file and file in each.filename]
    return f" in line {lines[-1]}{'' if path else f' of {file}'}" if lines else ""


def user_error(whose: str, what: str, error: Exception) -> RldsError:
    """Return the error of user code that raised."""
    return RldsError(f"The {whose} {what}: {type(error).__name__}: {error}.")
