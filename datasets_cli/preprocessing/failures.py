"""Where in a user's function an exception came from."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

import datasets_cli

# What a person did not write: this package, installed packages, and Python's own library.
_PACKAGE = str(Path(datasets_cli.__file__).parent)
_LIBRARY = str(Path(os.__file__).parent)
_INSTALLED = frozenset({"site-packages", "dist-packages"})


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
