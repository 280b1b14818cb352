"""A dataset that is damaged, or not there, as an error that says what to do."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from datasets_cli.errors import DamagedDataset, DatasetNotInstalled

MANIFEST_FILENAME = "manifest.json"
"""The file whose presence makes a folder a dataset."""


def damaged(path: Path | str, problem: str) -> DamagedDataset:
    """Return the error of what is wrong in the dataset that a path is in."""
    return DamagedDataset(f"{problem}. {_advice_at(Path(path))}")


def not_there(folder: Path) -> DatasetNotInstalled:
    """Return the error of a folder in which there is no dataset, or none any more."""
    return DatasetNotInstalled(
        f"There is no dataset in {folder}, which would have a {MANIFEST_FILENAME}; it may have "
        "been deleted meanwhile. Install it, or give a folder that preprocess() wrote or `rlds "
        "path` prints; what a buffer dumped is read by its loads()."
    )


def repair_advice(id: str) -> str:
    """Return what to do about a damaged dataset of this id, as errors end with it."""
    return f"Run: rlds repair {shlex.quote(id)}"


def _advice_at(path: Path) -> str:
    """Return what to do about the dataset that a path is in; its manifest may be damaged, too."""
    for folder in (path, *path.parents):
        if os.path.lexists(folder / MANIFEST_FILENAME):
            if id := _id_of(folder):
                return repair_advice(id)
            break
    return "Make it again with rlds download or preprocess, or copy it from where it is whole"


def _id_of(folder: Path) -> str:
    """Return the id of a dataset below a cache root; empty where it is below none."""
    parts = folder.parts
    if "datasets" not in parts:
        return ""
    # The names after the last folder of that name: <root>/datasets/<family>/<name…>.
    names = parts[len(parts) - parts[::-1].index("datasets") :]
    return "/".join(names) if len(names) > 1 else ""
