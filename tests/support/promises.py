"""What a version promises to programs: ids, exit codes, keys of ``--json`` and public names.

``python -m tests.support.promises`` writes those of this version into ``tests/data/compatibility``.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import tempfile
from typing import Any
from unittest import mock

import datasets_cli
from datasets_cli import errors
from datasets_cli.cli.main import main
from datasets_cli.version import __version__
from tests.support import public_names
from tests.support.paths import TEST_DATA

FOLDER = TEST_DATA / "compatibility"
DOOR, OTHER = "demo/door-human", "demo/door-minari"
COMMANDS = {
    "download": ["download", DOOR, OTHER, "--yes"],
    "list": ["list", DOOR],
    "info": ["info", DOOR],
    "path": ["path", DOOR],
    "peek": ["peek", DOOR],
    "trajectories": ["trajectories", DOOR],
    "stats": ["stats", DOOR],
    "sample": ["sample", DOOR],
    "verify": ["verify", DOOR],
    "diff": ["diff", DOOR, OTHER],
    "audit": ["audit", DOOR],
    "du": ["du"],
    "env": ["env"],
    "config": ["config"],
    "delete": ["delete", OTHER, "--yes"],
    "error": ["info", "nosuch/none"],
}
"""The commands whose keys are promised, in an order in which they run."""


def keys_of(document: Any) -> list[str]:
    """Return the keys of a JSON object, or of the objects of a list."""
    objects = document if isinstance(document, list) else [document]
    return sorted({key for each in objects for key in each})


def json_keys() -> dict[str, list[str]]:
    """Return the keys that each command prints in the current cache root."""
    found = {}
    for name, words in COMMANDS.items():
        out, events = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(events):
            main([*words, "--json"])
        is_error = name == "error"
        text = events.getvalue().splitlines()[-1] if is_error else out.getvalue()
        document = json.loads(text)
        found[name] = keys_of(document["error"] if is_error else document)
    return found


def exit_codes() -> dict[str, int]:
    """Return the exit code of each class of errors."""
    kinds = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type)}
    ours = {name: kind for name, kind in kinds.items() if issubclass(kind, errors.RldsError)}
    return {name: kind.exit_code for name, kind in sorted(ours.items())}


def names() -> dict[str, list[str]]:
    """Return the public names of each public module."""
    modules = {name: importlib.import_module(name) for name in public_names.TABLES}
    return {name: sorted({*module.__all__} - {"__version__"}) for name, module in modules.items()}


def promises() -> dict[str, Any]:
    """Return all of them, for the installed program and an empty cache root."""
    return {
        "ids": sorted(each.id for each in datasets_cli.list_datasets()),
        "exit codes": exit_codes(),
        "names": names(),
        "json": json_keys(),
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as root, mock.patch.dict(os.environ, RLDS_HOME=root):
        FOLDER.mkdir(exist_ok=True)
        text = json.dumps(promises(), indent=1)
        (FOLDER / f"{__version__}.json").write_text(f"{text}\n", encoding="utf-8")
