"""Final steps: recorded steps without a successor, in both layouts, with text and frames."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensordict import TensorDict

import datasets_cli
from datasets_cli.config import Config
from datasets_cli.errors import DamagedDataset, IntegrityError
from datasets_cli.store.arrays import DatasetArrays, open_arrays
from datasets_cli.store.check import check_sizes
from datasets_cli.store.dataset import open_dataset
from datasets_cli.store.deep_check import deep_check
from datasets_cli.store.manifest import read_manifest, write_manifest

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
