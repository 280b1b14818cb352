"""OGBench: the values of its own loader, splits, views, and files that are rejected."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datasets_cli import ExperienceReplay
from datasets_cli.catalogue.entries import load_recipe
from datasets_cli.config import Config
from datasets_cli.core.progress import Note
from datasets_cli.formats import npz
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.recipes.ogbench import catalogue, reader, relabel
from tests.support.ogbench_files import FOLDER, POINTMAZE, Arrays, load, read_files, read_task1
from tests.support.values import assert_folder, read_leaves, read_texts

TASK1 = "pointmaze-medium-navigate-singletask-task1-v0"
BASES = (
    "cube-single-play-v0",
    POINTMAZE,
    "powderworld-easy-play-v0",
    "puzzle-3x3-noisy-v0",
    "visual-cube-single-play-v0",
)
RELABELLED = load(FOLDER / "relabelled.npz")
LOADED = load(FOLDER / "loaded.npz")


def install(name: str, config: Config, source: Path = FOLDER, layout: str = "ted") -> Path:
    wish = InstallOptions(source=str(source), layout=layout)
    return install_dataset(f"ogbench/{name}", config, wish).path


# The rules of the tasks.


def variant_of(environment: str, task: int) -> catalogue.Variant:
    known = catalogue.variants().values()
    return next(each for each in known if (each.environment, each.task) == (environment, task))


@pytest.mark.parametrize("environment", sorted({name.split("/")[0] for name in RELABELLED}))
def test_rewards_masks_and_goals_are_those_of_ogbench(environment: str) -> None:
    of = {
        name.split("/")[1]: values
        for name, values in RELABELLED.items()
        if name.split("/")[0] == environment
    }
    for number in range(1, 6):
        task = relabel.Task.of(variant_of(environment, number))
        rewards, is_solved = task.rewards(of)
        assert rewards.tobytes() == of["rewards"][number - 1].tobytes()
        assert is_solved.tolist() == (of["masks"][number - 1] == 0).tolist()
        assert 0 < is_solved.sum() < len(is_solved)
        assert task.oracle_reps(of).tobytes() == of["oracle_reps"].tobytes()


def test_every_environment_has_five_tasks_and_the_default_of_the_readme() -> None:
    defaults = {
        row["environment"]: row["task"] for row in catalogue.tasks() if row["default"] == "yes"
    }
    readme = {
        "pointmaze": 1,
        "antmaze": 1,
        "humanoidmaze": 1,
        "antsoccer": 4,
        "cube": 2,
        "scene": 2,
        "puzzle-3x3": 4,
        "puzzle-4x4": 4,
        "puzzle-4x5": 2,
        "puzzle-4x6": 2,
    }
    assert len(catalogue.tasks()) == 5 * len(defaults) == 110
    for environment, task in defaults.items():
        (expected,) = {number for name, number in readme.items() if environment.startswith(name)}
        assert task == str(expected)


# The catalogue.


def test_the_catalogue_has_all_views_with_the_numbers_of_the_publisher() -> None:
    entries = {entry.name: entry for entry in load_recipe("ogbench").datasets(None)}
    kinds = ["-singletask-task", "-oraclerep-", "-v0"]
    counts = [sum(kind in name for name in entries) for kind in kinds]
    assert counts == [410, 82, 85 + 410 + 82]
    whole = entries["antmaze-large-navigate-v0"]
    assert (whole.num_transitions, whole.num_trajectories) == (1_100_000, 1_100)
    task = entries["antmaze-large-navigate-singletask-task2-v0"]
    assert (task.num_transitions, task.num_trajectories) == (1_100_000, None)
    assert task.details["environment"] == "ogbench:antmaze-large-singletask-task2-v0"
    goal = "xy 0 24, tolerance 0.5 (ogbench 1.2.2, locomaze/maze.py:325)"
    assert task.details["goal"] == goal
    goals = entries["visual-puzzle-4x6-play-oraclerep-v0"]
    assert goals.details["environment"] == "ogbench:visual-puzzle-4x6-v0"
    assert all("checksum" in entry.details for entry in entries.values())


def test_views_have_the_files_of_their_dataset() -> None:
    names = [POINTMAZE, TASK1, "pointmaze-medium-navigate-oraclerep-v0"]
    files = [[each.filename for each in catalogue.resources(name, None)] for name in names]
    assert files == [[POINTMAZE + ".npz", "pointmaze-medium-navigate-v0-val.npz"]] * 3


# The rows.


@pytest.mark.parametrize("base", BASES)
def test_all_values_of_a_dataset(base: str, config: Config) -> None:
    assert_folder(install(base, config), read_files(FOLDER, base))


def test_blocks_may_end_anywhere(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npz, "rows_per_block", lambda row_bytes: 7)
    assert_folder(install(TASK1, config), read_task1(FOLDER))


NAMES = {
    "observations": ("observation",),
    "next_observations": ("next", "observation"),
    "actions": ("action",),
    "rewards": ("next", "reward"),
    "oracle_reps": ("info", "oracle_reps"),
    **{name: ("info", name) for name in ("qpos", "qvel", "button_states")},
}


@pytest.mark.parametrize("name", sorted({name.split("/")[0] for name in LOADED}))
def test_rows_are_those_of_ogbenchs_loader(name: str, config: Config) -> None:
    folder = install(name, config)
    rows = read_leaves(folder)
    splits = np.array(read_texts(folder)["split",])
    for split in ("train", "val"):
        loaded = {
            key.split("/")[2]: values
            for key, values in LOADED.items()
            if key.startswith(f"{name}/{split}/")
        }
        here = {key: values[splits == split] for key, values in rows.items()}
        for key in NAMES.keys() & loaded.keys():
            assert here[NAMES[key]].tobytes() == loaded[key].tobytes(), key
        assert_flags(here, loaded)


def assert_flags(here: dict[tuple[str, ...], np.ndarray], loaded: Arrays) -> None:
    ends = loaded["terminals"] == 1
    assert here["next", "truncated"][:, 0].tolist() == ends.tolist()
    solved = loaded.get("masks", np.ones(len(ends))) == 0
    assert here["next", "terminated"][:, 0].tolist() == solved.tolist()


def test_a_task_can_be_solved_in_the_last_transition(config: Config, tmp_path: Path) -> None:
    file = load(FOLDER / f"{POINTMAZE}.npz")
    file["qpos"][98:102] = (20, 20)  # the last three rows of a trajectory, the first one of another
    save(tmp_path, file)
    dataset = read_leaves(install(TASK1, config, tmp_path))
    assert dataset["next", "terminated"][96:102, 0].tolist() == [0, 0, 1, 1, 1, 1]
    assert dataset["next", "truncated"][96:102, 0].tolist() == [0, 0, 0, 1, 0, 0]
    assert_folder(config.root / f"datasets/ogbench/{TASK1}", read_task1(tmp_path))


@pytest.mark.parametrize("version", ["", "-v0"])
def test_a_name_without_a_number_is_the_default_task(version: str, config: Config) -> None:
    name, notes = f"ogbench/visual-cube-single-play-singletask{version}", list[Any]()
    wish = InstallOptions(source=str(FOLDER), layout="compact")
    made = install_dataset(name, config, wish, progress=notes.append)
    assert made.id == "ogbench/visual-cube-single-play-singletask-task2-v0"
    assert Note(f"{name} is {made.id}") in notes


def test_splits_select_trajectories_and_frames_stack(config: Config) -> None:
    install("visual-cube-single-play-v0", config, layout="compact")
    replay = ExperienceReplay("ogbench/visual-cube-single-play-v0", root=config.root, frame_stack=2)
    val = replay.filter("split == 'val'")
    assert (len(replay), len(val), replay.manifest.has_rewards) == (110, 10, False)
    frames = load(FOLDER / "visual-cube-single-play-v0-val.npz")["observations"]
    assert np.array_equal(val[3]["observation"].numpy(), frames[2:4])


def save(folder: Path, train: dict[str, Any]) -> None:
    shutil.copy(FOLDER / "pointmaze-medium-navigate-v0-val.npz", folder)
    np.savez_compressed(folder / f"{POINTMAZE}.npz", **train)


# Planted faults: the comparison of the conformance suite sees each.


def reward_of_the_next_state(patch: pytest.MonkeyPatch) -> None:
    computed = reader._computed
    patch.setattr(
        reader,
        "_computed",
        lambda task, variant, now, following: computed(task, variant, following, following),
    )


def swapped_splits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reader, "SPLITS", {"val": "", "train": "-val"})


def lost_row_between_blocks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(npz, "rows_per_block", lambda row_bytes: 64)
    patch.setattr(reader, "_with_carry", lambda blocks: blocks)


def wider_goal(patch: pytest.MonkeyPatch) -> None:
    rows = [row | {"tolerance": "1.5"} for row in catalogue.tasks()]
    patch.setattr(catalogue, "tasks", lambda: rows)


@pytest.mark.parametrize(
    "plant",
    [
        reward_of_the_next_state,
        swapped_splits,
        lost_row_between_blocks,
        wider_goal,
    ],
)
def test_planted_faults_are_seen(
    plant: Callable[[pytest.MonkeyPatch], None], config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue.variants()
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        assert_folder(install(TASK1, config), read_task1(FOLDER))


# OGBench itself, where it is installed.


@pytest.mark.slow
def test_tasks_are_those_of_the_installed_ogbench() -> None:
    pytest.importorskip("ogbench", reason="ogbench is not installed")
    import gymnasium
    from ogbench.relabel_utils import relabel_dataset

    for row in catalogue.tasks():
        name = f"{row['environment']}-singletask-task{row['task']}-v0"
        environment = gymnasium.make(name)
        of = {
            key.split("/")[1]: values
            for key, values in RELABELLED.items()
            if key.split("/")[0] == row["environment"]
        }
        relabel_dataset(name, environment, of)
        rewards, _ = relabel.Task.of(variant_of(row["environment"], int(row["task"]))).rewards(of)
        assert rewards.tobytes() == of["rewards"].tobytes(), name
