"""Datasets that released versions wrote are opened, verified and read, bit for bit.

`python -m tests.store.test_stored_versions` writes those of this version, once before its release.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import datasets_cli
from datasets_cli import ExperienceReplay
from datasets_cli.config import Config
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.manifest import LAYOUTS, read_manifest
from tests.support.paths import PROJECT

FOLDER = PROJECT / "tests" / "data" / "formats"
LENGTHS = (4, 1, 3)
STEPS = np.arange(sum(LENGTHS))
ROWS = [0, 1, 2, 5, 6, 7]
"""The steps with a successor, or terminated: 3 and 4 are final steps."""


def recorded() -> dict[str, np.ndarray]:
    """Return steps whose values follow from their numbers."""
    return {
        "observation.pixels": (STEPS[:, None, None] + np.arange(48)[:, None] // 6).astype(np.uint8)
        * np.ones((1, 1, 48), np.uint8),
        "observation.state": STEPS[:, None] / np.float32(7),
        "action": np.stack((STEPS, -STEPS), 1).astype(np.float64),
        "reward": STEPS.astype(np.float32),
        "terminated": STEPS[-1] == STEPS,
        "truncated": np.isin(STEPS, (3, 4)),
        "info.mission": np.array([f"go to é{step % 3}" for step in STEPS], object),
    }


@pytest.fixture(params=sorted(FOLDER.glob("*/*")), ids=lambda path: "-".join(path.parts[-2:]))
def stored(request: pytest.FixtureRequest, config: Config) -> str:
    """The id of an installed dataset that a released version wrote."""
    id = f"mine/{request.param.name}"
    shutil.copytree(request.param, CacheRoot(config.root).dataset(id))
    return id


def test_every_recorded_step_is_there(stored: str) -> None:
    found: Any = ExperienceReplay(stored, text=True).recorded()
    expected = recorded()
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name].dtype == values.dtype, name
        assert found[name].tolist() == values.tolist(), name


def test_every_row_is_there_with_its_successor(stored: str) -> None:
    rows = ExperienceReplay(stored, text=True)[:]
    expected = recorded()
    following = np.array(ROWS) + 1
    assert rows["episode"].tolist() == [0, 0, 0, 1, 1, 1]
    assert rows["next", "reward"][:, 0].tolist() == expected["reward"][ROWS].tolist()
    assert rows["next", "done"][:, 0].tolist() == [False, False, True, False, False, True]
    assert list(rows["info", "mission"]) == expected["info.mission"][ROWS].tolist()
    for key in ("pixels", "state"):
        steps = expected[f"observation.{key}"]
        assert rows["observation", key].numpy().tolist() == steps[ROWS].tolist()
        after = rows["next", "observation", key].numpy()
        assert after[:-1].tolist() == steps[following[:-1]].tolist() and not after[-1].any()


def test_its_bytes_are_what_they_were(stored: str) -> None:
    (verified,) = datasets_cli.verify(stored, deep=True)
    assert verified.ok


def test_the_same_steps_have_the_same_identity_in_this_version(stored: str, tmp_path: Path) -> None:
    given = {"lengths": LENGTHS, "layout": stored.partition("/")[2], "root": tmp_path / "new"}
    made = datasets_cli.create_dataset(stored, recorded(), **given)
    before = datasets_cli.dataset_path(stored).path
    assert read_manifest(made.path).content == read_manifest(before).content


def test_this_version_has_stored_files() -> None:
    version = datasets_cli.__version__.rpartition(".")[0]
    assert {path.name for path in (FOLDER / version).iterdir()} == {*LAYOUTS}


if __name__ == "__main__":
    for layout in LAYOUTS:
        target = FOLDER / datasets_cli.__version__.rpartition(".")[0] / layout
        datasets_cli.create_dataset(f"mine/{layout}", recorded(), lengths=LENGTHS, layout=layout)
        shutil.copytree(datasets_cli.dataset_path(f"mine/{layout}").path, target)
