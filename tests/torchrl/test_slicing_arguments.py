"""TorchRL's arguments of slices are translated to those of ``Slices``, once for all samplers."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from datasets_cli import SliceSampler, TensorStorage
from datasets_cli.replay.samplers.protocol import Uniform
from datasets_cli.replay.samplers.slices import Slices
from datasets_cli.replay.trajectories.bounds import FROM_STORAGE, TrajectoryKeys
from datasets_cli.torchrl.slice_samplers import SliceArguments, slices_of

WAYS: dict[str, Any] = {
    "end_key": "end",
    "end_keys": ["end"],
    "traj_key": "id",
    "trajectory_key": "id",
    "ends": torch.tensor([0, 1]),
    "trajectories": torch.tensor([0, 1]),
}


def source_of(**arguments: Any) -> Any:
    return slices_of(SliceArguments(slice_len=2, **arguments))["trajectories"]


def test_the_three_ways_to_say_where_trajectories_are() -> None:
    assert source_of() == FROM_STORAGE == TrajectoryKeys()
    by_number = TrajectoryKeys(number=("a", "id"))
    assert source_of(traj_key=("a", "id")) == by_number
    assert source_of(trajectory_key=("a", "id"), step_key="t") == by_number
    apart = TrajectoryKeys(number=("id",), step=("t",))
    assert source_of(traj_key="id", step_key="t", fragmented=True) == apart
    by_flags = TrajectoryKeys(ends=(("end",), ("b", "cut")))
    assert source_of(end_keys=["end", ("b", "cut")]) == by_flags
    assert source_of(end_key="end") == TrajectoryKeys(ends=(("end",),))
    ends, numbers = torch.tensor([0, 1, 0, 1]), torch.tensor([7, 7, 2, 2])
    for given_ones in ({"ends": ends}, {"trajectories": numbers}):
        found: Any = source_of(**given_ones)
        assert (found.starts.tolist(), found.lengths.tolist()) == ([0, 2], [2, 2])
        assert (found.stride, found.capacity, found.wraps) == (1, 4, False)


NUMBERS, FLAGS = ("traj_key", "trajectory_key"), ("end_key", "end_keys")
BESIDE = [pair[::-1] for pair in itertools.product(NUMBERS, FLAGS)]


@pytest.mark.parametrize(
    "pair", [p for p in itertools.combinations(WAYS, 2) if p not in BESIDE], ids=" and ".join
)
def test_only_one_argument_defines_the_trajectories(pair: tuple[str, str]) -> None:
    with pytest.raises(TypeError) as error:
        source_of(**{name: WAYS[name] for name in pair})
    assert all(name in str(error.value).partition(" exclude ")[0] for name in pair)


@pytest.mark.parametrize("pair", BESIDE, ids=" and ".join)
def test_flags_end_trajectories_beside_numbers_and_without(pair: tuple[str, str]) -> None:
    keys = source_of(**{name: WAYS[name] for name in pair})
    assert keys == TrajectoryKeys(number=("id",), ends=(("end",),))
    ends = torch.tensor([[False], [True], [False], [True]])
    rows = TensorDict({"end": ends, "id": torch.tensor([[0], [0], [0], [1]])}, [4])
    for stored, lengths in ((rows, [2, 1, 1]), (rows.exclude("id"), [2, 2])):
        assert TensorStorage(stored).trajectories(keys).lengths.tolist() == lengths


@pytest.mark.parametrize("way", ["end_key", "end_keys", "ends", "trajectories"])
def test_fragmented_trajectories_are_found_by_number_and_step(way: str) -> None:
    for arguments in ({way: WAYS[way]}, {"step_key": None}):
        with pytest.raises(TypeError):
            source_of(fragmented=True, **arguments)


def test_both_sides_of_a_span_may_be_a_list() -> None:
    assert SliceSampler(slice_len=4, span=[True, 2]).span == (True, 2)


def test_how_slices_are_cut_reaches_the_sampler_unchanged() -> None:
    cut: dict[str, Any] = {
        "num_slices": 3,
        "strict_length": False,
        "pad_output": True,
        "span": (True, 2),
        "truncated_key": ("a",),
        "init_key": ("b",),
    }
    given = slices_of(SliceArguments(**cut))
    assert given == {"slice_len": None, "trajectories": FROM_STORAGE, **cut}
    made, sampler = SliceSampler(**cut), Slices(Uniform(), **cut)
    assert {name: getattr(made, name) for name in given} == {
        name: getattr(sampler, name) for name in given
    }
