"""Recordings of mazes with goals, in Minari's form, and the rows of their files read by h5py."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from datasets_cli.config import Config
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from tests.support.paths import TEST_DATA

MAZES = TEST_DATA / "minari" / "mazes"
NAMES = ("open", "open-dense", "open-ends", "ant-dense")


def unpack(name: str, folder: Path, **env_spec: Any) -> Path:
    """Put the files of a recording into a folder, with some entries of ``env_spec`` replaced."""
    folder.mkdir(parents=True)
    with (
        gzip.open(MAZES / name / "main_data.hdf5.gz") as packed,
        (folder / "main_data.hdf5").open("wb") as file,
    ):
        shutil.copyfileobj(packed, file)
    metadata = json.loads((MAZES / name / "metadata.json").read_text())
    metadata["env_spec"] = json.dumps(json.loads(metadata["env_spec"]) | env_spec)
    (folder / "metadata.json").write_text(json.dumps(metadata))
    return folder


def install(source: Path, config: Config, layout: str | None = None) -> str:
    install_dataset(
        "minari/maze/test-v0", config, InstallOptions(source=str(source), layout=layout)
    )
    return "minari/maze/test-v0"


def file_rows(source: Path) -> dict[str, np.ndarray]:
    """Return what the steps of all episodes have, read by h5py alone.

    ``achieved`` and ``desired`` are those after each step.
    """
    names = {
        "achieved": "observations/achieved_goal",
        "desired": "observations/desired_goal",
        "reward": "rewards",
        "terminated": "terminations",
    }
    with h5py.File(source / "main_data.hdf5") as file:
        episodes = [file[f"episode_{number}"] for number in range(len(file))]
        found = {name: [each[path][:] for each in episodes] for name, path in names.items()}
    after = {name: [rows[1:] for rows in found[name]] for name in ("achieved", "desired")}
    return {name: np.concatenate(rows) for name, rows in (found | after).items()}
