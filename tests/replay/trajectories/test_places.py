"""Rows are found in their trajectories: in rings, side by side, apart, and where some are given."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets_cli.errors import WrongRows
from datasets_cli.replay.goals.sampler import TrajectoryPlaces
from datasets_cli.replay.trajectories.bounds import (
    TrajectoryIndex,
    fragmented_index,
    index_from_ends,
)


def check(index: TrajectoryIndex) -> None:
    """Every row is found where the trajectories have it, walked step by step."""
    places = TrajectoryPlaces(index)
    walked = {}
    for number, length in enumerate(index.lengths.tolist()):
        for step in range(length):
            place = (int(index.starts[number]) + step * index.stride) % index.capacity
            row = place if index.order is None else int(index.order[place])
            walked[row] = number, step
    rows = torch.tensor(list(walked))
    number, step = places.of(rows)
    assert (
        dict(zip(walked, zip(number.tolist(), step.tolist(), strict=True), strict=True)) == walked
    )
    assert torch.equal(places.row(number, step), rows)


@settings(max_examples=150)
@given(data=st.data(), num_steps=st.integers(1, 30), width=st.integers(1, 4))
def test_rows_of_a_ring_are_found(data: st.DataObject, num_steps: int, width: int) -> None:
    flags = st.lists(st.booleans(), min_size=num_steps * width, max_size=num_steps * width)
    is_end = torch.tensor(data.draw(flags)).view(num_steps, width)
    index = index_from_ends(is_end, data.draw(st.integers(0, num_steps - 1)))
    assert int(index.lengths.sum()) == num_steps * width
    check(index)


@settings(max_examples=50)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=30))
def test_rows_that_are_apart_are_found(numbers: list[int]) -> None:
    steps = [numbers[:place].count(number) for place, number in enumerate(numbers)]
    check(fragmented_index(torch.tensor(numbers), torch.tensor(steps), ("number",)))


def test_trajectories_without_rows_are_passed_over() -> None:
    starts, lengths = torch.tensor([0, 0, 3, 3, 5]), torch.tensor([0, 3, 0, 2, 0])
    number, step = TrajectoryPlaces(TrajectoryIndex(starts, lengths, 1, 5)).of(torch.arange(5))
    assert number.tolist() == [1, 1, 1, 3, 3] and step.tolist() == [0, 1, 2, 0, 1]


@pytest.mark.parametrize("starts, row", [([0, 6], 4), ([2, 6], 1), ([], 0)])
def test_a_row_outside_of_those_that_were_given_is_refused(starts: list[int], row: int) -> None:
    lengths = torch.full((len(starts),), 3)
    places = TrajectoryPlaces(TrajectoryIndex(torch.tensor(starts).long(), lengths, 1, 20))
    with pytest.raises(WrongRows) as error:
        places.of(torch.tensor([row]))
    assert error.value.argument == "trajectories"
    assert error.value.row == (row if starts else None)
