"""Writes: which rows a buffer takes, and which it refuses."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict

import datasets_cli
from datasets_cli import (
    Compose,
    LazyMemmapStorage,
    LazyTensorStorage,
    ListStorage,
    PrioritizedSampler,
    PrioritizedSliceSampler,
    ReplayBuffer,
    TensorDictMaxValueWriter,
    TensorDictReplayBuffer,
    Transform,
)
from datasets_cli.errors import EmptyBuffer, UsageError, WrongRows
from datasets_cli.replay import MultiStepTransform
from datasets_cli.torchrl import TensorDictPrioritizedReplayBuffer
from tests.support.refusals import refused

# A write takes few calls, in few files, and does no work for an error that does not occur.


PACKAGE = str(Path(datasets_cli.__file__).parent)


def test_a_write_by_priority_takes_few_calls_and_names_nothing() -> None:
    step = {"observation": torch.zeros(100, 3), "done": torch.zeros(100, 1)}
    rows = TensorDict({**step, "next": {**step, "reward": torch.zeros(100, 1)}}, [100])
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(1000), sampler=PrioritizedSampler(1000, 0.7, 0.5)
    )
    buffer.extend(rows)
    calls: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            calls.append((frame.f_code.co_filename, frame.f_code.co_name))

    sys.setprofile(note)
    try:
        buffer.extend(rows)
    finally:
        sys.setprofile(None)
    assert len(calls) <= 50 and len({file for file, _ in calls}) <= 12, calls
    assert not {"show_key", "names", "outline"} & {name for _, name in calls}


# A write is whole or leaves no trace: no row, no count, no priority, nothing kept back.


STORAGES = [LazyTensorStorage, LazyMemmapStorage]


def rows(numbers: list[int], **more: Any) -> TensorDict:
    count = len(numbers)
    entries = {"a": torch.tensor(numbers, dtype=torch.uint8), "b": torch.zeros(count, 2)}
    return TensorDict({**entries, **more}, [count])


BAD: list[Callable[[], Any]] = [
    lambda: rows([300 % 256]).set("a", torch.tensor([300])),
    lambda: rows([1]).set("a", torch.tensor([2.9])),
    lambda: rows([1]).set("b", torch.zeros(1, 3)),
    lambda: rows([1, 2]).set("b", torch.zeros(2, 2, 1)),
    lambda: rows([1]).exclude("b"),
    lambda: rows([1], c=torch.zeros(1)),
    lambda: rows([1], td_error=torch.tensor([float("nan")])),
    lambda: torch.zeros(2),
]


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("bad", BAD)
def test_a_refused_write_changes_nothing(storage: Any, bad: Callable[[], Any]) -> None:
    buffer = ReplayBuffer(storage=storage(4), sampler=PrioritizedSampler(4, 0.7, 0.5))
    buffer.extend(rows([1, 2, 3]))
    before, revision = buffer.state_dict(), buffer.storage.revision  # type: ignore[attr-defined]
    data = bad()
    if isinstance(data, TensorDict) and "td_error" in data.keys():  # noqa: SIM118
        data["c"] = data.pop("td_error")  # of a buffer that knows no such key: one key too many
    for write in (buffer.extend, lambda given: buffer.__setitem__(slice(0, 1), given)):
        with pytest.raises(UsageError):
            write(data)
    after = buffer.state_dict()
    assert [*map(torch.Tensor.tolist, after["rows"]["columns"])] == [
        *map(torch.Tensor.tolist, before["rows"]["columns"])
    ]
    assert after["writer"] == before["writer"]
    assert torch.equal(after["sampler"]["priorities"], before["sampler"]["priorities"])
    assert revision == buffer.storage.revision  # type: ignore[attr-defined]


@pytest.mark.parametrize("storage", STORAGES)
def test_another_element_type_is_refused_with_both_types_and_what_to_do(storage: Any) -> None:
    buffer = TensorDictReplayBuffer(storage=storage(4), batch_size=2)
    buffer.extend(rows([1, 2]))
    for write in (buffer.extend, buffer.add, lambda data: buffer.__setitem__(0, data)):
        data = rows([1]).set("a", torch.tensor([300]))
        data = data if write == buffer.extend else data[0]
        with refused(WrongRows, key="a", expected=torch.uint8, found=torch.int64):
            write(data)
    assert buffer["a"].tolist() == [1, 2]


@pytest.mark.parametrize("storage", STORAGES)
def test_the_first_rows_that_are_refused_do_not_fix_the_form(storage: Any) -> None:
    buffer = TensorDictReplayBuffer(storage=storage(4), batch_size=2)
    with refused(EmptyBuffer):
        buffer[:] = rows([1, 2])
    ranked = TensorDictReplayBuffer(storage=storage(4), writer=TensorDictMaxValueWriter("r"))
    with refused(WrongRows, key="r", row=0):
        ranked.extend(rows([1], r=torch.tensor([float("nan")])))
    for other in (buffer, ranked):
        other.extend(TensorDict({"r": torch.tensor([1.5])}, [1]))
        assert other["r"].tolist() == [1.5]


@pytest.mark.parametrize("storage", [*STORAGES, ListStorage])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_priority_that_is_no_number_refuses_the_rows(storage: Any, value: float) -> None:
    buffer = TensorDictPrioritizedReplayBuffer(alpha=1, beta=1, storage=storage(4), batch_size=2)
    buffer.extend(rows([1, 2], td_error=torch.tensor([1.0, 3.0])))
    with refused(WrongRows, key=("td_error",)):
        buffer.extend(rows([3, 4], td_error=torch.tensor([1.0, value])))
    assert buffer["a"].tolist() == [1, 2]
    state = buffer.state_dict()
    assert state["sampler"]["priorities"].tolist() == [1.0, 3.0]
    assert state["writer"]["write_count"] == 2


def steps(start: int, stop: int) -> TensorDict:
    count = stop - start
    flag = torch.zeros(count, 1, dtype=torch.bool)
    inside = TensorDict({"reward": torch.ones(count, 1), "done": flag}, [count])
    return TensorDict({"a": torch.arange(start, stop), "next": inside}, [count])


class Refusing(Transform):
    """Refuses rows where it is told to."""

    refuses = False

    def __call__(self, batch: TensorDict, /) -> TensorDict:
        return batch

    def inv(self, data: TensorDict, /) -> TensorDict:
        if self.refuses:
            raise ArithmeticError("refused")
        return data


def test_a_transform_that_fails_leaves_nothing_in_those_before_it() -> None:
    refusing = Refusing()
    transform = Compose(refusing, MultiStepTransform(1, 0.5))  # the second writes first
    buffer = ReplayBuffer(storage=LazyTensorStorage(10), transform=transform)
    buffer.extend(steps(0, 3))
    refusing.refuses = True
    with pytest.raises(ArithmeticError):
        buffer.extend(steps(10, 13))
    refusing.refuses = False
    buffer.extend(steps(3, 5))
    assert buffer["a"].tolist() == [0, 1, 2, 3]


def test_rows_that_the_storage_refuses_are_not_kept_back() -> None:
    multi_step = MultiStepTransform(1, 0.5)
    buffer = ReplayBuffer(storage=LazyTensorStorage(10), transform=multi_step)
    buffer.extend(steps(0, 3))
    multi_step.n_steps = 2
    for wrong in (torch.ones(6, 1, 2), torch.ones(6, 1).double()):
        with refused(WrongRows):
            buffer.extend(steps(3, 9).set(("next", "reward"), wrong))
    multi_step.n_steps = 1
    buffer.extend(steps(3, 5))
    assert buffer["a"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "sampler",
    [
        lambda size: PrioritizedSampler(size, 0.7, 0.5),
        lambda size: PrioritizedSliceSampler(size, 0.7, 0.5, slice_len=2),
    ],
)
def test_a_sampler_has_room_for_a_larger_storage(sampler: Any) -> None:
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(10), sampler=sampler(4), batch_size=64, seed=0
    )
    buffer.extend(steps(0, 10))
    assert set(buffer.sample()["index"].tolist()) > {4, 5, 6, 7, 8}


@pytest.mark.parametrize("width", [3, 7, 25])
def test_priorities_have_room_for_a_size_that_is_rounded_up(width: int) -> None:
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(10, ndim=2),
        sampler=PrioritizedSampler(10, 1, 1),
        batch_size=64,
        seed=0,
    )
    room = -(-10 // width) * width
    for start in range(0, 3 * room, width):  # three times around the ring
        numbers = torch.arange(start, start + width).unsqueeze(1)
        buffer.extend(TensorDict({"a": numbers}, [width, 1]))
    assert len(buffer) == room
    batch = buffer.sample()
    buffer.update_priority(batch["index"], batch["a"].double())
    state = buffer.state_dict()
    again = TensorDictReplayBuffer(
        storage=LazyTensorStorage(10, ndim=2),
        sampler=PrioritizedSampler(10, 1, 1),
        batch_size=64,
        seed=0,
    )
    buffer.load_state_dict(state)
    again.load_state_dict(state)
    assert again.sample()["index"].tolist() == buffer.sample()["index"].tolist()


def test_a_dump_keeps_priorities_of_a_size_that_is_rounded_up(tmp_path: Any) -> None:
    def made() -> TensorDictReplayBuffer:
        storage, sampler = LazyTensorStorage(10, ndim=2), PrioritizedSampler(10, 1, 1)
        return TensorDictReplayBuffer(storage=storage, sampler=sampler, batch_size=8)

    buffer, again = made(), made()
    for _ in range(5):
        buffer.extend(TensorDict({"a": torch.arange(4).view(4, 1)}, [4, 1]))
    buffer.update_priority(torch.tensor([[2, 3]]), 7.0)
    buffer.dumps(tmp_path)
    again.loads(tmp_path)
    known = again.state_dict()["sampler"]["priorities"]
    assert known.tolist().count(7.0) == 1 and len(known) == 12


class Model:
    """What a ring of 5 rows holds."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.cursor = 0

    def extend(self, numbers: list[int]) -> None:
        for number in numbers:
            if self.cursor == len(self.rows):
                self.rows.append(number)
            self.rows[self.cursor] = number
            self.cursor = (self.cursor + 1) % 5


