"""Storages that rows are written into: what is written is what is read, as in TorchRL."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import NonTensorData, TensorDict
from torch.utils import _pytree

from datasets_cli import (
    LazyMemmapStorage,
    LazyTensorStorage,
    ListStorage,
    ReplayBuffer,
    SamplerWithoutReplacement,
    TensorDictMaxValueWriter,
    TensorDictReplayBuffer,
    TensorStorage,
)
from datasets_cli.errors import EmptyBuffer, NotWritable, UsageError, WrongRows
from tests.support.refusals import refused

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchrl.data import replay_buffers as peer

LAZY = [LazyTensorStorage, LazyMemmapStorage]


def steps(num_rows: int, start: int = 0) -> TensorDict:
    """Rows that say which one they are."""
    number = torch.arange(start, start + num_rows)
    done = (number % 5 == 4).unsqueeze(-1)
    return TensorDict(
        {"number": number, ("next", "done"): done, ("next", "pixels"): number.view(-1, 1, 1) % 7},
        [num_rows],
    )


@pytest.mark.parametrize("kind", ["LazyTensorStorage", "LazyMemmapStorage", "ListStorage"])
@settings(max_examples=30)
@given(capacity=st.integers(1, 12), sizes=st.lists(st.integers(1, 15), min_size=1, max_size=5))
def test_rows_land_where_torchrl_puts_them(kind: str, capacity: int, sizes: list[int]) -> None:
    ours = ReplayBuffer(storage=globals()[kind](capacity))
    theirs = peer.ReplayBuffer(storage=getattr(peer, kind)(capacity))
    start = 0
    for size in sizes:
        found, right = ours.extend(steps(size, start)), theirs.extend(steps(size, start))
        assert torch.equal(found, right)
        start += size
    assert len(ours) == len(theirs)
    assert bool((ours[:] == theirs[:]).all())


@settings(max_examples=30)
@given(
    environments=st.integers(1, 4),
    capacity=st.integers(4, 40),
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4),
)
def test_environments_side_by_side_are_rows_of_two_dimensions(
    environments: int, capacity: int, sizes: list[int]
) -> None:
    ours = ReplayBuffer(storage=LazyTensorStorage(capacity, ndim=2))
    theirs = peer.ReplayBuffer(storage=peer.LazyTensorStorage(capacity, ndim=2))
    for size in sizes:
        if size > capacity // environments:
            continue  # TorchRL's own storage refuses more steps than it has
        data = torch.stack([steps(size, 100 * number) for number in range(environments)])
        assert torch.equal(ours.extend(data), theirs.extend(data))
        assert len(ours) == len(theirs)
        assert bool((ours[:] == theirs[:]).all())


@pytest.mark.parametrize("kind", LAZY)
def test_a_batch_holds_copies_of_the_rows_its_index_names(kind: Any) -> None:
    buffer = TensorDictReplayBuffer(storage=kind(20), batch_size=64, seed=0)
    buffer.extend(steps(30))
    batch = buffer.sample()
    kept = steps(30)[10:][(batch["index"] - 10) % 20]
    assert bool((batch.exclude("index") == kept).all())
    batch["number"].zero_()
    assert bool((buffer[:]["number"] > 0).all())


@pytest.mark.parametrize("ndim", [1, 2])
@pytest.mark.parametrize("kind", LAZY)
def test_rows_with_a_shape_of_their_own_are_indexed_in_any_shape(kind: Any, ndim: int) -> None:
    number = torch.arange(3 * 8 * 5).view(3, 8, 5)
    rows = number if ndim == 2 else number[0]
    group = TensorDict({"number": rows}, rows.shape)
    for data in (rows, (rows, {"also": rows}), group):
        buffer = ReplayBuffer(storage=kind(24 if ndim == 2 else 8, ndim=ndim))
        buffer.extend(data)
        index = torch.tensor([[0, 1, 2], [7, 6, 5]])
        right = rows if ndim == 2 else rows[index]
        found = buffer[:] if ndim == 2 else buffer[index]
        for leaf in _pytree.tree_leaves(found["number"] if data is group else found):
            assert torch.equal(leaf, right)


def test_tensors_and_structures_of_tensors_are_rows_too() -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(10), batch_size=4)
    buffer.extend((torch.arange(6), {"b": torch.arange(6.0)}))
    number, named = buffer.sample()
    assert torch.equal(number.float(), named["b"])
    assert buffer.add((torch.tensor(9), {"b": torch.tensor(9.0)})) == 6
    plain = ReplayBuffer(storage=TensorStorage(torch.arange(5)), batch_size=3)
    assert set(plain.sample().tolist()) <= set(range(5))


def test_a_list_keeps_anything_and_its_collate_fn_makes_the_batch() -> None:
    buffer = ReplayBuffer(storage=ListStorage(4), batch_size=3, collate_fn=lambda rows: rows)
    buffer.extend(["a", {"b": 1}, None])
    assert buffer.add("c") == 3 and buffer.add("d") == 0
    assert len(buffer) == 4 and all(row != "a" for row in buffer.sample(50))
    with refused(WrongRows, found="NoneType, dict, str"):
        ReplayBuffer(storage=buffer.storage).sample(20)


@pytest.mark.parametrize(
    ("data", "key", "found"),
    [
        (TensorDict({"number": torch.zeros(2)}, [2]), None, ["number"]),
        (steps(2).set("number", torch.zeros(2, 3).long()), "number", [3]),
        (steps(2).set("number", torch.zeros(2)), "number", torch.float32),
        (
            steps(2).set("text", NonTensorData("x", [2])),
            None,
            ["number", "next.done", "next.pixels", "text"],
        ),
        (torch.zeros(2), None, "Tensor"),
    ],
)
def test_rows_of_another_form_are_refused_and_nothing_is_written(
    data: Any, key: str | None, found: Any
) -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(10))
    buffer.extend(steps(3))
    with refused(WrongRows, key=key, found=found):
        buffer.extend(data)
    assert len(buffer) == 3 and buffer.extend(steps(1)).tolist() == [3]


def test_an_empty_storage_says_so() -> None:
    for storage in (LazyTensorStorage(3), ListStorage(3)):
        with refused(EmptyBuffer):
            ReplayBuffer(storage=storage, batch_size=2).sample()


def test_files_of_another_storage_are_not_written_over(tmp_path: Path) -> None:
    ReplayBuffer(storage=LazyMemmapStorage(5, scratch_dir=tmp_path / "rows")).extend(steps(2))
    with refused(NotWritable, argument="scratch_dir"):
        ReplayBuffer(storage=LazyMemmapStorage(5, scratch_dir=tmp_path / "rows")).extend(steps(2))
    again = LazyMemmapStorage(5, scratch_dir=tmp_path / "rows", existsok=True)
    ReplayBuffer(storage=again).extend(steps(1))
    assert (tmp_path / "rows" / "number.memmap").stat().st_size == 5 * 8


def test_writing_renews_an_epoch_and_what_was_prefetched() -> None:
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(40), sampler=SamplerWithoutReplacement(), batch_size=5, prefetch=3
    )
    buffer.extend(steps(20))
    buffer.sample()
    buffer.extend(steps(20, 20))
    seen = torch.cat([batch["number"] for batch in buffer])
    assert sorted(seen.tolist()) == list(range(40))


@pytest.mark.parametrize("kind", [*LAZY, ListStorage])
def test_rows_are_written_behind_those_that_a_storage_has(kind: Any) -> None:
    storage = kind(6)
    ReplayBuffer(storage=storage).extend(steps(4))
    assert ReplayBuffer(storage=storage).extend(steps(1, 4)).tolist() == [4]
    other = ReplayBuffer()
    other.set_storage(storage)
    assert other.extend(steps(3, 5)).tolist() == [5, 0, 1]
    assert other[:]["number"].tolist() == [6, 7, 2, 3, 4, 5]


def test_a_buffer_that_was_emptied_begins_anew() -> None:
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(10), batch_size=4)
    buffer.extend(steps(8))
    buffer.empty()
    assert len(buffer) == 0 and buffer.extend(steps(3, 50)).tolist() == [0, 1, 2]
    assert bool((buffer.sample()["number"] >= 50).all())


@pytest.mark.parametrize("kind", [*LAZY, ListStorage])
def test_a_buffer_pickles_with_its_rows(kind: Any) -> None:
    writer = TensorDictMaxValueWriter("number")
    buffer = ReplayBuffer(storage=kind(10), batch_size=4, seed=3, writer=writer)
    buffer.extend(steps(8))
    copy = pickle.loads(pickle.dumps(buffer))
    assert bool((copy[:] == buffer[:]).all())
    assert bool((copy.sample() == buffer.sample()).all())


@pytest.mark.parametrize("kind", [LazyTensorStorage, LazyMemmapStorage])
def test_a_device_that_there_is_none_of_is_refused(kind: Any) -> None:
    with refused(UsageError, argument="device", found="gpuu"):
        kind(5, device="gpuu")
