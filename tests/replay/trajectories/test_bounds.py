"""Where trajectories begin and end, against loops over the steps."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets_cli.replay.trajectories.bounds import (
    begins_of,
    bounds_of,
    ends_of,
    ends_of_numbers,
    first_of,
    index_from_ends,
    last_of,
    numbers_of,
    steps_of,
)

quick = settings(max_examples=30)
flags = st.integers(1, 9).flatmap(
    lambda steps: st.lists(
        st.lists(st.booleans(), min_size=steps, max_size=steps), min_size=1, max_size=3
    )
)


def slow_bounds(ends: list[list[bool]]) -> list[tuple[int, int, int]]:
    """Sequence, first and last step of each trajectory that ends, by a loop."""
    found = []
    for sequence, row in enumerate(ends):
        first = 0
        for step, is_end in enumerate(row):
            if is_end:
                found.append((sequence, first, step))
                first = step + 1
    return found


def listed(*columns: torch.Tensor) -> list[tuple[int, ...]]:
    return list(zip(*(column.tolist() for column in columns), strict=True))


@quick
@given(flags)
def test_bounds_are_those_of_a_loop(ends: list[list[bool]]) -> None:
    found = bounds_of(torch.tensor(ends))
    assert listed(found.sequence, found.first, found.last) == slow_bounds(ends)
    assert torch.equal(found.lengths, found.last - found.first + 1)


@quick
@given(flags)
def test_what_is_known_of_a_step_is_that_of_its_trajectory(ends: list[list[bool]]) -> None:
    for row in ends:
        row[-1] = True
    signal = torch.tensor(ends)
    begins, first, last = begins_of(signal), first_of(signal), last_of(signal)
    assert torch.equal(ends_of(begins), signal)
    for sequence, start, stop in slow_bounds(ends):
        assert begins[sequence, start : stop + 1].tolist() == [True] + [False] * (stop - start)
        assert set(first[sequence, start : stop + 1].tolist()) == {start}
        assert set(last[sequence, start : stop + 1].tolist()) == {stop}
    found = bounds_of(signal)
    number, step = steps_of(found.lengths)
    assert torch.equal(number, numbers_of(begins.reshape(-1)))
    assert torch.equal(step, (torch.arange(signal.shape[1]) - first).reshape(-1))


def test_nothing_is_changed_in_place() -> None:
    signal = torch.tensor([[False, True, False]])
    for function in (begins_of, ends_of, first_of, last_of, bounds_of):
        function(signal)
    index_from_ends(signal.T, 1)
    assert signal.tolist() == [[False, True, False]]


@pytest.mark.parametrize("time", [0, -1])
def test_a_number_ends_where_it_changes(time: int) -> None:
    number = torch.tensor([3, 3, 5, 5, 5, 3])
    wide = number.unsqueeze(1 + time)  # [T, 1] where time is the first dimension
    assert ends_of_numbers(wide, time).reshape(-1).tolist() == [0, 1, 0, 0, 1, 0]
