"""Slices: which rows, and how often each."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import datasets_cli
from datasets_cli import (
    ExperienceReplay,
    PrioritizedSampler,
    PrioritizedSliceSampler,
    RandomSampler,
    SamplerWithoutReplacement,
    SliceSampler,
    SliceSamplerWithoutReplacement,
)
from datasets_cli.errors import WrongRows, WrongSize
from datasets_cli.replay.samplers.epochs import Epochs
from datasets_cli.replay.samplers.prioritized import PriorityDraw, PriorityOptions
from datasets_cli.replay.samplers.protocol import Draw, Uniform
from datasets_cli.replay.samplers.slices import Slices
from datasets_cli.replay.trajectories.bounds import TrajectoryIndex, TrajectoryKeys
from datasets_cli.torchrl.slice_samplers import SlicePerRow
from tests.support.refusals import refused
from tests.support.trajectory_rows import TrajectoryRows, chi_square_score

# Slices of every kind of draw, and the public slice samplers.


LAST = ("next", "truncated")


def priority_draw(*arguments: Any) -> PriorityDraw:
    return PriorityDraw(PriorityOptions(*arguments))


PUBLIC: dict[str, tuple[Callable[..., Draw], tuple[Any, ...]]] = {
    "SliceSampler": (Uniform, ()),
    "SliceSamplerWithoutReplacement": (Epochs, ()),
    "PrioritizedSliceSampler": (priority_draw, (40, 0.7, 0.5)),
}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def index_of(lengths: list[int]) -> TrajectoryIndex:
    found = torch.tensor(lengths)
    return TrajectoryIndex(found.cumsum(0) - found, found, 1, sum(lengths))


@pytest.mark.parametrize("name", PUBLIC)
def test_the_public_samplers_are_slices_of_a_draw(name: str) -> None:
    draw, first = PUBLIC[name]
    rows = TrajectoryRows([3, 12, 5, 20])
    cut: dict[str, Any] = {"slice_len": 4, "strict_length": False, "span": (False, 2)}
    for seed in range(9):
        public = getattr(datasets_cli, name)(*first, **cut)
        assert isinstance(public, Slices)
        assert type(public.draw) is type(draw(*first))
        for sampler in (public, pickle.loads(pickle.dumps(public))):
            index, info = sampler.sample(rows, 8, seeded(seed))
            right, flags = Slices(draw(*first), **cut).sample(rows, 8, seeded(seed))
            assert torch.equal(index, right)
            assert info.keys() == flags.keys()
            assert all(torch.equal(info[key], flag) for key, flag in flags.items())


@pytest.mark.parametrize("name", PUBLIC)
def test_trajectories_that_are_given_take_the_place_of_the_storages(name: str) -> None:
    draw, first = PUBLIC[name]
    rows = TrajectoryRows([20])
    sampler = Slices(draw(*first), slice_len=5, trajectories=index_of([6, 5, 4, 5]))
    drawn = torch.cat([sampler.sample(rows, 15, seeded(seed))[0] for seed in range(40)])
    assert set(drawn.view(-1, 5)[:, 0].tolist()) == {0, 1, 6, 15}
    with refused(WrongRows, expected=(21, 1), found=(20, 1)):
        sampler.sample(TrajectoryRows([21]), 5, seeded())


def test_columns_of_a_dataset_tell_where_trajectories_are(door: str) -> None:
    rows = ExperienceReplay(door).storage
    flags = TrajectoryKeys(ends=(("next", "done"),))
    index, info = Slices(Uniform(), slice_len=50, trajectories=flags).sample(rows, 500, seeded())
    right, _ = Slices(Uniform(), slice_len=50).sample(rows, 500, seeded())
    assert torch.equal(index, right)
    assert info[LAST].view(10, 50).sum(1).tolist() == [1] * 10


def test_a_slice_for_each_row_is_as_many_slices() -> None:
    rows = TrajectoryRows([9, 30])
    index, info = SlicePerRow(slice_len=3).sample(rows, 7, seeded())
    right, flags = Slices(Uniform(), slice_len=3).sample(rows, 21, seeded())
    assert torch.equal(index, right)
    assert torch.equal(info[LAST], flags[LAST])


@pytest.mark.parametrize(
    ("span", "ends"),
    [((0, 2), {(0, 2), (1, 3), (2, 3), (3, 3)}), ((2, 0), {(0, 0), (0, 1), (0, 2), (1, 3)})],
)
def test_a_slice_overhangs_on_the_side_that_is_named(span: Any, ends: set[Any]) -> None:
    slices = Slices(Uniform(), num_slices=1, strict_length=False, span=span)
    drawn = [slices.sample(TrajectoryRows([4]), 3, seeded(n))[0] for n in range(40)]
    assert {(int(rows[0]), int(rows[-1])) for rows in drawn} == ends
    for wrong in (0, 3), (3, 0), (0, -1), (-1, 0):
        with refused(WrongSize, argument="span", found=wrong):
            Slices(Uniform(), slice_len=3, span=wrong).sample(TrajectoryRows([4]), 3, seeded())


def test_trajectories_whose_rows_are_apart_are_cut_in_their_order() -> None:
    order = torch.tensor([0, 2, 1, 3])
    apart = TrajectoryIndex(torch.tensor([0, 2]), torch.tensor([2, 2]), 1, 4, order)
    index, _ = Slices(Uniform(), slice_len=2, trajectories=apart).sample(
        TrajectoryRows([4]), 20, seeded()
    )
    assert {tuple(pair) for pair in index.view(-1, 2).tolist()} == {(0, 2), (1, 3)}


def test_slices_are_worked_out_once_until_rows_are_written() -> None:
    rows, slices = TrajectoryRows([8]), Slices(Uniform(), slice_len=4)
    known = slices.windows(rows, 4)
    assert slices.windows(rows, 4) is known
    assert slices.windows(rows, 3) is not known
    rows.revision += 1
    assert slices.windows(rows, 4) is not known


# What each sampler draws, over a million draws with a fixed seed, against what it promises.


DRAWS = 1_000_000
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
