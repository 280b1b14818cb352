"""Prioritised slices: never across a boundary, first rows in proportion to their priority."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets_cli import PrioritizedSliceSampler
from datasets_cli.errors import UsageError, WrongSize
from tests.support.trajectory_rows import TrajectoryRows

LAST = ("next", "truncated")
WEIGHT = ("priority_weight",)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def sampler_of(capacity: int, **arguments: Any) -> PrioritizedSliceSampler:
    return PrioritizedSliceSampler(capacity, 1.0, 1.0, 0.0, torch.double, **arguments)


def slices_of(index: torch.Tensor, last: torch.Tensor) -> list[list[int]]:
    """Cut a batch behind each row that is marked as the last of a slice."""
    cuts = last.view(-1).nonzero().view(-1) + 1
    return [part.tolist() for part in index.tensor_split(cuts) if len(part)]


@settings(max_examples=60)
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=9),
    slice_len=st.integers(1, 8),
    strict=st.booleans(),
    seed=st.integers(0, 99),
)
def test_a_slice_lies_within_one_trajectory(
    lengths: list[int], slice_len: int, strict: bool, seed: int
) -> None:
    """Named defect: TorchRL's slices crossed trajectories (pytorch/rl#2208)."""
    rows = TrajectoryRows(lengths)
    if strict and max(lengths) < slice_len:
        return
    sampler = sampler_of(len(rows), slice_len=slice_len, strict_length=strict)
    sampler.update_priority(torch.arange(len(rows)), torch.rand(len(rows), generator=seeded(seed)))
    index, info = sampler.sample(rows, 20 * slice_len, seeded(seed))
    episode = np.repeat(np.arange(len(lengths)), lengths)
    found = slices_of(index, info[LAST])
    assert len(found) == 20
    for part in found:
        first, owner = part[0], episode[part[0]]
        assert part == list(range(first, first + len(part)))
        assert (episode[part] == owner).all()
        short = not strict and lengths[owner] < slice_len
        assert len(part) == (lengths[owner] if short else slice_len)


def test_first_rows_are_drawn_by_priority_among_those_that_leave_room() -> None:
    rows = TrajectoryRows([5, 2, 4])
    priority = torch.tensor([1.0, 2, 3, 99, 99, 99, 99, 4, 5, 99, 99])
    sampler = sampler_of(11, slice_len=3)
    sampler.update_priority(torch.arange(11), priority)
    index, _ = sampler.sample(rows, 3 * 60_000, seeded())
    share = np.bincount(index.view(-1, 3)[:, 0], minlength=11) / 60_000
    right = np.where(priority.numpy() < 99, priority.numpy(), 0) / 15
    assert np.abs(share - right).max() < 0.01


def test_weights_compare_the_rows_that_can_be_first() -> None:
    """Named defect: TorchRL takes the least over all rows, also those never drawn."""
    sampler = sampler_of(5, num_slices=8)
    sampler.update_priority(torch.arange(5), torch.tensor([4.0, 2.0, 8.0, 0.01, 0.01]))
    index, info = sampler.sample(TrajectoryRows([5]), 24, seeded())
    first = index.view(8, 3)[:, :1].expand(8, 3).reshape(-1)
    right = torch.tensor([0.5, 1.0, 0.25], dtype=torch.double)[first]
    assert torch.equal(info[WEIGHT], right)


def test_writing_moves_the_boundaries() -> None:
    rows = TrajectoryRows([4, 4])
    sampler = sampler_of(8, slice_len=4)
    assert set(sampler.sample(rows, 80, seeded())[0].view(-1, 4)[:, 0].tolist()) == {0, 4}
    rows.offsets = torch.tensor([0, 2, 8])  # rows 2 and 3 were overwritten by another trajectory
    rows.revision += 1
    sampler.on_write(torch.tensor([2, 3]))
    assert set(sampler.sample(rows, 80, seeded())[0].view(-1, 4)[:, 0].tolist()) == {2, 3, 4}
    sampler.on_clear()
    rows.offsets = torch.tensor([0, 4])
    rows.revision += 1
    sampler.on_write(torch.arange(4))
    assert set(sampler.sample(rows, 80, seeded())[0].view(-1, 4)[:, 0].tolist()) == {0}


def test_marks_can_be_left_out_and_too_long_slices_are_refused() -> None:
    _, info = sampler_of(4, slice_len=2, truncated_key=None).sample(
        TrajectoryRows([4]), 4, seeded()
    )
    assert info.keys() == {WEIGHT}
    with pytest.raises(WrongSize) as long:
        sampler_of(4, slice_len=5).sample(TrajectoryRows([4]), 5, seeded())
    assert (long.value.expected, long.value.found) == ("at most 4", 5)
    with pytest.raises(UsageError) as missing:
        sampler_of(4)
    assert missing.value.argument == "slice_len"


def test_a_storage_that_was_filled_before_and_a_state_that_goes_on() -> None:
    rows, sampler, other = TrajectoryRows([9, 6]), *(sampler_of(15, slice_len=3) for _ in range(2))
    sampler.sample(rows, 3, seeded())
    sampler.update_priority(torch.arange(15), torch.arange(1.0, 16.0))
    other.load_state_dict(sampler.state_dict())
    right, _ = sampler.sample(rows, 300, seeded(1))
    assert torch.equal(other.sample(rows, 300, seeded(1))[0], right)
