"""Members with other columns, or other meanings of their numbers: mapped, or refused."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import datasets_cli
from datasets_cli import (
    ExperienceReplay,
    LazyTensorStorage,
    Mixture,
    TensorDictReplayBuffer,
    open_storage,
)
from datasets_cli.config import Config
from datasets_cli.errors import UnknownKey, UsageError, WrongRows, WrongSize, WrongState
from datasets_cli.replay import Member
from datasets_cli.replay.storages.dataset import DatasetStorage
from tests.support.mixture_members import member, rows_of, write
from tests.support.refusals import refused


@pytest.fixture
def first(tmp_path: Path) -> DatasetStorage:
    return member(tmp_path, 0, [5, 6])


@pytest.fixture
def other(tmp_path: Path) -> DatasetStorage:
    """Wider observations of another type and name, half of the actions, and one column more."""
    rows = rows_of(1, [4, 4])
    for successor in ((), ("next",)):
        wide = rows.pop((*successor, "observation")).astype(np.float64)
        rows[*successor, "state"] = wide[:, :2]
    rows["info", "success"] = rows["next", "done"]
    rows["action",] = rows["action",] / 2
    return open_storage(write(tmp_path / "other", rows))


MAPPED: dict[str, Any] = {
    "drop": ["info"],
    "rename": {"state": "observation", ("next", "state"): ("next", "observation")},
    "scale": {"action": 2.0},
    "cast": {"observation": torch.float32, ("next", "observation"): "float32"},
    "pad": {"observation": 3, ("next", "observation"): 3},
}


def test_columns_that_differ_are_refused_with_a_table(
    first: DatasetStorage, other: DatasetStorage
) -> None:
    with pytest.raises(UsageError) as caught:
        Mixture([first, other])
    told = str(caught.value)
    names = [storage.dataset.manifest.id for storage in (first, other)]
    lines = [line.split("  ") for line in told.splitlines() if line.startswith("  ")]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    assert cells[:-1] == [
        ["column", *names],
        ["info.success", "-", "bool [1]"],
        ["next.observation", "float32 [3]", "-"],
        ["next.state", "-", "float64 [2]"],
        ["observation", "float32 [3]", "-"],
        ["state", "-", "float64 [2]"],
    ]
    assert "rename={old: new}" in told


def test_declared_columns_are_those_of_the_others(
    first: DatasetStorage, other: DatasetStorage
) -> None:
    mixture = Mixture([first, Member(other, **MAPPED)], 64, seed=0)
    for _ in range(4):  # one by one, and read ahead
        batch = mixture.sample()
        mine = batch["member"] == 1
        mark = batch["mark"].float()
        expected = mark.expand(-1, 3).clone()
        expected[mine, 2] = 0  # padded
        assert torch.equal(batch["observation"], expected)
        assert torch.equal(batch["action"], -mark)
        assert batch["next", "observation"].dtype == torch.float32
        assert 0 < mine.sum() < 64


def test_a_column_is_filled_as_another_member_has_it(
    first: DatasetStorage, other: DatasetStorage
) -> None:
    declared = {**MAPPED, "drop": []}
    filling = Member(first, fill={("info", "success"): True})
    mixture = Mixture([filling, Member(other, **declared)], 64, seed=0)
    batch = mixture.sample()
    done = batch["next", "done"]
    expected = torch.where(batch["member"].unsqueeze(1) == 0, torch.ones_like(done), done)
    assert torch.equal(batch["info", "success"], expected)
    assert torch.equal(
        mixture.storage.scalar_column(("info", "success"))[:11, 0], torch.ones(11) > 0
    )


def test_slices_and_states_of_mapped_members(first: DatasetStorage, other: DatasetStorage) -> None:
    def mixture(**changed: Any) -> Mixture:
        members = [first, Member(other, **(MAPPED | changed))]
        return Mixture(members, 12, slice_len=4, seed=0, epoch="all")

    running = mixture()
    state = running.state_dict()
    marks = torch.cat([batch["mark"].view(-1, 4) for batch in pickle.loads(pickle.dumps(running))])
    assert (marks.diff() == 1).all() and len(marks) == 4
    mixture().load_state_dict(state)
    scaled = mixture(scale={"action": 3.0})
    with pytest.raises(WrongState) as error:
        scaled.load_state_dict(state)
    contents = [each["dataset"]["content"] for each in (state, scaled.state_dict())]
    assert [error.value.expected, error.value.found] == contents


WRONG: dict[str, tuple[dict[str, Any], type[UsageError], tuple[str, ...] | None]] = {
    "no such column": ({"cast": {"reward": "float32"}}, UnknownKey, ("reward",)),
    "no such group": ({"drop": ["infos"]}, UnknownKey, ("infos",)),
    "twice one key": ({"rename": {"mark": "action"}}, UsageError, ("action",)),
    "filled though there": ({"fill": {"mark": 0}}, UsageError, ("mark",)),
    "filled by nothing": ({"fill": {"goal": 0}}, UnknownKey, ("goal",)),
    "a filled row of another shape": ({"fill": {"extra": [1, 2, 3]}}, WrongSize, ("extra",)),
    "no dtype": ({"cast": {"action": "float33"}}, UsageError, None),
    "whole numbers scaled": ({"scale": {"mark": 0.5}}, WrongRows, ("mark",)),
    "other factors": ({"scale": {"action": [1.0, 2.0]}}, WrongSize, ("action",)),
    "cut": ({"pad": {"observation": 2}}, WrongSize, ("observation",)),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_mapped_is_refused(first: DatasetStorage, tmp_path: Path, name: str) -> None:
    arguments, error, key = WRONG[name]
    rows = rows_of(2, [3]) | {("extra",): np.zeros((3, 2), np.float32)}
    with refused(error, key=key):
        Mixture([Member(first, **arguments), open_storage(write(tmp_path / "more", rows))])


def test_a_column_of_the_name_member_is_refused(tmp_path: Path) -> None:
    rows = rows_of(2, [3]) | {("member",): np.zeros((3, 1), np.float32)}
    storage = open_storage(write(tmp_path / "more", rows))
    with refused(WrongRows, key=("member",)):
        Mixture([storage])
    mixture = Mixture([Member(storage, rename={"member": "team"})], 4)
    assert mixture.sample()["team"].shape == (4, 1)


def test_rows_of_other_kinds_are_refused(first: DatasetStorage) -> None:
    plain = TensorDictReplayBuffer(storage=LazyTensorStorage(5))
    plain.reader.storage.write(slice(0, 5), plain.reader.storage.flatten(torch.zeros(5, 2)))
    with refused(WrongRows, argument="members", found="not TensorDicts"):
        Mixture([first, plain])


# Real datasets


def test_door_of_d4rl_and_of_minari_are_mixed(config: Config) -> None:
    names = ["demo/door-human", "demo/door-minari"]
    datasets_cli.download(names, verify=False)
    human, minari = (ExperienceReplay(name, download=False) for name in names)
    with pytest.raises(WrongRows) as caught:
        Mixture([human, minari])
    assert "observation" in caught.value.found
    keys = ["observation", ("next", "observation"), ("next", "reward")]
    mapped = Member(minari, drop=["info", ("next", "info")], cast=dict.fromkeys(keys, "float32"))
    mixture = Mixture({Member(human, drop=["info"]): 0.5, mapped: 0.5}, 64, seed=0)
    batch = mixture.sample()
    source = [human, minari]
    for at, (number, index) in enumerate(zip(batch["member"], batch["index"], strict=True)):
        row = source[number][int(index) - 299 * int(number)]
        assert torch.equal(batch["observation"][at], row["observation"].float())
        assert torch.equal(batch["next", "reward"][at], row["next", "reward"].float())


@pytest.mark.parametrize("wrong", [{"drop": "action"}, {"drop": 3}, {"rename": "x"}, {"scale": 3}])
def test_mappings_that_do_not_go_by_column_are_refused(wrong: Any) -> None:
    (name,) = wrong
    with refused(UsageError, argument=name, found=wrong[name]):
        Member(TensorDictReplayBuffer(), **wrong)
