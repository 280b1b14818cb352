"""Offline and online rows that differ: refused with both named, or their common entries chosen."""

from __future__ import annotations

import ast
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from datasets_cli import (
    ExperienceReplay,
    LazyTensorStorage,
    OfflineToOnline,
    RenameTransform,
    ReplayBufferEnsemble,
    TensorDictReplayBuffer,
)
from datasets_cli.errors import UnknownKey, UsageError, WrongRows
from datasets_cli.replay.mixing.column_mapping import difference_table, different_keys
from tests.replay.mixing.test_offline_to_online import buffer, rows
from tests.support.refusals import refused


def online_of(data: TensorDict) -> TensorDictReplayBuffer:
    made = TensorDictReplayBuffer(storage=LazyTensorStorage(1000))
    made.extend(data)
    return made


def test_each_difference_is_named_with_what_both_have() -> None:
    number = torch.arange(5)
    odd = TensorDict(
        {"number": number.float(), ("next", "number"): torch.ones(5, 3), "action": number}, [5]
    )
    both = OfflineToOnline(buffer(5), online_of(odd), batch_size=4)
    with pytest.raises(UsageError) as caught:
        both.sample()
    for line in (
        "The rows of offline and online differ in action, next.number, number",
        "  column       offline   online",
        "  action       -         int64 []",
        "  next.number  int64 []  float32 [3]",
        "  number       int64 []  float32 []",
        "DoubleToFloat or RenameTransform",
    ):
        assert line in str(caught.value)


def test_rows_of_a_loop_with_fewer_entries_than_the_dataset_are_mixed_by_keys(door: str) -> None:
    replay = ExperienceReplay(door)
    online = online_of(replay[:50].select("observation", "action", ("next", "reward")))
    with pytest.raises(WrongRows) as caught:
        OfflineToOnline(replay, online).sample(8)
    assert "next.done" in caught.value.found
    told = str(caught.value).partition("keys=")[2].removesuffix(".")
    keys = ast.literal_eval(told)  # as the message says, to be pasted
    assert set(keys) == {"observation", "action", ("next", "reward")}
    batch = OfflineToOnline(replay, online, keys=keys).sample(8)
    assert set(batch.exclude("index").keys(True, True)) == set(keys)
    right = replay[batch["index", "index"]]  # rows of both are those of the dataset
    assert torch.equal(batch["next", "reward"], right["next", "reward"])


def test_keys_choose_entries_of_batches_that_are_all_offline_too() -> None:
    both = OfflineToOnline(buffer(5), buffer(0), keys="number")
    assert set(both.sample(4).keys()) == {"number", "index"}
    with refused(UnknownKey, argument="keys", key=("action",)):
        OfflineToOnline(buffer(5), buffer(0), keys=["number", "action"]).sample(4)


def test_a_group_among_the_keys_is_whole() -> None:
    both = OfflineToOnline(buffer(5), buffer(5), keys=["next"])
    assert set(both.sample(4).exclude("index").keys(True, True)) == {("next", "number")}


def test_a_transform_of_one_buffer_makes_both_alike() -> None:
    online = online_of(rows(range(500, 505)).rename_key_("number", "count"))
    with refused(WrongRows, found=["count", "number"]):
        OfflineToOnline(buffer(5), online).sample(4)
    online.append_transform(RenameTransform(["count"], ["number"]))
    assert OfflineToOnline(buffer(5), online).sample(4)["number"][2:].min() >= 500


def test_element_types_of_members_of_an_ensemble_are_not_cast() -> None:
    single = online_of(TensorDict({"x": torch.ones(5)}, [5]))
    double = online_of(TensorDict({"x": torch.ones(5, dtype=torch.float64)}, [5]))
    ensemble = ReplayBufferEnsemble(single, double, sample_from_all=True)
    with refused(WrongRows, key=("x",)):
        ensemble.sample_flat(4)


def test_rows_on_different_devices_differ() -> None:
    here, there = ({("x",): torch.ones(2, 3, device=name)} for name in ("cpu", "meta"))
    assert different_keys(here, there) == [("x",)] and different_keys(here, {**here}) == []
    told = difference_table([("x",)], ["offline", "online"], [here, there])
    assert told.splitlines()[1] == "  x       float32 [3]  float32 [3] on meta"


def test_text_and_tensors_under_one_key_differ() -> None:
    words = [TensorDict({"x": "word"}, []) for _ in range(3)]
    text = TensorDictReplayBuffer(batch_size=2)
    text.extend(words)
    both = OfflineToOnline(online_of(TensorDict({"x": torch.ones(3)}, [3])), text)
    with refused(WrongRows, key=("x",)):
        both.sample(4)


def test_text_of_both_is_joined() -> None:
    made = [TensorDictReplayBuffer() for _ in range(2)]
    for word, each in zip(("old", "new"), made, strict=True):
        each.extend([TensorDict({"x": word}, []) for _ in range(3)])
    assert OfflineToOnline(*made).sample(4)["x"] == ["old", "old", "new", "new"]


@pytest.mark.parametrize("keys, found", [([], []), ([3], 3)])
def test_keys_that_name_no_entry_are_refused(keys: Any, found: object) -> None:
    with refused(UsageError, found=found):
        OfflineToOnline(buffer(5), buffer(5), keys=keys)
