"""The core samplers of slices: one ``Slicing`` says how they are cut, three samplers draw them."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import pytest
import torch

import datasets_cli
from datasets_cli import ExperienceReplay
from datasets_cli.errors import UsageError
from datasets_cli.replay.draws.prioritized_slices import PrioritizedSlices
from datasets_cli.replay.draws.slices import SliceEpochs, SlicePerRow, Slices
from datasets_cli.replay.draws.slicing import Slicing
from datasets_cli.replay.trajectories.boundaries import TrajectoryKeys
from datasets_cli.replay.trajectories.index import TrajectoryIndex
from tests.support.trajectory_rows import TrajectoryRows

LAST = ("next", "truncated")
PUBLIC: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "SliceSampler": (Slices, ()),
    "SliceSamplerWithoutReplacement": (SliceEpochs, ()),
    "PrioritizedSliceSampler": (PrioritizedSlices, (40, 0.7, 0.5)),
}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def index_of(lengths: list[int]) -> TrajectoryIndex:
    found = torch.tensor(lengths)
    return TrajectoryIndex(found.cumsum(0) - found, found, 1, sum(lengths))


@pytest.mark.parametrize("made", [Slicing, Slices, SliceEpochs, PrioritizedSlices])
def test_a_constructor_has_at_most_ten_arguments(made: Any) -> None:
    assert len(inspect.signature(made).parameters) <= 10


@pytest.mark.parametrize("name", PUBLIC)
def test_the_public_samplers_draw_as_the_core_ones_do(name: str) -> None:
    core, first = PUBLIC[name]
    rows = TrajectoryRows([3, 12, 5, 20])
    cut: dict[str, Any] = {"slice_len": 4, "strict_length": False, "span": (False, 2)}
    for seed in range(9):
        public = getattr(datasets_cli, name)(*first, **cut)
        assert isinstance(public, core)
        for sampler in (public, pickle.loads(pickle.dumps(public))):
            index, info = sampler.sample(rows, 8, seeded(seed))
            right, marks = core(Slicing(**cut), *first).sample(rows, 8, seeded(seed))
            assert torch.equal(index, right)
            assert info.keys() == marks.keys()
            assert all(torch.equal(info[key], mark) for key, mark in marks.items())


@pytest.mark.parametrize("name", PUBLIC)
def test_trajectories_that_are_given_take_the_place_of_the_storages(name: str) -> None:
    core, first = PUBLIC[name]
    rows = TrajectoryRows([20])
    sampler = core(Slicing(slice_len=5, trajectories=index_of([6, 5, 4, 5])), *first)
    drawn = torch.cat([sampler.sample(rows, 15, seeded(seed))[0] for seed in range(40)])
    assert set(drawn.view(-1, 5)[:, 0].tolist()) == {0, 1, 6, 15}
    with pytest.raises(UsageError, match="those of 20 rows, 1 a step; the storage has 21 rows"):
        sampler.sample(TrajectoryRows([21]), 5, seeded())


def test_columns_of_a_dataset_tell_where_trajectories_are(door: str) -> None:
    rows = ExperienceReplay(door).storage
    by_flags = Slicing(slice_len=50, trajectories=TrajectoryKeys(ends=(("next", "done"),)))
    index, info = Slices(by_flags).sample(rows, 500, seeded())
    right, _ = Slices(Slicing(slice_len=50)).sample(rows, 500, seeded())
    assert torch.equal(index, right)
    assert info[LAST].view(10, 50).sum(1).tolist() == [1] * 10


def test_a_slice_for_each_row_is_as_many_slices() -> None:
    rows, slicing = TrajectoryRows([9, 30]), Slicing(slice_len=3)
    index, info = SlicePerRow(slicing).sample(rows, 7, seeded())
    right, marks = Slices(slicing).sample(rows, 21, seeded())
    assert torch.equal(index, right)
    assert torch.equal(info[LAST], marks[LAST])


def test_fragments_that_are_given_cannot_begin_by_priority() -> None:
    order = torch.tensor([0, 2, 1, 3])
    apart = TrajectoryIndex(torch.tensor([0, 2]), torch.tensor([2, 2]), 1, 4, order)
    for trajectories in (apart, TrajectoryKeys(step=("step",))):
        slicing = Slicing(slice_len=2, trajectories=trajectories)
        with pytest.raises(UsageError, match="neither padded nor fragmented"):
            PrioritizedSlices(slicing, 4, 1.0, 1.0)
    index, _ = Slices(Slicing(slice_len=2, trajectories=apart)).sample(
        TrajectoryRows([4]), 20, seeded()
    )
    assert {tuple(pair) for pair in index.view(-1, 2).tolist()} == {(0, 2), (1, 3)}


def test_slices_are_worked_out_once_until_rows_are_written() -> None:
    rows, slicing = TrajectoryRows([8]), Slicing(slice_len=4)
    known = slicing.windows(rows, 4)
    assert slicing.windows(rows, 4) is known
    assert slicing.windows(rows, 3) is not known
    rows.revision += 1
    assert slicing.windows(rows, 4) is not known
