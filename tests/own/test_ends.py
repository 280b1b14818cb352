"""Where trajectories end, by numbers of steps that come in runs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets_cli.errors import UsageError
from datasets_cli.own.ends import episode_lengths, marked

LENGTHS = st.lists(st.integers(1, 4), min_size=1, max_size=6)


@given(lengths=LENGTHS, cuts=st.lists(st.integers(0, 24), max_size=4))
def test_lengths_are_the_same_for_any_runs(lengths: list[int], cuts: list[int]) -> None:
    numbers = np.repeat([7, -1, 3, 0, 9, 5][: len(lengths)], lengths)
    told = episode_lengths(np.split(numbers, sorted(min(cut, len(numbers)) for cut in cuts)))
    assert told.tolist() == lengths
    assert np.flatnonzero(marked(told)).tolist() == (np.cumsum(lengths) - 1).tolist()


@given(cut=st.integers(0, 5))
def test_a_number_that_comes_again_is_refused_across_runs(cut: int) -> None:
    with pytest.raises(UsageError, match="the steps of episode 1 are not side by side"):
        episode_lengths(np.split(np.array([1, 1, 2, 2, 1]), [cut]))
