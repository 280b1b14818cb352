"""Splits and instructions: text of trajectories in tables, conditions, lists and statistics."""

from pathlib import Path

import numpy as np
import pytest
from tensordict import TensorDict

from datasets_cli import (
    DatasetWriter,
    ExperienceReplay,
    convert,
    create_dataset,
    dataset_info,
    dataset_stats,
    list_datasets,
    list_trajectories,
    preprocess,
)
from datasets_cli.config import Config
from datasets_cli.errors import UsageError
from datasets_cli.store.manifest import read_manifest
from datasets_cli.store.texts import count_splits

SPLITS = ["train", "val", "train", "val", ""]
WORDS = ["don't stop", "two  spaces", "return home", "two spaces", "return home"]
ID = "mine/robot"
COUNTS = {
    "train": {"trajectories": 2, "transitions": 4},
    "val": {"trajectories": 2, "transitions": 6},
    "": {"trajectories": 1, "transitions": 5},
}


def same(rows: TensorDict) -> TensorDict:
    return rows


@pytest.fixture
def config(tmp_path: Path) -> Config:
    config = Config(root=tmp_path)
    with DatasetWriter(ID, config=config) as writer:
        for number, (split, words) in enumerate(zip(SPLITS, WORDS, strict=True)):
            steps = number + 1
            writer.add_episode(
                {
                    "observation": np.full((steps, 2), number),
                    "next": {"observation": np.full((steps, 2), number)},
                    "action": np.zeros((steps, 1)),
                    "reward": np.zeros(steps),
                    "split": np.array([split] * steps, object),
                    "language": np.array([words] * steps, object),
                }
            )
    return config


@pytest.mark.parametrize(
    ("condition", "numbers"),
    [
        ("split == 'train'", [0, 2]),
        ("split != 'train' and length > 2", [3, 4]),
        ('"val" == split', [1, 3]),
        ("split == ''", [4]),
        ("""language == "don't stop" """, [0]),
        ("language == 'don\\'t stop'", [0]),
        ("language == 'two  spaces'", [1]),
        ("language == 'return home' and\n split == 'train'", [2]),
        ("split == language", []),
        (r"split == 'train\0'", []),
    ],
)
def test_a_condition_compares_text(config: Config, condition: str, numbers: list[int]) -> None:
    replay = ExperienceReplay(ID, root=config.root, batch_size=2)
    assert replay.filter(condition).trajectories["number"].tolist() == numbers


@pytest.mark.parametrize(
    "condition",
    [
        *("split", "split < 'train'", "split == 1", "split + 'a' == 'b'", "not split"),
        *("-split > 1", "split == train", "train != split", "split == return"),
    ],
)
def test_text_is_no_number_and_no_flag(config: Config, condition: str) -> None:
    replay = ExperienceReplay(ID, root=config.root, batch_size=2)
    with pytest.raises(UsageError) as caught:
        replay.filter(condition)
    assert caught.value.argument == "where"


def test_a_view_has_the_text_of_its_trajectories(config: Config) -> None:
    view = ExperienceReplay(ID, root=config.root, batch_size=2, text=True).episodes_at([3, 0])
    assert view["split"] == ["val"] * 4 + ["train"]
    table = view.trajectories
    assert table["split"].tolist() == ["val", "train"]
    assert table["language"].tolist() == ["two spaces", "don't stop"]
    assert table.to_pandas()["split"].tolist() == ["val", "train"]


@pytest.mark.parametrize("layout", ["ted", "compact"])
def test_splits_are_counted_in_every_layout(config: Config, layout: str) -> None:
    convert(ID, layout=layout, config=config)
    assert dataset_info(ID, config=config).splits == COUNTS
    assert list_datasets(ID, config=config)[0].splits == COUNTS
    assert dataset_stats(ID, config=config).splits == COUNTS


def test_the_splits_of_a_derived_dataset_are_its_own(config: Config) -> None:
    made = preprocess(ID, same, "train", where="split == 'train'", config=config)
    assert dataset_info(made.id, config=config).splits == {"train": COUNTS["train"]}


def test_trajectories_are_sorted_by_text(config: Config) -> None:
    replay = ExperienceReplay(ID, root=config.root, batch_size=2)
    assert replay.take(3, by="split").trajectories["number"].tolist() == [4, 0, 2]
    listed = list_trajectories(ID, sort="-split", config=config)
    assert listed.columns["split"] == ["val", "val", "train", "train", ""]
    assert listed.columns["number"] == [1, 3, 0, 2, 4]


def test_a_long_text_is_shortened_in_a_printed_table(tmp_path: Path) -> None:
    words = "put the red block into the drawer, " * 10
    steps = np.zeros((2, 1))
    columns = {"observation": steps, "action": steps, "reward": steps[:, 0]}
    create_dataset(
        "mine/a", columns | {"language": np.array([words] * 2)}, ends=[0, 1], root=tmp_path
    )
    table = ExperienceReplay("mine/a", root=tmp_path, batch_size=2).trajectories
    assert table["language"].tolist() == [words]
    assert max(map(len, repr(table).splitlines())) < 150


def test_splits_are_counted_without_reading_other_text(config: Config) -> None:
    folder = config.root / "datasets" / ID
    manifest = read_manifest(folder)
    (other,) = (text.filename for text in manifest.texts if text.key == ("language",))
    (folder / other).unlink()
    assert count_splits(folder, manifest.texts, manifest.files) == COUNTS


def test_a_text_that_no_trajectory_has_is_named(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    replay = ExperienceReplay(ID, root=config.root, batch_size=2)
    assert not len(replay.filter("split == 'trian'"))
    assert all(text in caplog.text for text in ("'trian'", "'train', 'val', ''"))
    caplog.clear()
    replay.filter("split != 'val'")
    assert not caplog.records
