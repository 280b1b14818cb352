"""Places with something wrong in them: sources as no publisher has them, damaged cache roots.

Each function returns nothing and changes what is below the folder that it is given: a copy of
``make_places``, which has a cache root with a dataset of every kind and good sources to spoil.
"""

from __future__ import annotations

import gzip
import importlib
import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import datasets_cli
from datasets_cli.core.progress import silent
from datasets_cli.store.sealed_json import seal
from tests.support.paths import DEMO_DATA, TEST_DATA

Spoil = Callable[[Path], None]

DOOR = "sources/door/door-v0_demos_clipped.hdf5"
UNPLUGGED = "sources/unplugged/run_1-00000-of-00050"


def make_places(place: Path) -> None:
    """Fill a folder: ``root``, ``sources/<family>``, ``file``, a link to nowhere, and a module."""
    sources = place / "sources"
    shutil.copytree(DEMO_DATA / "d4rl" / "hand_dapg", sources / "door")
    shutil.copytree(DEMO_DATA / "minari/D4RL/door/human-v2/data", sources / "minari")
    shutil.copytree(DEMO_DATA / "atari_dqn/Pong/5/replay_logs", sources / "pong")
    (sources / "iris").mkdir()
    for name, path in {
        "description.json": "api/v1/json/data/61",
        "features.json": "api/v1/json/data/features/61",
        "dataset.arff": "data/v1/download/61/iris.arff",
    }.items():
        shutil.copy(DEMO_DATA / "openml" / path, sources / "iris" / name)
    (sources / "unplugged").mkdir()
    record = TEST_DATA / "rl_unplugged" / "asterix_run_1-00000-of-00001"
    shutil.copy(record, place / UNPLUGGED)
    for number in range(1, 50):
        (sources / "unplugged" / f"run_1-{number:05d}-of-00050").symlink_to(record)
    (sources / "empty").mkdir()
    (place / "file").touch()
    (place / "nowhere").symlink_to(place / "missing" / "folder")
    (place / "wrong_functions.py").write_text(FUNCTIONS)
    for id in ("demo/door-human", "demo/iris", "demo/pong"):
        datasets_cli.download(id, root=place / "root", progress=silent)
    datasets_cli.download(
        "minari/my/door-v0", source=sources / "minari", root=place / "root", progress=silent
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(place)
        function = importlib.import_module("wrong_functions").same
        datasets_cli.preprocess("demo/iris", function, "same", root=place / "root", progress=silent)


FUNCTIONS = """
import sys
def same(batch): return batch
def broken(batch): raise KeyError("reward")
def nothing(batch): return None
def shorter(batch): return batch[1:].exclude("_row")
def leaving(batch): sys.exit(3)
number = 3
"""


# Files of sources and of installed datasets


def empty(name: str) -> Spoil:
    return lambda place: (place / name).write_bytes(b"") and None


def short(name: str, share: float = 0.5) -> Spoil:
    return lambda place: os.truncate(place / name, int((place / name).stat().st_size * share))


def flipped(name: str, position: int = -40) -> Spoil:
    def spoil(place: Path) -> None:
        data = bytearray((place / name).read_bytes())
        data[position] ^= 0xFF
        (place / name).write_bytes(data)

    return spoil


def text(name: str, content: str = "<!DOCTYPE html><title>Quota exceeded</title>") -> Spoil:
    return lambda place: (place / name).write_text(content) and None


def gone(name: str) -> Spoil:
    return lambda place: (place / name).unlink()


def moved(folder: str, name: str) -> Spoil:
    """A folder of the cache root under another name: a foreign one, or that of another id."""
    return lambda place: shutil.move(place / folder, (place / folder).parent / name) and None


def copied(source: str, name: str) -> Spoil:
    return lambda place: shutil.copy(place / source, place / name) and None


def linked(name: str) -> Spoil:
    def spoil(place: Path) -> None:
        (place / name).rename(place / "elsewhere")
        (place / name).symlink_to(place / "elsewhere")

    return spoil


def instead(name: str, make: Callable[[Path], object]) -> Spoil:
    def spoil(place: Path) -> None:
        (place / name).unlink()
        make(place / name)

    return spoil


def piped(name: str) -> Spoil:
    return instead(name, os.mkfifo)


def a_folder(name: str) -> Spoil:
    return instead(name, Path.mkdir)


# JSON


def edited(name: str, **entries: Any) -> Spoil:
    """A JSON document with other entries; None leaves one out."""

    def spoil(place: Path) -> None:
        document = json.loads((place / name).read_bytes()) | entries
        kept = {key: value for key, value in document.items() if value is not None}
        (place / name).write_text(json.dumps(kept))

    return spoil


def manifest(id: str, **entries: Any) -> Spoil:
    """A manifest with other entries and a digest that fits."""

    def spoil(place: Path) -> None:
        path = place / "root" / "datasets" / id / "manifest.json"
        path.write_bytes(seal(json.loads(path.read_bytes()) | entries))

    return spoil


# HDF5


def without(*names: str) -> Spoil:
    def spoil(place: Path) -> None:
        with h5py.File(place / DOOR, "a") as file:
            for name in names:
                del file[name]

    return spoil


# Frames of Atari


def checkpoint(kind: str, number: int) -> str:
    return f"sources/pong/$store$_{kind}_ckpt.{number}.gz"


def array(name: str, values: np.ndarray) -> Spoil:

    def spoil(place: Path) -> None:
        buffer = io.BytesIO()
        np.save(buffer, values)
        (place / name).write_bytes(gzip.compress(buffer.getvalue()))

    return spoil
