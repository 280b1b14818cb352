"""Epochs: each row once, in shuffled blocks, over several ranks."""

from __future__ import annotations

import itertools
import json
from functools import cache
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
    SamplerWithoutReplacement,
    TensorStorage,
)
from datasets_cli.errors import EmptyBuffer, UsageError, WrongSize, WrongState
from datasets_cli.replay.samplers import rows as distributed
from datasets_cli.replay.samplers.epochs import listed_epoch
from datasets_cli.replay.samplers.orders import FeistelOrder, permutation, random_words
from datasets_cli.replay.samplers.rows import block_order, window_order
from tests.support.refusals import refused
from tests.support.trajectory_rows import TrajectoryRows, chi_square_score

# Epochs by blocks: every row once, from few blocks at a time, shared and resumed.


UNUSED = torch.Generator()


def drawn(sampler: Any, num_rows: int, batch_size: int = 7) -> list[int]:
    """The rest of an epoch."""
    rows, found = TrajectoryRows([num_rows]), []
    while True:
        found += sampler.sample(rows, batch_size, UNUSED)[0].tolist()
        if sampler.ran_out:
            return found


sizes = {"block_len": st.integers(1, 40), "window": st.integers(1, 6)}


@settings(max_examples=25)
@given(num_rows=st.integers(1, 400), **sizes, batch_size=st.integers(1, 500))
def test_every_row_comes_once_an_epoch_and_each_epoch_is_another(
    num_rows: int, block_len: int, window: int, batch_size: int
) -> None:
    sampler = BlockShuffleSampler(block_len, window, seed=2)
    epochs = [drawn(sampler, num_rows, batch_size) for _ in range(2)]
    for found in epochs:
        assert sorted(found) == [*range(num_rows)]
    assert epochs[0] != epochs[1] or num_rows < 12


@settings(max_examples=25)
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


@settings(max_examples=20)
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


@settings(max_examples=25)
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


def test_what_has_no_rows_or_no_place_for_them_is_refused() -> None:
    with pytest.raises(EmptyBuffer):
        BlockShuffleSampler().sample(LazyTensorStorage(5), 2, UNUSED)
    for name in ("block_len", "window"):
        with refused(UsageError, argument=name, found=0):
            BlockShuffleSampler(**{name: 0})
    with refused(WrongSize, found=3):
        BlockShuffleSampler(num_replicas=4, rank=0, drop_last=True).sample(
            TrajectoryRows([3]), 1, UNUSED
        )


def test_a_state_of_other_sizes_or_of_too_many_processes_is_refused() -> None:
    sampler = BlockShuffleSampler(5, 3)
    with refused(WrongState, expected=(5, 3), found=(4, 3)):
        sampler.load_state_dict(BlockShuffleSampler(4, 3).state_dict())
    with refused(WrongState, key="parts", found=2**40):
        sampler.load_state_dict(sampler.state_dict() | {"parts": 2**40})


def test_an_epoch_of_rows_does_not_continue_one_of_blocks() -> None:
    buffer = ReplayBuffer(
        storage=TensorStorage(torch.arange(9)), sampler=BlockShuffleSampler(), batch_size=2
    )
    blocks, rows = "shared epochs of blocks", "shared epochs of rows"
    for state, expected, found in (
        ({}, blocks, None),
        (DistributedSampler().state_dict(), blocks, rows),
    ):
        with refused(WrongState, argument="sampler", expected=expected, found=found):
            buffer.load_state_dict(buffer.state_dict() | {"sampler": state})
    with refused(WrongState, expected=rows, found=blocks):
        DistributedSampler().load_state_dict(BlockShuffleSampler(4, 3).state_dict())


def test_a_window_may_be_larger_than_any_number_of_rows() -> None:
    assert sorted(drawn(BlockShuffleSampler(2**40, 2**40), 9)) == [*range(9)]


# Random orders of any size: every item once, and nothing in them that chance does not explain.


MANY = 5000  # a Feistel network
KEYS = 500
ROUNDS = 4  # with another number every seed would give another order


