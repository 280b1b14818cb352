"""What OGBench's archives must become, read by numpy and plain loops, and nothing of ours."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from tests.support.paths import TEST_DATA
from tests.support.values import FLAGS, Expected, Key

FOLDER = TEST_DATA / "ogbench"
POINTMAZE = "pointmaze-medium-navigate-v0"
KEYS: dict[str, Key] = {
    "observations": ("observation",),
    "qpos": ("info", "qpos"),
    "qvel": ("info", "qvel"),
    "button_states": ("info", "button_states"),
}
Arrays = dict[str, np.ndarray]
IsSolved = Callable[[Arrays, int], bool]


def load(path: Path) -> Arrays:
    with np.load(path) as file:
        return dict(file)


def read_files(folder: Path, base: str = POINTMAZE, is_solved: IsSolved | None = None) -> Expected:
    """A row and the next one of its trajectory are a transition; a solved task ends there too."""
    rows: list[dict[Key, np.ndarray]] = []
    texts: list[str] = []
    offsets = [0]
    for split, filename in (("train", f"{base}.npz"), ("val", f"{base}-val.npz")):
        file = load(folder / filename)
        for step, is_last in enumerate(file["terminals"]):
            if is_last:
                continue
            episode = np.asarray(len(offsets) - 1, np.int64)
            row: dict[Key, np.ndarray] = {("action",): file["actions"][step], ("episode",): episode}
            for name in KEYS.keys() & file.keys():
                row[KEYS[name]], row["next", *KEYS[name]] = file[name][step], file[name][step + 1]
            terminated = is_solved is not None and is_solved(file, step)
            truncated = bool(file["terminals"][step + 1])
            if is_solved is not None:
                row["next", "reward"] = np.array([0.0 if terminated else -1.0], np.float32)
            ends = (terminated or truncated, terminated, truncated)
            for flag, value in zip(FLAGS, ends, strict=True):
                row[flag,], row["next", flag] = np.array([False]), np.array([value])
            rows.append(row)
            texts.append(split)
            if ends[0]:
                offsets.append(len(rows))
    leaves = {key: np.stack([row[key] for row in rows]) for key in rows[0]}
    return Expected(leaves, offsets, recorded=True, texts={("split",): texts})


def read_task1(folder: Path) -> Expected:
    """Task 1 of the medium maze: the point is within 1 of (20, 20)."""
    return read_files(
        folder, is_solved=lambda file, step: math.dist(file["qpos"][step], (20, 20)) <= 1
    )


def published(base: str = POINTMAZE) -> Mapping[str, bytes]:
    """Return the pages of the publisher's server."""
    names = [f"{base}.npz", f"{base}-val.npz"]
    host = "https://rail.eecs.berkeley.edu/datasets/ogbench/"
    return {f"{host}{name}": (FOLDER / name).read_bytes() for name in names}
