"""A test of the tests: whatever goes wrong in a conversion, the checker of values must see it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from datasets_cli.config import Config
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.recipes.d4rl import catalogue
from datasets_cli.schema.columns import Key
from tests.support.d4rl_files import LAYOUTS
from tests.support.values import FLAGS, assert_d4rl, read_leaves

Change = Callable[[np.ndarray], np.ndarray]

KEYS: list[Key] = [
    ("observation",),
    ("action",),
    ("info", "qpos"),
    ("info", "action_log_probs"),
    ("episode",),
    ("next", "observation"),
    ("next", "reward"),
    ("next", "done"),
    ("next", "terminated"),
    ("next", "truncated"),
]


@dataclass(frozen=True)
class Case:
    """One D4RL file and the folder it was converted to."""

    source: Path
    folder: Path
    limit: int | None

    def check(self) -> None:
        assert_d4rl(self.folder, self.source, self.limit)

    def check_seen(self, words: str) -> None:
        """Check that the comparison fails, and says where."""
        with pytest.raises(AssertionError, match=words):
            self.check()

    def change(self, key: Key, change: Change) -> None:
        """Replace a leaf's file."""
        path = self.folder.joinpath(*key[:-1], f"{key[-1]}.memmap")
        path.write_bytes(change(read_leaves(self.folder)[key]).tobytes())


def install(layout: str, folder: Path) -> Case:
    name, limit = LAYOUTS[layout].name, LAYOUTS[layout].max_episode_steps
    source = folder / "source" / catalogue.resources(name, None)[0].filename
    source.parent.mkdir()
    LAYOUTS[layout].write(source)
    wish = InstallOptions(source=str(source.parent), accept_any=True)
    return Case(
        source, install_dataset(f"d4rl/{name}", Config(root=folder / "root"), wish).path, limit
    )


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return install("mujoco_v2", tmp_path_factory.mktemp("good"))


@pytest.fixture
def case(good: Case, tmp_path: Path) -> Case:
    return replace(good, folder=shutil.copytree(good.folder, tmp_path / "copy"))


@pytest.mark.parametrize("layout", ["mujoco_v0", "mujoco_v2", "kitchen"])
def test_no_fault_passes(layout: str, tmp_path: Path) -> None:
    case = install(layout, tmp_path)
    case.check()
    for key in read_leaves(case.folder):
        case.change(key, np.copy)
    case.check()


def last_bit(rows: np.ndarray) -> np.ndarray:
    changed = rows.copy()
    changed[-1, -1] = np.nextafter(changed[-1, -1], np.inf)
    return changed


FAULTS: dict[str, tuple[Key, Change, str]] = {
    **{f"{key[-1]} shifted": (key, lambda rows: np.roll(rows, 1, axis=0), key[-1]) for key in KEYS},
    **{f"{key} set": ((key,), np.ones_like, key) for key in FLAGS},
    "zeros": (("info", "qpos"), np.zeros_like, "qpos"),
    "an end one row early": (("next", "done"), lambda rows: np.roll(rows, -1, axis=0), "done"),
    "one bit": (("observation",), last_bit, "row 39"),
    "-0.0 becomes 0.0": (("action",), lambda rows: rows + 0.0, r"action.*row 5"),
    "another NaN": (
        ("observation",),
        lambda rows: np.where(np.isnan(rows), np.float32(np.nan), rows),
        r"observation.*row 9",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_leaf_is_seen(fault: str, case: Case) -> None:
    key, change, words = FAULTS[fault]
    case.change(key, change)
    case.check_seen(words)


def test_a_cast_is_seen(case: Case) -> None:
    case.change(("info", "qvel"), lambda rows: rows.astype("float32"))
    meta = case.folder / "info" / "meta.json"
    entries = json.loads(meta.read_text())
    assert entries["qvel"]["dtype"] == "torch.float64"
    entries["qvel"]["dtype"] = "torch.float32"
    meta.write_text(json.dumps(entries))
    case.check_seen("qvel")


def test_trajectory_table_with_a_wrong_end_is_seen(case: Case) -> None:
    path = case.folder / "trajectories.npy"
    offsets = np.load(path)
    offsets[2] += 1
    np.save(path, offsets)
    case.check_seen("offsets")


def test_successors_that_are_not_those_recorded_are_seen(case: Case) -> None:
    leaves = read_leaves(case.folder)
    key, done = ("next", "observation"), leaves["next", "done"]
    case.change(key, lambda rows: np.roll(leaves["observation",], -1, axis=0))
    case.check_seen(r"'next', 'observation'.*row 0")
    case.change(key, lambda rows: np.where(done, rows.dtype.type(0), leaves[key]))
    case.check_seen(r"'next', 'observation'.*row 4")


def test_a_missing_leaf_is_seen(case: Case) -> None:
    meta = case.folder / "info" / "meta.json"
    entries = json.loads(meta.read_text())
    del entries["qvel"]
    meta.write_text(json.dumps(entries))
    case.check_seen("qvel")


def test_a_foreign_file_is_seen(case: Case) -> None:
    (case.folder / "info" / "more.memmap").write_bytes(bytes(8))
    case.check_seen("more")


@pytest.mark.parametrize("count", ["num_transitions", "num_trajectories"])
def test_wrong_count_in_the_manifest_is_seen(count: str, case: Case) -> None:
    path = case.folder / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest[count] += 1
    path.write_text(json.dumps(manifest))
    case.check_seen(count.removeprefix("num_"))
