"""Epochs by blocks: every row once, from few blocks at a time, shared and resumed."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data._utils.worker import WorkerInfo

from datasets_cli import (
    BatchStream,
    BlockShuffleSampler,
    DistributedSampler,
    LazyTensorStorage,
    ReplayBuffer,
    TensorStorage,
)
from datasets_cli.errors import EmptyBuffer, UsageError, WrongSize, WrongState
from datasets_cli.replay.samplers import rows as block_shuffle
from datasets_cli.replay.samplers import rows as distributed
from datasets_cli.replay.samplers.rows import block_order, window_order
from tests.support.trajectory_rows import TrajectoryRows, chi_square_score

UNUSED = torch.Generator()


def drawn(sampler: Any, num_rows: int, batch_size: int = 7) -> list[int]:
    """The rest of an epoch."""
    rows, found = TrajectoryRows([num_rows]), []
    while True:
        found += sampler.sample(rows, batch_size, UNUSED)[0].tolist()
        if sampler.ran_out:
            return found


sizes = {"block_len": st.integers(1, 40), "window": st.integers(1, 6)}


@settings(max_examples=60)
@given(num_rows=st.integers(1, 400), **sizes, batch_size=st.integers(1, 500))
def test_every_row_comes_once_an_epoch_and_each_epoch_is_another(
    num_rows: int, block_len: int, window: int, batch_size: int
) -> None:
    sampler = BlockShuffleSampler(block_len, window, seed=2)
    epochs = [drawn(sampler, num_rows, batch_size) for _ in range(2)]
    for found in epochs:
        assert sorted(found) == [*range(num_rows)]
    assert epochs[0] != epochs[1] or num_rows < 12


@settings(max_examples=60)
@given(num_rows=st.integers(1, 400), **sizes, ranks=st.integers(1, 5), drop_last=st.booleans())
def test_ranks_draw_equally_many_rows_and_together_all(
    num_rows: int, block_len: int, window: int, ranks: int, drop_last: bool
) -> None:
    if drop_last and num_rows < ranks:
        return
    known: Any = {"num_replicas": ranks, "drop_last": drop_last}
    shares = [
        drawn(BlockShuffleSampler(block_len, window, rank=rank, **known), num_rows)
        for rank in range(ranks)
    ]
    each = num_rows // ranks if drop_last else -(-num_rows // ranks)
    assert [len(share) for share in shares] == [each] * ranks
    counts = np.bincount(np.concatenate(shares), minlength=num_rows)
    if drop_last:
        assert counts.max() == 1  # fewer than there are ranks are left out
    else:
        assert counts.min() >= 1 and counts.sum() - num_rows < ranks


@settings(max_examples=40)
@given(num_rows=st.integers(1, 3000), **sizes, ranks=st.integers(1, 3))
def test_the_rows_of_a_window_are_of_few_blocks(
    num_rows: int, block_len: int, window: int, ranks: int
) -> None:
    for rank in range(ranks):
        sampler = BlockShuffleSampler(block_len, window, num_replicas=ranks, rank=rank)
        rows = drawn(sampler, num_rows)
        for start in range(0, len(rows), block_len * window):
            blocks = {row // block_len for row in rows[start : start + block_len * window]}
            # One more where the window begins within a block, one where a shorter one is in it.
            # The rows that fill up the last rank belong to other ranks.
            assert len(blocks) <= window + 2 + (rank == ranks - 1)


def test_blocks_come_in_any_order_the_shorter_one_too() -> None:
    orders = np.stack([block_order(23, 5, key).at(np.arange(23)) for key in range(4000)])
    assert (np.sort(orders) == np.arange(23)).all()
    begins = orders % 5 == 0
    lengths = np.diff(np.flatnonzero(begins.reshape(-1)), append=orders.size)
    assert ((lengths == 3) == (orders[begins] == 20)).all()
    places = np.argsort(orders[begins].reshape(-1, 5) // 5)  # of the blocks 0 to 4
    for block in range(5):
        counts = np.bincount(places[:, block], minlength=5)
        assert abs(chi_square_score(counts, np.full(5, 4000 / 5))) < 4


def test_a_sampler_of_the_default_sizes_takes_a_state_that_one_kept_before() -> None:
    state = BlockShuffleSampler(block_len=1024, window=64).state_dict()
    BlockShuffleSampler().load_state_dict(state)
    assert BlockShuffleSampler().state_dict() == state


def test_a_window_is_put_in_order_once(monkeypatch: pytest.MonkeyPatch) -> None:
    permutation, made = block_shuffle.permutation, []
    monkeypatch.setattr(
        block_shuffle, "permutation", lambda *window: made.append(window) or permutation(*window)
    )
    order = window_order(100, 40, key=7)
    places = np.arange(100).reshape(20, 5)
    assert sorted(np.concatenate([order.at(few) for few in places])) == [*range(100)]
    assert made == [(40, 7), (40, 8), (20, 9)]


def test_rows_of_a_window_come_at_each_of_its_places_alike() -> None:
    orders = np.stack([window_order(50, 20, key).at(np.arange(50)) for key in range(0, 10**6, 500)])
    for begin, end in ((0, 20), (20, 40), (40, 50)):
        part = orders[:, begin:end] - begin
        assert (np.sort(part) == np.arange(end - begin)).all()
        for place in (0, 1, end - begin - 1):
            counts = np.bincount(part[:, place], minlength=end - begin)
            assert abs(chi_square_score(counts, np.full(end - begin, 2000 / (end - begin)))) < 4
    assert (orders[:, :20] + 20 != orders[:, 20:40]).any(1).all()  # windows differ


def test_an_epoch_is_what_it_was_in_the_first_version_that_had_it() -> None:
    sampler = BlockShuffleSampler(4, 2, seed=1)
    assert drawn(sampler, 14) == [5, 2, 0, 4, 6, 3, 1, 7, 10, 8, 13, 11, 9, 12]
    sampler = BlockShuffleSampler(4, 2, seed=1, num_replicas=2, rank=1)
    assert drawn(sampler, 14) == [12, 9, 13, 3, 11, 10, 8]


def test_without_shuffling_each_rank_draws_a_run_of_rows() -> None:
    shares = [
        drawn(BlockShuffleSampler(3, 2, num_replicas=2, rank=rank, shuffle=False), 9)
        for rank in range(2)
    ]
    assert shares == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 0]]


@settings(max_examples=60)
@given(**sizes, before=st.integers(1, 4), after=st.integers(1, 4), batches=st.integers(0, 4))
def test_an_epoch_is_resumed_by_any_number_of_ranks(
    block_len: int, window: int, before: int, after: int, batches: int
) -> None:
    num_rows, seen = 12 * 20, []
    for rank in range(before):
        sampler = BlockShuffleSampler(block_len, window, num_replicas=before, rank=rank, seed=9)
        for _ in range(batches):
            seen += sampler.sample(TrajectoryRows([num_rows]), 12, UNUSED)[0].tolist()
        state = json.loads(json.dumps(sampler.state_dict()))
    for rank in range(after):
        sampler = BlockShuffleSampler(block_len, window, num_replicas=after, rank=rank)
        sampler.load_state_dict(state)
        seen += drawn(sampler, num_rows)
    assert sorted(seen) == [*range(num_rows)]


def test_workers_of_a_loader_share_each_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = TensorStorage(torch.arange(90))
    stream = BatchStream(
        ReplayBuffer(storage=rows, sampler=BlockShuffleSampler(10, 2), batch_size=8)
    )
    passes = []
    for _ in range(2):
        seen = []
        for worker in range(3):
            state = stream.buffer.sampler.state_dict()
            info = WorkerInfo(worker, 3, 0, stream)
            monkeypatch.setattr(distributed, "get_worker_info", lambda info=info: info)
            seen += torch.cat([*stream.buffer]).tolist()
            stream.buffer.sampler.load_state_dict(state)  # as a worker's is a copy
        assert sorted(seen) == [*range(90)]
        passes.append(seen)
        stream.advance_epoch()
    assert passes[0] != passes[1]


def test_an_epoch_begins_again_where_rows_were_added() -> None:
    sampler = BlockShuffleSampler(3, 2)
    sampler.sample(TrajectoryRows([10]), 4, UNUSED)
    assert sorted(drawn(sampler, 12)) == [*range(12)]


def test_a_sampler_of_blocks_says_its_sizes() -> None:
    assert repr(BlockShuffleSampler(5, window=3)) == "BlockShuffleSampler(block_len=5, window=3)"


def test_what_has_no_rows_or_no_place_for_them_is_refused() -> None:
    with pytest.raises(EmptyBuffer):
        BlockShuffleSampler().sample(LazyTensorStorage(5), 2, UNUSED)
    for name in ("block_len", "window"):
        with pytest.raises(UsageError) as size:
            BlockShuffleSampler(**{name: 0})
        assert (size.value.argument, size.value.found) == (name, 0)
    with pytest.raises(WrongSize) as few:
        BlockShuffleSampler(num_replicas=4, rank=0, drop_last=True).sample(
            TrajectoryRows([3]), 1, UNUSED
        )
    assert few.value.found == 3


def test_a_state_of_other_sizes_or_of_too_many_processes_is_refused() -> None:
    sampler = BlockShuffleSampler(5, 3)
    with pytest.raises(WrongState) as sizes:
        sampler.load_state_dict(BlockShuffleSampler(4, 3).state_dict())
    assert (sizes.value.expected, sizes.value.found) == ((5, 3), (4, 3))
    with pytest.raises(WrongState) as parts:
        sampler.load_state_dict(sampler.state_dict() | {"parts": 2**40})
    assert (parts.value.key, parts.value.found) == ("parts", 2**40)


def test_an_epoch_of_rows_does_not_continue_one_of_blocks() -> None:
    buffer = ReplayBuffer(
        storage=TensorStorage(torch.arange(9)), sampler=BlockShuffleSampler(), batch_size=2
    )
    blocks, rows = "shared epochs of blocks", "shared epochs of rows"
    for state, expected, found in (
        ({}, blocks, None),
        (DistributedSampler().state_dict(), blocks, rows),
    ):
        with pytest.raises(WrongState) as error:
            buffer.load_state_dict(buffer.state_dict() | {"sampler": state})
        assert (error.value.argument, error.value.expected) == ("sampler", expected)
        assert error.value.found == found
    with pytest.raises(WrongState) as kind:
        DistributedSampler().load_state_dict(BlockShuffleSampler(4, 3).state_dict())
    assert (kind.value.expected, kind.value.found) == (rows, blocks)


def test_a_window_may_be_larger_than_any_number_of_rows() -> None:
    assert sorted(drawn(BlockShuffleSampler(2**40, 2**40), 9)) == [*range(9)]
