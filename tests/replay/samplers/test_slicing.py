"""Slices of every kind of draw, and the public slice samplers."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch

import datasets_cli
from datasets_cli import ExperienceReplay
from datasets_cli.errors import WrongRows, WrongSize
from datasets_cli.replay.samplers.epochs import Epochs
from datasets_cli.replay.samplers.prioritized import PriorityDraw, PriorityOptions
from datasets_cli.replay.samplers.protocol import Draw, Uniform
from datasets_cli.replay.samplers.slices import Slices
from datasets_cli.replay.trajectories.bounds import TrajectoryIndex, TrajectoryKeys
from datasets_cli.torchrl.slice_samplers import SlicePerRow
from tests.support.trajectory_rows import TrajectoryRows

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


@pytest.mark.parametrize("made", [Slices, Epochs, PriorityDraw])
def test_a_constructor_has_at_most_ten_arguments(made: Any) -> None:
    assert len(inspect.signature(made).parameters) <= 10


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
    with pytest.raises(WrongRows) as error:
        sampler.sample(TrajectoryRows([21]), 5, seeded())
    assert (error.value.expected, error.value.found) == ((21, 1), (20, 1))


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
        with pytest.raises(WrongSize) as error:
            Slices(Uniform(), slice_len=3, span=wrong).sample(TrajectoryRows([4]), 3, seeded())
        assert (error.value.argument, error.value.found) == ("span", wrong)


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
