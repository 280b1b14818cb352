"""What recipes of the release before may call things; it works for one release, with a warning."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Collection
from typing import Any

_NEW_HOMES = {
    "CUT": "datasets_cli.recipe:TRAJECTORY_END",
    "Row": "datasets_cli.recipe:CatalogueEntry",
    "Pictures": "datasets_cli.recipe:DeferredFrames",
    "open_hdf5": "datasets_cli.formats.hdf5:open_hdf5",
    "read_rows": "datasets_cli.formats.hdf5:read_rows",
    "fastest_zlib": "datasets_cli.formats.gzip:fastest_zlib",
}
_NEW_WORDS = (
    "This recipe uses names of the release before, which the next release does not have. Write "
    "TRAJECTORY_END for CUT, CatalogueEntry for Row, DeferredFrames for Pictures, "
    "Recipe(deferred_frames=...) for Recipe(pictures=...), source.entry for source.row, declare "
    "the options that variant takes in Recipe.options, and import open_hdf5 and read_rows from "
    "datasets_cli.formats.hdf5, fastest_zlib from datasets_cli.formats.gzip."
)

_told: set[str] = set()


def find(module: str, name: str) -> Any:
    """Return what a name of the release before is called now, and warn."""
    if name not in _NEW_HOMES:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    warn([str(sys.modules[module].__file__)])
    home, _, new_name = _NEW_HOMES[name].partition(":")
    return getattr(importlib.import_module(home), new_name)


def warn(own_files: Collection[str]) -> None:
    """Warn that a recipe uses old names, once for each file."""
    # A dataclass's __init__ is compiled from a text: its file is "<string>".
    skipped = {__file__, "<string>", *own_files}
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename in skipped:
        frame = frame.f_back
    filename = frame.f_code.co_filename
    name = str(frame.f_globals.get("__name__", filename))  # Python warns of no module None
    _warn_once(filename, frame.f_lineno, name)


def warn_about(function: Callable[..., Any]) -> None:
    """Warn that a recipe's function is used as in the release before, once for each file."""
    module = str(getattr(function, "__module__", type(function).__module__))
    code = getattr(function, "__code__", None)  # a partial, say, has none
    _warn_once(code.co_filename if code else module, code.co_firstlineno if code else 1, module)


def hint(error: Exception) -> str:
    """Return the new words where an error is that an old name, as of ``import *``, is not there."""
    is_old = isinstance(error, NameError) and error.name in _NEW_HOMES
    return f" {_NEW_WORDS}" if is_old else ""


def _warn_once(filename: str, line: int, module: str) -> None:
    if filename not in _told:
        _told.add(filename)
        warnings.warn_explicit(_NEW_WORDS, DeprecationWarning, filename, line, module)
