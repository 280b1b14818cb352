"""Rows of a buffer: indexed and replaced as in TorchRL, and part of its state."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from datasets_cli import (
    LazyMemmapStorage,
    LazyTensorStorage,
    ListStorage,
    PrioritizedSampler,
    RandomSampler,
    ReplayBuffer,
    SelectTransform,
    TensorDictReplayBuffer,
    TensorStorage,
)
from datasets_cli.errors import NotWritable, UsageError, WrongRows, WrongSize, WrongState
from tests.support.refusals import refused

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchrl.data import replay_buffers as peer


def steps(*shape: int, start: int = 0) -> TensorDict:
    number = torch.arange(start, start + torch.Size(shape).numel()).view(shape)
    return TensorDict({"number": number, ("next", "reward"): number.unsqueeze(-1).float()}, shape)


@pytest.mark.parametrize(
    "index", [0, -1, slice(0, 2), slice(None), (0, 3), (slice(None), 1), (slice(2), 1), [3, 0]]
)
def test_rows_of_environments_are_indexed_as_they_are_written(index: Any) -> None:
    ours = ReplayBuffer(storage=LazyTensorStorage(20, ndim=2))
    theirs = peer.ReplayBuffer(storage=peer.LazyTensorStorage(20, ndim=2))
    for buffer in (ours, theirs):
        buffer.extend(steps(4, 5))
    assert torch.equal(ours[index]["number"], steps(4, 5)[index]["number"])
    if not isinstance(index, int):  # TorchRL cannot take one environment
        assert torch.equal(ours[index]["number"], theirs[index]["number"])


@pytest.mark.parametrize("kind", [LazyTensorStorage, LazyMemmapStorage])
@pytest.mark.parametrize("index", [slice(0, 3), [4, 1, 2], torch.tensor([-1, 0, 3])])
def test_rows_are_replaced_by_their_index(kind: Any, index: Any) -> None:
    ours, theirs = ReplayBuffer(storage=kind(6)), peer.ReplayBuffer(storage=peer.ListStorage(6))
    for buffer in (ours, theirs):
        buffer.extend(steps(6))
    ours[index] = steps(3, start=100)
    expected = torch.arange(6)
    expected[index] = torch.arange(100, 103)
    assert torch.equal(ours["number"], expected)
    ours[2] = steps(1, start=7)[0]
    assert ours[2]["number"] == 7 and ours[...]["number"].shape == (6,)


def test_rows_that_do_not_fit_replace_none() -> None:
    buffer = ReplayBuffer(storage=ListStorage(6))
    buffer.extend(steps(6))
    buffer[1:3] = steps(2, start=50)
    assert buffer["number"].tolist() == [0, 50, 51, 3, 4, 5]
    for index in (slice(0, 3), [0]):
        with refused(WrongRows, argument="data", found=2):
            buffer[index] = steps(2)
    with pytest.raises(NotWritable) as caught:
        buffer["number"] = torch.zeros(6)
    assert caught.value.key == "number"
    with pytest.raises(IndexError):
        buffer[6] = steps(1)[0]


def test_a_state_of_something_else_is_refused() -> None:
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(8))
    for state in ({}, peer.ReplayBuffer(storage=peer.LazyTensorStorage(8)).state_dict()):
        with pytest.raises(WrongState) as parts:
            buffer.load_state_dict(state)
        assert parts.value.expected == "sampler, generator"
        assert parts.value.found == (", ".join(state) or "nothing")
    larger = TensorDictReplayBuffer(storage=LazyTensorStorage(9))
    larger.extend(steps(9))
    with pytest.raises(WrongSize) as room:
        buffer.load_state_dict(larger.state_dict())
    assert (room.value.argument, room.value.expected, room.value.found) == ("max_size", 9, 8)
    assert len(buffer) == 0


def test_a_batch_keeps_its_index_whatever_transforms_select() -> None:
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(8),
        sampler=PrioritizedSampler(8, 1.0, 1.0),
        transform=SelectTransform("number"),
        batch_size=4,
    )
    buffer.extend(steps(8))
    batch = buffer.sample()
    assert torch.equal(batch["index"], batch["number"])
    assert batch["priority_weight"].tolist() == [1.0] * 4
    buffer.append_transform(lambda batch: batch.reshape(2, 2).exclude("index"))
    assert "index" not in buffer.sample()  # it would not say which row is which


@pytest.mark.parametrize(("row", "found"), [("abc", "str"), (1.0, "float"), ({"a": 1.0}, "float")])
def test_a_row_of_no_tensors_is_refused(row: Any, found: str) -> None:
    with refused(WrongRows, expected="Tensor", found=found):
        ReplayBuffer(storage=LazyTensorStorage(3)).add(row)


def test_a_list_of_tensors_is_a_structure_where_the_storage_says_so() -> None:
    rows = [torch.zeros(4), torch.ones(4)]
    batch = ReplayBuffer(storage=TensorStorage(rows), batch_size=3).sample()
    assert [leaf.tolist() for leaf in batch] == [[0.0] * 3, [1.0] * 3]


def test_priorities_for_a_sampler_without_any_are_passed_over() -> None:
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(8), batch_size=4)
    buffer.extend(steps(8))
    batch = buffer.sample()
    buffer.update_tensordict_priority(batch)
    assert "td_error" not in batch and not hasattr(buffer.sampler, "update_priority")


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"batch_size": 3.5}, "batch_size"),
        ({"batch_size": "3"}, "batch_size"),
        ({"prefetch": 2.5, "batch_size": 2}, "prefetch"),
        ({"storage": LazyTensorStorage}, "storage"),
        ({"storage": TensorDict({}, [])}, "storage"),
        ({"sampler": PrioritizedSampler}, "sampler"),
        ({"storage": RandomSampler}, "storage"),
        ({"sampler": LazyMemmapStorage}, "sampler"),
        ({"sampler": "random"}, "sampler"),
        ({"writer": "x"}, "writer"),
        ({"transform": 3}, "transform"),
        ({"collate_fn": 3}, "collate_fn"),
    ],
)
def test_a_part_that_is_none_is_refused_at_once(arguments: dict[str, Any], argument: str) -> None:
    with refused(UsageError, argument=argument):
        ReplayBuffer(**{"storage": LazyTensorStorage(3), **arguments})


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 4, 3)])
def test_entries_of_rows_are_replaced_by_the_numbers_that_extend_returns(
    shape: tuple[int, ...],
) -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(100, ndim=len(shape)))
    rows = TensorDict({"a": steps(*shape)["number"]}, shape)
    buffer.extend(rows)
    numbers = buffer.extend(rows)
    last = rows["a"].transpose(0, -1).flatten()[-2]  # time first, as rows are stored
    buffer.set_at_("a", torch.tensor([-1]), numbers[-2][None])
    written = torch.where(rows["a"] == last, -1, rows["a"])
    assert torch.equal(buffer["a"], torch.cat([rows["a"], written], -1))


def test_a_number_is_not_written_as_a_row() -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(3))
    buffer.extend(torch.zeros(2))
    with refused(WrongRows, key="data", found=[]):
        buffer.extend(torch.tensor(1.0))
    assert len(buffer) == 2
