"""Final steps: recorded steps without a successor, in both layouts, with text and frames."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensordict import TensorDict

import datasets_cli
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import DamagedDataset, IntegrityError, UnknownKey, Unsupported
from datasets_cli.store.arrays import DatasetArrays, open_arrays
from datasets_cli.store.check import check_sizes
from datasets_cli.store.dataset import open_dataset
from datasets_cli.store.deep_check import deep_check
from datasets_cli.store.manifest import read_manifest, write_manifest
from tests.support.refusals import refused

LENGTHS = (3, 1, 4)
FINAL = [2, 3, 7]
"""The last step of each trajectory; the second trajectory has only this step."""


def made(layout: str) -> tuple[dict[str, np.ndarray], Path]:
    numbers = np.arange(8)
    columns: dict[str, Any] = {
        "observation": np.repeat(numbers, 48 * 48).reshape(8, 48, 48).astype(np.uint8),
        "action": 10.0 * numbers[:, None],
        "reward": 100.0 + numbers,
        "truncated": np.isin(numbers, FINAL),
        "info.mission": np.array([f"go to {number}" for number in numbers], object),
        "final.state": numbers.astype(np.float32),
    }
    datasets_cli.create_dataset("mine/final", columns, lengths=LENGTHS, layout=layout)
    return columns, Path(str(datasets_cli.dataset_path("mine/final")))


def check(columns: dict[str, np.ndarray], dataset: DatasetArrays) -> None:
    final = dataset.final
    assert final.steps.tolist() == FINAL and final.episodes.tolist() == [0, -1, 1]
    assert (final["observation",] == columns["observation"][FINAL]).all()
    assert final["next", "reward"][:, 0].tolist() == columns["reward"][FINAL].tolist()
    assert final["next", "truncated"].all()
    assert final["info", "mission"].tolist() == columns["info.mission"][FINAL].tolist()
    assert final["final", "state"].tolist() == FINAL


@pytest.mark.parametrize("layout", ["ted", "compact"])
def test_every_column_of_a_final_step_is_kept_in_each_layout(layout: str, config: Config) -> None:
    columns, folder = made(layout)
    dataset = open_arrays(folder)
    check(columns, dataset)
    assert dataset.manifest.final_steps == 3 and len(dataset) == 5
    loaded = TensorDict.load_memmap(folder / "final")
    assert loaded["next", "reward"][:, 0].tolist() == columns["reward"][FINAL].tolist()
    deep_check(open_dataset(folder), lambda _: None)
    datasets_cli.convert("mine/final", layout="ted" if layout == "compact" else "compact")
    other = open_arrays(folder)
    assert other.manifest.layout != layout and other.content == dataset.content
    check(columns, other)
    names = [name for name in dataset.manifest.files if name.startswith("final/")]
    assert names and all(
        dataset.manifest.files[name] == other.manifest.files[name] for name in names
    )


def test_final_steps_that_follow_no_row_are_damage(config: Config) -> None:
    _, folder = made("ted")
    (folder / "final" / "episode.memmap").write_bytes(np.array([0, 9, 1]).tobytes())
    with pytest.raises(DamagedDataset):
        _ = open_arrays(folder).final.episodes


def test_they_are_read_from_a_dataset_that_was_replaced_by_the_same_data(config: Config) -> None:
    columns, folder = made("ted")
    dataset = open_arrays(folder)
    datasets_cli.convert("mine/final", layout="compact")
    check(columns, dataset)


def test_they_are_refused_where_other_data_took_the_place_of_an_open_dataset(
    config: Config,
) -> None:
    columns, folder = made("ted")
    dataset = open_arrays(folder)
    columns["reward"] = columns["reward"] + 1
    datasets_cli.create_dataset("mine/final", columns, lengths=LENGTHS, force=True)
    with pytest.raises(DamagedDataset) as caught:
        _ = dataset.final.steps
    assert (caught.value.id, caught.value.path) == ("mine/final", folder)


@pytest.mark.parametrize("damage", ["missing", "short", "link"])
def test_a_damaged_file_of_theirs_stops_their_reader_and_no_sampling(
    damage: str, config: Config
) -> None:
    _, folder = made("ted")
    path = folder / "final" / "action.memmap"
    content = path.read_bytes()
    path.unlink()
    if damage == "short":
        path.write_bytes(content[:-1])
    if damage == "link":
        path.symlink_to(folder / "action.memmap")
    assert len(open_dataset(folder)) == 5
    with pytest.raises(DamagedDataset):
        _ = open_arrays(folder).final["action",]
    with pytest.raises(IntegrityError):
        datasets_cli.verify("mine/final", config=config)


@pytest.mark.parametrize("number", [0, 2, 4, 2**47])
def test_a_manifest_with_another_number_of_final_steps_is_damage(
    number: int, config: Config
) -> None:
    _, folder = made("ted")
    manifest = read_manifest(folder)
    if number == 0:  # files that are not known are never opened
        write_manifest(folder, replace(manifest, final_steps=0))
        assert len(open_arrays(folder).final) == 0
        return
    with pytest.raises(DamagedDataset):
        check_sizes(folder, replace(manifest, final_steps=number))


def test_files_with_every_successor_have_no_final_steps(config: Config) -> None:
    columns, _ = made("ted")
    columns = {**columns, "next_observation": columns["observation"]}
    datasets_cli.create_dataset("mine/whole", columns, lengths=LENGTHS, layout="ted")
    folder = Path(str(datasets_cli.dataset_path("mine/whole")))
    assert not (folder / "final").exists()
    assert "final_steps" not in read_manifest(folder).to_json()


# Shown


def test_they_are_shown_like_rows(config: Config, capsys: pytest.CaptureFixture[str]) -> None:
    columns, _ = made("ted")
    peeked = datasets_cli.peek("mine/final", final=True)
    assert (peeked.steps, peeked.trajectories, peeked.final_steps) == ((2, 3, 7), (0, -1, 1), 3)
    values = {each.name: each.values for each in peeked.columns}
    assert (values["observation"] == columns["observation"][FINAL]).all()
    assert values["info.mission"] == columns["info.mission"][FINAL].tolist()
    assert "done" not in values and "next.observation" not in values
    assert main(["peek", "mine/final", "--final", "--columns", "action,info.mission"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [
        ["2", "0", "20"],
        ["3", "-", "30"],
        ["7", "1", "70"],
    ]


def test_one_trajectory_or_some_of_them_are_shown(
    config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    made("compact")
    assert datasets_cli.peek("mine/final", final=True, trajectory=1).steps == (7,)
    assert datasets_cli.peek("mine/final", final=True, start=1, n=1).steps == (3,)
    assert main(["--json", "peek", "mine/final", "--final", "--columns", "next.reward"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["columns"][0]["values"] == [[102.0], [103.0], [107.0]]
    assert (document["steps"], document["trajectories"]) == ([2, 3, 7], [0, -1, 1])


def test_a_dataset_or_a_trajectory_without_them_is_an_error_that_says_so(config: Config) -> None:
    columns, _ = made("ted")
    terminated = np.isin(np.arange(8), FINAL[2:])
    columns = {name: columns[name] for name in ("observation", "action", "reward")}
    datasets_cli.create_dataset("mine/one", columns | {"terminated": terminated}, lengths=LENGTHS)
    assert datasets_cli.peek("mine/one", final=True).steps == (2, 3)
    for id, call in {"demo/iris": {}, "mine/one": {"trajectory": 1}}.items():
        datasets_cli.download("demo/iris")
        with refused(Unsupported, argument="final", id=id):
            datasets_cli.peek(id, final=True, **call)
    with refused(UnknownKey, key=("next", "done")):
        datasets_cli.peek("mine/one", final=True, columns="next.done")


def test_recorded_steps_are_told_with_the_trajectories_of_one_step(
    config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    _, folder = made("ted")
    told = (
        "8 recorded steps, 5 transitions: 3 final steps have no successor; 1 of them is a "
        "trajectory of one step, without a transition"
    )
    assert read_manifest(folder).final_steps_alone == 1
    assert told in capsys.readouterr().err
    assert main(["info", "mine/final"]) == 0
    assert told in " ".join(capsys.readouterr().out.split())


# Compared and repaired


@pytest.mark.parametrize("key", ["action", "info.mission", "observation"])
def test_a_final_step_that_differs_is_found(
    key: str, config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    columns, _ = made("ted")
    others = {name: values.copy() for name, values in columns.items()}
    others[key][3] = "other" if key == "info.mission" else 99
    datasets_cli.create_dataset("mine/other", others, lengths=LENGTHS, layout="compact")
    found = datasets_cli.compare_datasets("mine/final", "mine/other")
    assert (found.equal, found.final_steps) == (False, (3, 3))
    assert found.final_difference == (1, tuple(key.split(".")))
    assert not any(each.num_different for each in found.columns)
    assert main(["diff", "mine/final", "mine/other"]) == 10
    assert f"Final step 1 is the first that differs, in {key}." in capsys.readouterr().out


def test_datasets_with_other_numbers_of_final_steps_differ(config: Config) -> None:
    columns, _ = made("ted")
    shorter = {name: values[:3] for name, values in columns.items()}
    datasets_cli.create_dataset("mine/a", shorter, lengths=[3])
    longer = {name: values[:4] for name, values in columns.items()}
    datasets_cli.create_dataset("mine/b", longer, lengths=[3, 1])
    found = datasets_cli.compare_datasets("mine/a", "mine/b")
    assert (found.equal, found.final_steps, found.final_difference) == (False, (1, 2), None)


@pytest.mark.parametrize("layout", ["ted", "compact"])
def test_a_damaged_final_file_is_found_and_repaired(layout: str, config: Config) -> None:
    id = "demo/door-human"
    datasets_cli.download(id, layout=layout)
    folder = Path(str(datasets_cli.dataset_path(id)))
    path = folder / "final" / "next" / "reward.memmap"
    content = path.read_bytes()
    path.write_bytes(bytes(len(content)))
    with pytest.raises(IntegrityError):
        datasets_cli.verify(id)
    (repaired,) = datasets_cli.repair(id)
    assert repaired.id == id and path.read_bytes() == content
    datasets_cli.verify(id)
