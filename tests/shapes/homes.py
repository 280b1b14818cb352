"""A home folder in which both libraries have one dataset of D4RL, from one file."""

from __future__ import annotations

from pathlib import Path

from datasets_cli.config import Config
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from tests.shapes.parts import DATASET
from tests.support.paths import TEST_DATA

FILE = TEST_DATA / "d4rl" / "demonstrations" / "door-v0_demos_clipped.hdf5"
ADDRESSES = {DATASET: FILE.as_uri()}
"""Where TorchRL downloads the dataset from: the file that ours is made of."""


def made_home(folder: Path) -> dict[str, str]:
    """Install the dataset below a folder; return the variables that make it the home folder."""
    options = InstallOptions(source=str(FILE.parent), accept_any=True)
    install_dataset(f"d4rl/{DATASET}", Config(folder / "rlds"), options)
    return {"HOME": str(folder), "RLDS_HOME": str(folder / "rlds")}
