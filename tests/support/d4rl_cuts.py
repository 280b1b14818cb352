"""Real pieces of D4RL's published files; tests/data/d4rl/ORIGIN.md says how they were cut."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from datasets_cli.recipes.d4rl import catalogue
from tests.support.paths import DEMO_DATA, TEST_DATA
from tests.support.values import read_source

FOLDER = TEST_DATA / "d4rl" / "cuts"
DOOR = DEMO_DATA / "d4rl" / "hand_dapg" / "door-v0_demos_clipped.hdf5"


@dataclass(frozen=True)
class Cut:
    """The first steps of one published file."""

    name: str
    path: Path

    def lay_out(self, folder: Path) -> Path:
        (resource,) = catalogue.resources(self.name, None)
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self.path, folder / resource.filename)
        return folder


CUTS = {
    "ant-medium-v0": Cut("ant-medium-v0", FOLDER / "ant_medium.hdf5"),
    "ant-random-v1": Cut("ant-random-v1", FOLDER / "ant_random-v1.hdf5"),
    "ant-medium-v2": Cut("ant-medium-v2", FOLDER / "ant_medium-v2.hdf5"),
    "antmaze-large-play-v0": Cut("antmaze-large-play-v0", FOLDER / "antmaze-large-play-v0.hdf5"),
    "antmaze-medium-diverse-v0": Cut(
        "antmaze-medium-diverse-v0", FOLDER / "antmaze-medium-diverse-v0.hdf5"
    ),
    "antmaze-umaze-v0": Cut("antmaze-umaze-v0", FOLDER / "antmaze-umaze-v0.hdf5"),
    "door-human-v0": Cut("door-human-v0", DOOR),
    "door-human-v1": Cut("door-human-v1", FOLDER / "door-human-v1.hdf5"),
    "halfcheetah-medium-v0": Cut("halfcheetah-medium-v0", FOLDER / "halfcheetah_medium.hdf5"),
    "halfcheetah-random-v1": Cut("halfcheetah-random-v1", FOLDER / "halfcheetah_random-v1.hdf5"),
    "hammer-cloned-v0": Cut("hammer-cloned-v0", FOLDER / "hammer-cloned-v0.hdf5"),
    "hopper-medium-v0": Cut("hopper-medium-v0", FOLDER / "hopper_medium.hdf5"),
    "hopper-medium-replay-v1": Cut(
        "hopper-medium-replay-v1", FOLDER / "hopper_medium_replay-v1.hdf5"
    ),
    "hopper-medium-v2": Cut("hopper-medium-v2", FOLDER / "hopper_medium-v2.hdf5"),
    "hopper-medium-v2, older": Cut(
        "hopper-medium-v2", FOLDER / "older_v2" / "hopper_medium-v2.hdf5"
    ),
    "pen-human-v0": Cut("pen-human-v0", FOLDER / "pen-human-v0.hdf5"),
    "pen-cloned-v1": Cut("pen-cloned-v1", FOLDER / "pen-cloned-v1.hdf5"),
    "relocate-expert-v0": Cut("relocate-expert-v0", FOLDER / "relocate-expert-v0.hdf5"),
}


@cache
def columns(cut: str) -> dict[str, np.ndarray]:
    return read_source(CUTS[cut].path)
