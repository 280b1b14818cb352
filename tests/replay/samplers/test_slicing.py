"""Slices: which rows, and how often each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from datasets_cli import (
    PrioritizedSampler,
    PrioritizedSliceSampler,
    RandomSampler,
    SamplerWithoutReplacement,
    SliceSampler,
    SliceSamplerWithoutReplacement,
)
from datasets_cli.errors import WrongRows, WrongSize
from datasets_cli.replay.samplers.protocol import Uniform
from datasets_cli.replay.samplers.slices import Slices
from tests.support.refusals import refused
from tests.support.trajectory_rows import TrajectoryRows, chi_square_score

PUBLIC = {
    SliceSampler: (),
    SliceSamplerWithoutReplacement: (),
    PrioritizedSliceSampler: (40, 0.7, 0.5),
}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("kind", PUBLIC)
def test_trajectories_that_are_given_take_the_place_of_the_storages(kind: Any) -> None:
    rows, ends = TrajectoryRows([20]), torch.zeros(20, dtype=torch.bool)
    ends[[5, 10, 14, 19]] = True
    sampler = kind(*PUBLIC[kind], slice_len=5, ends=ends)
    drawn = torch.cat([sampler.sample(rows, 15, seeded(seed))[0] for seed in range(40)])
    assert set(drawn.view(-1, 5)[:, 0].tolist()) == {0, 1, 6, 15}
    with refused(WrongRows, expected=(21, 1), found=(20, 1)):
        sampler.sample(TrajectoryRows([21]), 5, seeded())


@pytest.mark.parametrize("span", [(0, 3), (3, 0), (0, -1), (-1, 0)])
def test_a_slice_overhangs_by_fewer_rows_than_it_has(span: Any) -> None:
    with refused(WrongSize, argument="span", found=span):
        SliceSampler(slice_len=3, span=span).sample(TrajectoryRows([4]), 3, seeded())


def test_slices_are_worked_out_once_until_rows_are_written() -> None:
    rows, slices = TrajectoryRows([8]), Slices(Uniform(), slice_len=4)
    known = slices.windows(rows, 4)
    assert slices.windows(rows, 4) is known
    assert slices.windows(rows, 3) is not known
    rows.revision += 1
    assert slices.windows(rows, 4) is not known


# What each sampler draws, over many draws with a fixed seed, against what it promises.


DRAWS = 300_000
LENGTHS = [3, 7, 10, 31, 80]


def draw(sampler: Any, rows: Any, batch: int, draws: int = DRAWS) -> np.ndarray:
    """The row numbers ``[draws / batch, batch]`` of successive batches of one seed."""
    generator = torch.Generator().manual_seed(7)
    batches = [sampler.sample(rows, batch, generator)[0] for _ in range(draws // batch)]
    return torch.stack(batches).numpy()


def room_of(lengths: list[int], slice_len: int) -> np.ndarray:
    return np.array([length - slice_len + 1 for length in lengths])


def starts_of(rows: TrajectoryRows, room: np.ndarray) -> np.ndarray:
    """The rows at which a slice can begin, ``room`` of them a trajectory."""
    return np.repeat(rows.offsets[:-1].numpy() - room.cumsum() + room, room) + np.arange(room.sum())


def test_random_sampler_draws_every_row_alike() -> None:
    index = draw(RandomSampler(), TrajectoryRows([1000]), 5000)
    counts = np.bincount(index.reshape(-1), minlength=1000)
    assert abs(chi_square_score(counts, np.full(1000, DRAWS / 1000))) < 4


def test_sampling_without_replacement_puts_every_row_in_every_place_alike() -> None:
    epochs = draw(SamplerWithoutReplacement(), TrajectoryRows([100]), 50).reshape(-1, 100)
    assert (np.sort(epochs) == np.arange(100)).all()
    for place in (0, 1, 49, 50, 99):
        counts = np.bincount(epochs[:, place], minlength=100)
        assert abs(chi_square_score(counts, np.full(100, len(epochs) / 100))) < 4


def test_slices_draw_a_trajectory_then_a_start_alike() -> None:
    rows = TrajectoryRows(LENGTHS)
    index = draw(SliceSampler(slice_len=3), rows, 3000, 3 * DRAWS).reshape(-1, 3)
    assert (np.diff(index) == 1).all()
    room = room_of(LENGTHS, 3)
    starts = starts_of(rows, room)
    expected = np.repeat(len(index) / len(room) / room, room)
    counts = np.bincount(index[:, 0], minlength=len(rows))
    assert counts.sum() == counts[starts].sum()
    assert abs(chi_square_score(counts[starts], expected)) < 4


def test_slices_without_replacement_draw_each_trajectory_once_and_its_starts_alike() -> None:
    lengths = [20, 21, 25, 30, 39] * 5
    rows = TrajectoryRows(lengths)
    sampler = SliceSamplerWithoutReplacement(slice_len=20)
    epochs = draw(sampler, rows, 500).reshape(-1, 25, 20)[:, :, 0]
    owner = np.searchsorted(rows.offsets.numpy(), epochs, side="right") - 1
    assert (np.sort(owner) == np.arange(25)).all()
    room = room_of(lengths, 20)
    starts = starts_of(rows, room)
    counts = np.bincount(epochs.reshape(-1), minlength=len(rows))[starts]
    expected = np.repeat(len(epochs) / room, room)
    assert counts.sum() == epochs.size
    assert abs(chi_square_score(counts, expected, freedom=int((room - 1).sum()))) < 4
    first = np.bincount(owner[:, 0], minlength=25)
    assert abs(chi_square_score(first, np.full(25, len(epochs) / 25))) < 4


def test_prioritised_rows_are_drawn_by_the_power_of_their_priority() -> None:
    rows, rng = TrajectoryRows([3000]), np.random.default_rng(0)
    for batch in (500, 50_000):  # below and above the size from which the tree works otherwise
        sampler = PrioritizedSampler(3000, alpha=0.6, beta=0.4)
        priority = rng.uniform(0.2, 5, 3000)
        sampler.update_priority(torch.arange(3000), priority)
        counts = np.bincount(draw(sampler, rows, batch).reshape(-1), minlength=3000)
        expected = DRAWS * priority**0.6 / (priority**0.6).sum()
        assert abs(chi_square_score(counts, expected)) < 4


def test_prioritised_slices_begin_by_the_power_of_the_priority() -> None:
    rows = TrajectoryRows(LENGTHS)
    priority = np.random.default_rng(0).uniform(0.2, 5, len(rows))
    sampler = PrioritizedSliceSampler(len(rows), alpha=1.0, beta=0.4, slice_len=4)
    sampler.update_priority(torch.arange(len(rows)), priority)
    index = draw(sampler, rows, 4000, 4 * DRAWS).reshape(-1, 4)
    room = room_of(LENGTHS, 4).clip(min=0)
    starts = starts_of(rows, room)
    counts = np.bincount(index[:, 0], minlength=len(rows))
    assert counts.sum() == counts[starts].sum()
    expected = DRAWS * priority[starts] / priority[starts].sum()
    assert abs(chi_square_score(counts[starts], expected)) < 4
