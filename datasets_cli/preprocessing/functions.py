"""Functions of users: by their names ``module:function``, and where in them an error came from."""

from __future__ import annotations

import importlib
import os
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import datasets_cli
from datasets_cli.errors import UsageError

if TYPE_CHECKING:
    from tensordict import TensorDict

Function = Callable[["TensorDict"], "TensorDict"]
"""Takes a TensorDict ``[n]`` of consecutive rows, a copy, and returns one of as many or fewer."""

_imported: dict[str, bytes | None] = {}  # the text of each module that was imported here
FUNCTION_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")

# What a person did not write: this package, installed packages, and Python's own library.
_PACKAGE = str(Path(datasets_cli.__file__).parent)
_LIBRARY = str(Path(os.__file__).parent)
_INSTALLED = frozenset({"site-packages", "dist-packages"})


def load_function(text: str, folder: Path | None = None, option: str = "--fn") -> Function:
    """Return the function that ``module:function`` names; importing its module runs the module."""
    module_name, name = split_function(text, option)
    here = str(folder or Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = _newest(module_name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{option} {text}: there is no module {error.name} in {here} or the Python path."
        ) from error
    except Exception as error:  # whatever a user's module does
        raise UsageError(
            f"{option} {text}: {module_name} cannot be imported ({type(error).__name__}: {error}). "
            "Expected a module's name, such as mycode for mycode.py in this folder."
        ) from error
    if not hasattr(module, name):
        raise UsageError(f"{option} {text}: the module {module_name} has no {name}.")
    function = getattr(module, name)
    if not callable(function):
        raise UsageError(f"{option} {text}: {name} is a {type(function).__name__}, not a function.")
    return function  # type: ignore[no-any-return]


def _newest(name: str) -> ModuleType:
    """Import a module, or again where we imported it and its file has another text since then."""
    is_known = name in sys.modules
    module = importlib.import_module(name)
    text = _text_of(module)
    if is_known and _imported.get(name, text) != text:
        module = importlib.reload(module)
    if name in _imported or not is_known:
        _imported[name] = text
    return module


def _text_of(module: ModuleType) -> bytes | None:
    try:
        return Path(module.__file__ or "").read_bytes()
    except OSError:
        return None


def split_function(text: str, option: str = "--fn") -> tuple[str, str]:
    """Return module and function of ``module:function``."""
    if not FUNCTION_NAME.fullmatch(text):
        raise UsageError(f"{option} {text!r} is not MODULE:FUNCTION, such as mycode:scale_rewards.")
    module, _, name = text.partition(":")
    return module, name


def failure_of(error: BaseException) -> str:
    """Return type and message of an exception, and the user's innermost file and line in it."""
    text = f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if _is_users(frame.filename)]
    if not own:
        return text
    return f"{text} ({own[-1].filename}, line {own[-1].lineno}, in {own[-1].name})"


def _is_users(filename: str) -> bool:
    if filename.startswith("<frozen"):
        return False
    path = Path(filename)
    is_library = path.is_relative_to(_PACKAGE) or path.is_relative_to(_LIBRARY)
    return not (is_library or _INSTALLED & set(path.parts))
