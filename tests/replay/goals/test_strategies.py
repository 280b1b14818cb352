"""Each strategy gives goals of the steps that it names, as likely as it says."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets_cli import HERSampler, HindsightStrategy, LazyTensorStorage, ReplayBuffer
from datasets_cli.replay.goals.sampler import goal_steps
from tests.support.goal_rows import RULE, goal_rows
from tests.support.trajectory_rows import chi_square_score

WITHIN = [each for each in HindsightStrategy if each is not HindsightStrategy.RANDOM]
ALMOST_ONE = 1 - 2**-53
DRAWS = 10_000


def counts(strategy: str, row: int, **arguments: float) -> np.ndarray:
    """How often each of 10 rows, of 1 + 8 + 1, gives the goal of one of them."""
    sampler = HERSampler(RULE, strategy=strategy, ratio=1, **arguments)
    buffer = ReplayBuffer(storage=LazyTensorStorage(10), sampler=sampler, seed=3)
    buffer.extend(goal_rows([1, 8, 1]))
    _, info = buffer.sample(10 * DRAWS, return_info=True)
    given = info["goal_row"][info["index"] == row].numpy()
    return np.bincount(given, minlength=10)


@pytest.mark.parametrize(
    "strategy, row, rows",
    [
        ("future", 4, range(4, 9)),
        ("future", 8, range(8, 9)),
        ("future", 0, range(1)),
        ("final", 4, range(8, 9)),
        ("episode", 4, range(1, 9)),
        ("random", 4, range(10)),
    ],
)
def test_rows_that_a_strategy_names_are_drawn_alike(strategy: str, row: int, rows: range) -> None:
    found = counts(strategy, row)
    assert set(np.flatnonzero(found)) == set(rows)
    if len(rows) > 1:
        expected = np.full(len(rows), found.sum() / len(rows))
        assert abs(chi_square_score(found[[*rows]], expected)) < 4


@pytest.mark.parametrize("gamma", [0.5, 0.99])
def test_geometric_is_what_drawing_again_gives_that_is_beyond_the_end(gamma: float) -> None:
    found = counts("geometric", 3, gamma=gamma)
    # Drawn by numpy, and again where a step is not one of the 6 to the end.
    offsets = np.random.default_rng(0).geometric(1 - gamma, 1_000_000) - 1
    likely = np.bincount(offsets[offsets < 6], minlength=6)
    expected = likely / likely.sum() * found.sum()
    assert found[:3].sum() == found[9] == 0
    assert abs(chi_square_score(found[3:9], expected)) < 4


def test_geometric_with_a_gamma_of_0_is_the_step_itself() -> None:
    assert np.flatnonzero(counts("geometric", 3, gamma=0)).tolist() == [3]


@settings(max_examples=200)
@given(
    strategy=st.sampled_from(WITHIN),
    length=st.integers(1, 2**40),
    part=st.floats(0, 1),
    uniform=st.sampled_from([0.0, 2**-1074, 0.5, ALMOST_ONE]) | st.floats(0, ALMOST_ONE),
    gamma=st.sampled_from([0.0, 1e-300, ALMOST_ONE]) | st.floats(0, ALMOST_ONE),
)
def test_no_step_is_outside_of_the_trajectory_or_before_the_row(
    strategy: HindsightStrategy, length: int, part: float, uniform: float, gamma: float
) -> None:
    step = min(int(part * length), length - 1)
    numbers = torch.tensor([step]), torch.tensor([length])
    drawn = torch.tensor([uniform], dtype=torch.float64)
    found = int(goal_steps(strategy, *numbers, drawn, gamma))
    assert (0 if strategy is HindsightStrategy.EPISODE else step) <= found < length


def test_a_row_gets_a_goal_as_likely_as_the_ratio_says_wherever_it_is_in_the_batch() -> None:
    buffer = ReplayBuffer(
        storage=LazyTensorStorage(10), sampler=HERSampler(RULE, ratio=0.3), seed=3
    )
    buffer.extend(goal_rows([4, 6]))
    several = torch.stack([buffer.sample(5)["relabelled"].view(-1) for _ in range(1000)])
    given = several.sum(0).numpy()
    for place in range(5):
        found = np.array([given[place], 1000 - given[place]])
        assert abs(chi_square_score(found, np.array([300, 700]))) < 4