numbers = st.lists(st.integers(0, 255), min_size=1, max_size=12)
writes = st.one_of(
    st.tuples(st.just("extend"), numbers),
    st.tuples(st.just("add"), st.integers(0, 255)),
    st.tuples(st.just("replace"), st.integers(0, 4), st.integers(0, 255)),
    st.tuples(st.just("bad"), st.integers(0, len(BAD) - 1)),
    st.tuples(st.just("empty")),
)


@settings(max_examples=20)
@given(st.lists(writes, max_size=12))
@pytest.mark.parametrize("storage", STORAGES)
def test_any_sequence_of_good_and_bad_writes_leaves_what_a_list_has(
    storage: Any, sequence: list[Any]
) -> None:
    buffer = TensorDictPrioritizedReplayBuffer(alpha=1, beta=1, storage=storage(5), batch_size=2)
    buffer.extend(rows([0]))
    buffer.empty()
    model = Model()
    for kind, *given_ in sequence:
        if kind == "extend":
            buffer.extend(rows(given_[0]))
            model.extend(given_[0])
        elif kind == "add":
            buffer.add(rows(given_)[0])
            model.extend(given_)
        elif kind == "replace" and given_[0] < len(model.rows):
            buffer[given_[0]] = rows(given_[1:])[0]
            model.rows[given_[0]] = given_[1]
        elif kind == "bad":
            with pytest.raises(UsageError):
                buffer.extend(BAD[given_[0]]())
        elif kind == "empty":
            buffer.empty()
            model = Model()
    assert len(buffer) == len(model.rows)
    assert len(buffer.state_dict()["sampler"]["priorities"]) == len(model.rows)
    if model.rows:
        assert buffer["a"].tolist() == model.rows
        assert set(buffer.sample(50)["a"].tolist()) <= set(model.rows)
