"""Rows in a list: what they are is what a batch of them is; and what no tensor storage takes."""

from __future__ import annotations

import pickle
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import (
    LazyStackedTensorDict,
    NonTensorData,
    NonTensorStack,
    TensorDict,
    tensorclass,
)

from datasets_cli import (
    LazyTensorStorage,
    ListStorage,
    ReplayBuffer,
    SliceSampler,
    TensorDictReplayBuffer,
)
from datasets_cli.errors import EmptyBuffer, UnknownKey, UsageError, WrongRows
from datasets_cli.replay.storages.collate import stack_rows
from tests.replay.storages.test_storages import steps
from tests.support.refusals import refused


def test_a_batch_of_tensordicts_keeps_their_shape_and_what_is_no_tensor() -> None:
    rows = steps(12).reshape(4, 3)
    rows["text"] = NonTensorStack(*(NonTensorStack(*"abc") for _ in range(4)))
    buffer = TensorDictReplayBuffer(storage=ListStorage(10), batch_size=2, seed=0)
    buffer.extend(rows)
    batch = buffer.sample()
    assert batch.batch_size == (2, 3) and batch["next"].batch_size == (2, 3)
    assert batch["text"] == [["a", "b", "c"]] * 2
    same = batch.select("number", "next") == torch.stack(
        [steps(12).reshape(4, 3)[i] for i in batch["index"][:, 0]]
    )
    assert bool(same.all())


@pytest.mark.parametrize(
    "items",
    [
        [{"a": torch.ones(1)}, {"a": torch.ones(1), "b": torch.ones(1)}],
        [(torch.ones(1),), (torch.ones(1), torch.ones(1))],
        [TensorDict({"a": torch.ones(1)}, []), TensorDict({"b": torch.ones(1)}, [])],
        [TensorDict({"a": torch.ones(1)}, []), TensorDict({"a": torch.ones(2)}, [])],
        [TensorDict({"a": torch.ones(1)}, []), TensorDict({"a": torch.ones(1)}, [1])],
        [torch.ones(1), torch.ones(2)],
    ],
)
def test_rows_that_differ_make_no_batch(items: list[Any]) -> None:
    with refused(WrongRows):
        stack_rows(items)


def test_a_tensor_storage_keeps_what_is_no_tensor_where_it_was() -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(10))
    buffer.extend(steps(3).set(("next", "text"), NonTensorStack("x", "y", "z")))
    assert buffer[:]["next", "text"] == ["x", "y", "z"]
    with refused(WrongRows, key="next.text", found="Tensor"):
        buffer.extend(steps(3).set(("next", "text"), torch.zeros(3)))
    with refused(WrongRows, key="number", expected="Tensor", found="str"):
        buffer.extend(buffer[:].set("number", NonTensorStack("x", "y", "z")))
    assert len(buffer) == 3


@pytest.mark.parametrize("key", [("collector", "traj_ids"), ("episode",), ("next", "done")])
def test_trajectories_are_found_as_in_a_tensor_storage(key: Any) -> None:
    rows = steps(33)
    ends = rows.pop(("next", "done"))
    rows[key] = ends if key == ("next", "done") else rows["number"] // 5
    drawn = []
    for storage in (ListStorage(20), LazyTensorStorage(20)):
        sampler = SliceSampler(slice_len=3)
        buffer = TensorDictReplayBuffer(storage=storage, sampler=sampler, batch_size=300, seed=0)
        buffer.extend(rows)
        drawn.append(buffer.sample()["number"])
    assert torch.equal(*drawn)


def test_rows_without_trajectories_say_so() -> None:
    buffer = ReplayBuffer(storage=ListStorage(9), sampler=SliceSampler(slice_len=3), batch_size=3)
    with refused(EmptyBuffer):
        buffer.sample()
    buffer.extend(TensorDict({"number": torch.arange(9)}, [9]))
    with refused(UnknownKey, key=("next", "done")):
        buffer.sample()


def test_a_list_without_room_is_refused() -> None:
    with refused(UsageError, argument="max_size", expected="a whole number from 1 on", found=0):
        ListStorage(0)


@tensorclass
class Step:
    number: torch.Tensor


def pickled(rows: Any) -> tuple[int, Any]:
    """Return the size of a pickle of a list storage with rows, and what it comes back with."""
    storage = ListStorage()
    storage.write(slice(0, len(rows)), [list(rows)])
    content = pickle.dumps(storage)
    return len(content), pickle.loads(content).contents()


NUMBERS = torch.arange(4000)
NAMED = TensorDict({"number": NUMBERS, "in": {"wide": torch.ones(4000, 2)}}, [4000])


@pytest.mark.parametrize(
    "rows",
    [
        NUMBERS.unbind(0),
        [{"a": (number, "text")} for number in NUMBERS],
        NAMED.unbind(0),
        Step(NUMBERS, batch_size=[4000]).unbind(0),
        NUMBERS.float().requires_grad_().detach().unbind(0),
    ],
)
def test_a_pickle_grows_with_the_rows_and_not_with_their_square(rows: Any) -> None:
    few, many = pickled(rows[:400])[0], pickled(rows[:4000])[0]
    assert many < 12 * few
    found = pickled(rows[:3])[1]
    assert [type(row) for row in found] == [type(row) for row in rows[:3]]
    assert repr(found) == repr(list(rows[:3]))


Two = namedtuple("Two", "a b")


@pytest.mark.parametrize(
    "row",
    [
        *(1, "text", b"b", None, 2.5, np.float64(1.5), np.arange(3), {1: [2, (3,)]}, {4}),
        *(Two(torch.ones(1), 2), torch.nn.Parameter(torch.ones(2)), torch.ones(2).to_sparse()),
        *(torch.arange(3).to(torch.uint16), torch.ones(2, dtype=torch.complex64).conj()),
        *(torch.empty(2, 0), TensorDict({"n": NonTensorData({"a": 1})}, [], device="cpu")),
        *(TensorDict({"n": NonTensorStack("a", "b")}, [2], names=["time"]),),
        LazyStackedTensorDict(TensorDict({"a": torch.ones(1)}), TensorDict({"a": torch.ones(2)})),
    ],
    ids=repr,
)
def test_any_row_comes_back_from_a_pickle_as_it_was(row: Any) -> None:
    [found] = pickled([row])[1]
    assert type(found) is type(row) and repr(found) == repr(row)
    assert getattr(found, "names", None) == getattr(row, "names", None)