def mixed(word: int) -> int:
    """SplitMix64's mixing, in whole numbers of Python."""
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) % 2**64
    return word ^ (word >> 31)


def split_mix(seed: int, count: int) -> list[int]:
    return [mixed((seed + number * 0x9E3779B97F4A7C15) % 2**64) for number in range(1, count + 1)]


def feistel(num_items: int, key: int) -> list[int]:
    """The order of a Feistel network, one item after the other."""
    bits = num_items.bit_length() // 2
    width, height = 2**bits, (num_items // 2**bits) // 2 * 2 + 2
    words = [word // 2**32 for word in split_mix(mixed(key % 2**64), ROUNDS * (width + height))]

    def permuted(cell: int) -> int:
        left, right = divmod(cell, width)
        for number in range(ROUNDS):
            left = (left + words[number * width + right] * height // 2**32) % height
            right ^= words[ROUNDS * width + number * height + left] % width
        cell = left * width + right
        return cell if cell < num_items else permuted(cell)

    return [permuted(place) for place in range(num_items)]


def whole(num_items: int, key: int) -> np.ndarray:
    return permutation(num_items, key).at(np.arange(num_items))


@cache
def many_orders() -> np.ndarray:
    """The orders ``[KEYS, MANY]`` of successive keys."""
    return np.stack([whole(MANY, key) for key in range(KEYS)])


def test_words_are_those_of_split_mix_64() -> None:
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert split_mix(1234567, 3) == published
    for key in (0, 1, -1, 2**64 - 1, 1234567):
        assert random_words(key, 5).tolist() == split_mix(mixed(key % 2**64), 5)


def test_an_order_is_that_of_a_plain_feistel_network() -> None:
    for num_items, key in [(1, 5), (2, 5), (63, 7), (64, 8), (100, -1), (4097, 2**63 - 1)]:
        order = FeistelOrder(num_items, key)
        assert order.at(np.arange(num_items)).tolist() == feistel(num_items, key)


def test_few_items_come_in_the_order_of_their_words() -> None:
    words = split_mix(mixed(3), 40)
    assert whole(40, 3).tolist() == sorted(range(40), key=words.__getitem__)


def test_every_item_of_few_comes_once_for_every_key() -> None:
    for num_items, key in itertools.product(range(1, 65), range(5)):
        assert len(permutation(num_items, key)) == num_items
        for each in (permutation(num_items, key), FeistelOrder(num_items, key)):
            assert sorted(each.at(np.arange(num_items))) == [*range(num_items)]


@settings(max_examples=25)
@given(num_items=st.integers(1, 60_000), key=st.integers(-(2**63), 2**64 - 1), data=st.data())
def test_every_item_comes_once_and_any_part_of_the_order_alone(
    num_items: int, key: int, data: st.DataObject
) -> None:
    order = whole(num_items, key)
    assert (np.bincount(order, minlength=num_items) == 1).all()
    places = st.lists(st.integers(0, num_items - 1), min_size=1, max_size=9)
    some = np.array(data.draw(places))
    assert (permutation(num_items, key).at(some) == order[some]).all()


def test_of_many_items_each_comes_at_each_place_alike() -> None:
    orders = many_orders()
    for place in (0, 1, 63, 64, 2500, MANY - 1):
        for part in (orders[:, place] // 100, orders[:, place] % 50):  # rows, columns of a table
            counts = np.bincount(part, minlength=50)
            assert abs(chi_square_score(counts, np.full(50, KEYS / 50))) < 4


# Epochs: every row once, resumed anywhere, of any size.


HUGE = TrajectoryRows([2**36])
"""An array with a number for each of its rows would take 512 GiB."""


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def drawn_epochs(sampler: Any, num_rows: int, batch_size: int, seed: int = 0) -> list[int]:
    """The rest of an epoch."""
    rows, found = TrajectoryRows([num_rows]), []
    while True:
        found += sampler.sample(rows, batch_size, seeded(seed))[0].tolist()
        if sampler.ran_out:
            return found


@pytest.mark.parametrize(
    "make",
    [
        SamplerWithoutReplacement,
        lambda: DistributedSampler(2, 1),
        lambda: BlockShuffleSampler(60, 100, num_replicas=2, rank=1),
    ],
    ids=["epoch", "shared", "blocks"],
)
@settings(max_examples=15)
@given(
    num_rows=st.integers(1, 30_000), sizes=st.lists(st.integers(1, 9000), min_size=1, max_size=6)
)
def test_an_epoch_is_resumed_after_any_batch(make: Any, num_rows: int, sizes: list[int]) -> None:
    rows, whole, resumed = TrajectoryRows([num_rows]), make(), make()
    for size in sizes:
        state = json.loads(json.dumps(whole.state_dict()))
        resumed.load_state_dict(state)
        expected = whole.sample(rows, size, seeded())[0].tolist()
        assert resumed.sample(rows, size, seeded())[0].tolist() == expected
        assert resumed.state_dict() == whole.state_dict()


@settings(max_examples=15)
@given(num_rows=st.integers(1, 30_000), sizes=st.lists(st.integers(1, 9000), min_size=1))
def test_batches_of_any_sizes_are_one_order(num_rows: int, sizes: list[int]) -> None:
    rows, sampler, found = TrajectoryRows([num_rows]), SamplerWithoutReplacement(), []
    for size in [*sizes, num_rows]:
        found += sampler.sample(rows, size, seeded())[0].tolist()
        if sampler.ran_out:
            break
    assert found == drawn_epochs(SamplerWithoutReplacement(), num_rows, num_rows)
    assert sorted(found) == [*range(num_rows)]


@pytest.mark.parametrize("shuffle", [True, False])
def test_an_epoch_may_be_larger_than_the_memory(shuffle: bool) -> None:
    for make in (SamplerWithoutReplacement, DistributedSampler, BlockShuffleSampler):
        sampler = make(shuffle=shuffle)
        batches = [sampler.sample(HUGE, 256, seeded())[0] for _ in range(40)]
        found = torch.cat(batches)
        assert len(found.unique()) == 40 * 256
        assert found.max() < len(HUGE)
        assert (found.diff() == 1).all() != shuffle


def test_a_seed_gives_the_epochs_that_it_always_gave() -> None:
    assert drawn_epochs(SamplerWithoutReplacement(), 8, 3, seed=0) == [2, 3, 1, 7, 6, 4, 5, 0]
    assert drawn_epochs(SamplerWithoutReplacement(), 8, 3, seed=1) == [6, 7, 5, 2, 1, 0, 4, 3]
    shared = DistributedSampler(num_replicas=1, rank=0, seed=3)
    shared.set_epoch(2)
    assert drawn_epochs(shared, 8, 3) == [0, 1, 7, 3, 2, 4, 5, 6]


def test_an_epoch_is_resumed_whatever_seed_its_generator_gave() -> None:
    sampler, state = SamplerWithoutReplacement(), SamplerWithoutReplacement().state_dict()
    sampler.load_state_dict(state | {"seed": 2**62 - 1})
    assert sampler.state_dict()["seed"] == 2**62 - 1
    with refused(WrongState, key="seed", found=2**62):
        sampler.load_state_dict(state | {"seed": 2**62})


def test_a_list_of_what_is_left_of_an_epoch_is_drawn_in_its_order_before_the_next_one() -> None:
    sampler = SamplerWithoutReplacement()
    sampler.load_state_dict(listed_epoch(torch.tensor([3, 0, 2]), num_rows=5))
    assert drawn_epochs(sampler, 5, batch_size=2) == [3, 0, 2]
    assert sorted(drawn_epochs(sampler, 5, batch_size=2)) == [0, 1, 2, 3, 4]


def test_a_batch_does_not_share_memory_with_the_next() -> None:
    sampler = SamplerWithoutReplacement(shuffle=False)
    rows = TrajectoryRows([10])
    sampler.sample(rows, 4, seeded())[0].fill_(-1)
    assert sampler.sample(rows, 4, seeded())[0].tolist() == [4, 5, 6, 7]
