"""Epochs: every row once, resumed anywhere, of any size."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets_cli import BlockShuffleSampler, DistributedSampler, SamplerWithoutReplacement
from datasets_cli.errors import WrongState
from datasets_cli.replay.samplers import orders as order
from datasets_cli.replay.samplers.epochs import listed_epoch
from tests.support.trajectory_rows import TrajectoryRows

HUGE = TrajectoryRows([2**36])
"""An array with a number for each of its rows would take 512 GiB."""


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def drawn(sampler: Any, num_rows: int, batch_size: int, seed: int = 0) -> list[int]:
    """The rest of an epoch."""
    rows, found = TrajectoryRows([num_rows]), []
    while True:
        found += sampler.sample(rows, batch_size, seeded(seed))[0].tolist()
        if sampler.ran_out:
            return found


@pytest.mark.parametrize(
    ("drop_last", "num_drawn", "num_rows"), [(False, 912, 911), (True, 910, 910)]
)
def test_what_processes_do_not_divide_is_filled_up_or_left_out(
    drop_last: bool, num_drawn: int, num_rows: int
) -> None:
    ranks = [DistributedSampler(2, rank, drop_last=drop_last) for rank in range(2)]
    found = [row for sampler in ranks for row in drawn(sampler, 911, 100)]
    assert len(found) == num_drawn and len({*found}) == num_rows


@pytest.mark.parametrize(
    "make",
    [
        SamplerWithoutReplacement,
        lambda: DistributedSampler(2, 1),
        lambda: BlockShuffleSampler(60, 100, num_replicas=2, rank=1),
    ],
    ids=["epoch", "shared", "blocks"],
)
@settings(max_examples=30)
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


@settings(max_examples=30)
@given(num_rows=st.integers(1, 30_000), sizes=st.lists(st.integers(1, 9000), min_size=1))
def test_batches_of_any_sizes_are_one_order(num_rows: int, sizes: list[int]) -> None:
    rows, sampler, found = TrajectoryRows([num_rows]), SamplerWithoutReplacement(), []
    for size in [*sizes, num_rows]:
        found += sampler.sample(rows, size, seeded())[0].tolist()
        if sampler.ran_out:
            break
    assert found == drawn(SamplerWithoutReplacement(), num_rows, num_rows)
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
    assert drawn(SamplerWithoutReplacement(), 8, 3, seed=0) == [2, 3, 1, 7, 6, 4, 5, 0]
    assert drawn(SamplerWithoutReplacement(), 8, 3, seed=1) == [6, 7, 5, 2, 1, 0, 4, 3]
    shared = DistributedSampler(num_replicas=1, rank=0, seed=3)
    shared.set_epoch(2)
    assert drawn(shared, 8, 3) == [0, 1, 7, 3, 2, 4, 5, 6]


def test_an_epoch_is_resumed_whatever_seed_its_generator_gave() -> None:
    sampler, state = SamplerWithoutReplacement(), SamplerWithoutReplacement().state_dict()
    sampler.load_state_dict(state | {"seed": 2**62 - 1})
    assert sampler.state_dict()["seed"] == 2**62 - 1
    with pytest.raises(WrongState) as error:
        sampler.load_state_dict(state | {"seed": 2**62})
    assert (error.value.key, error.value.found) == ("seed", 2**62)


def test_a_list_of_what_is_left_of_an_epoch_is_drawn_in_its_order_before_the_next_one() -> None:
    sampler = SamplerWithoutReplacement()
    sampler.load_state_dict(listed_epoch(torch.tensor([3, 0, 2]), num_rows=5))
    assert drawn(sampler, 5, batch_size=2) == [3, 0, 2]
    assert sorted(drawn(sampler, 5, batch_size=2)) == [0, 1, 2, 3, 4]


def test_a_batch_does_not_share_memory_with_the_next() -> None:
    sampler = SamplerWithoutReplacement(shuffle=False)
    rows = TrajectoryRows([10])
    sampler.sample(rows, 4, seeded())[0].fill_(-1)
    assert sampler.sample(rows, 4, seeded())[0].tolist() == [4, 5, 6, 7]


def test_some_thousand_items_are_worked_out_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    whole = order.Share._read_from
    monkeypatch.setattr(
        order.Share, "_read_from", lambda self, *span: read.append(span) or whole(self, *span)
    )
    drawn(SamplerWithoutReplacement(), 20_000, 300)
    assert read == [(start, 300) for start in (0, 8100, 16_200)]
