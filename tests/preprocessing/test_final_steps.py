"""Final steps in derived datasets: kept with unchanged, whole trajectories, else dropped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensordict import TensorDict

import datasets_cli
from datasets_cli import ExperienceReplay, Mixture
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.project import Pipeline
from datasets_cli.store.arrays import DatasetArrays, open_arrays
from datasets_cli.store.dataset import open_dataset
from datasets_cli.store.deep_check import deep_check
from datasets_cli.store.manifest import read_manifest

LENGTHS = (3, 1, 4, 2, 2)
FINAL = [2, 3, 7, 9]
"""The last steps; the second trajectory is only this step, and the last trajectory terminates."""


@pytest.fixture(params=["ted", "compact"])
def made(request: pytest.FixtureRequest, config: Config) -> dict[str, Any]:
    numbers = np.arange(12)
    columns = {
        "observation": np.repeat(numbers, 48 * 48).reshape(12, 48, 48).astype(np.uint8),
        "action": 10.0 * numbers[:, None],
        "reward": 100.0 + numbers,
        "terminated": numbers == 11,
        "info.mission": np.array([f"go to {number}" for number in numbers], object),
    }
    datasets_cli.create_dataset("mine/f", columns, lengths=LENGTHS, layout=request.param)
    return columns


def opened(name: str) -> DatasetArrays:
    folder = Path(str(datasets_cli.dataset_path(name)))
    deep_check(open_dataset(folder), lambda _: None)
    return open_arrays(folder)


def scaled(rows: TensorDict) -> TensorDict:
    rows["action"] *= 2
    return rows


def check(columns: dict[str, Any], dataset: DatasetArrays, steps: list[int]) -> None:
    final = dataset.final
    assert dataset.manifest.final_steps == len(steps)
    assert (final["observation",] == columns["observation"][steps]).all()
    assert final["next", "reward"][:, 0].tolist() == columns["reward"][steps].tolist()
    assert final["info", "mission"].tolist() == columns["info.mission"][steps].tolist()


def test_a_copy_keeps_them_all_in_each_layout(made: dict[str, Any]) -> None:
    for layout in ("ted", "compact"):
        copy = datasets_cli.preprocess("mine/f", Pipeline(), layout, layout=layout)
        assert (copy.final_steps, copy.notes) == (4, ())
        check(made, dataset := opened(copy.id), FINAL)
        assert dataset.final.episodes.tolist() == [0, -1, 1, 2]
        assert dataset.final.steps.tolist() == FINAL


def test_a_selection_keeps_those_of_its_trajectories_with_new_numbers(made: dict[str, Any]) -> None:
    copy = datasets_cli.preprocess("mine/f", Pipeline(), "some", where="number >= 1")
    check(made, dataset := opened(copy.id), [7, 9])
    assert dataset.final.episodes.tolist() == [0, 1]
    assert dataset.final.steps.tolist() == [3, 5]
    assert copy.notes == () and len(dataset) == 6
    lengths = dataset.manifest.statistics["length"]  # of recorded steps
    assert [lengths[name] for name in ("min", "max", "mean")] == [2, 4, 8 / 3]


def test_a_trajectory_that_is_cut_loses_its_own(made: dict[str, Any]) -> None:
    copy = datasets_cli.preprocess("mine/f", Pipeline(), "first", num_frames=4)
    check(made, dataset := opened(copy.id), [2])
    assert (dataset.final.episodes.tolist(), dataset.final.steps.tolist()) == ([0], [2])
    assert copy.notes == ("3 final steps are dropped: a trajectory is cut or left out",)


@pytest.mark.parametrize("changes", [scaled, Pipeline(cast="float32")])
def test_a_change_of_rows_drops_them_and_says_how_many(changes: Any, made: dict[str, Any]) -> None:
    copy = datasets_cli.preprocess("mine/f", changes, "scaled")
    folder = Path(str(copy.path))
    assert (copy.final_steps, read_manifest(folder).final_steps) == (0, 0)
    assert not (folder / "final").exists()
    assert copy.notes == tuple(read_manifest(folder).metadata["notes"])
    assert copy.notes[0].startswith("4 final steps are dropped")
    again = datasets_cli.preprocess("mine/f", changes, "scaled")
    assert again.unchanged and again.notes == copy.notes
    assert datasets_cli.preprocess_columns("mine/f", changes, "other").notes == copy.notes


def test_the_command_says_it(made: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["preprocess", "mine/f", "--cast", "action=float32", "--where", "number == 2"]
    assert main([*arguments, "--name", "one"]) == 0
    assert "derived/one: 1 final step is dropped: " in capsys.readouterr().err
    main(["info", "derived/one"])
    assert "1 final step is dropped: " in capsys.readouterr().out


def test_joined_datasets_have_none_and_say_it(made: dict[str, Any]) -> None:
    replay = ExperienceReplay("mine/f")
    both = Mixture([replay, replay.filter("number == 0")]).preprocess("mine/both")
    manifest = read_manifest(Path(str(both.path)))
    assert (both.final_steps, len(open_arrays(both.path))) == (0, 10)
    assert manifest.metadata["notes"] == ["5 final steps are dropped: only transitions are joined"]
