"""``traj``: what is written by it, what is shown of it, and what is refused at once."""

from __future__ import annotations

import copy
import functools
import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from datasets_cli import Trajectory, filter_trajectories, traj
from datasets_cli.errors import NoRewards, UsageError
from datasets_cli.replay import TrajectoryPredicate
from datasets_cli.replay.queries.expressions import Number, RowComparison, TrajectoryField
from tests.support.refusals import refused


def rows(reward: list[float], dtype: torch.dtype = torch.float32) -> TensorDict:
    """Three trajectories of two rows."""
    following = {"reward": torch.tensor(reward, dtype=dtype).unsqueeze(1)}
    return TensorDict({"episode": torch.arange(6) // 2, "next": following}, [6])


def found(condition: TrajectoryPredicate, data: TensorDict) -> list[int]:
    return [int(each.episode[0]) for each in filter_trajectories(data, condition)]


@pytest.mark.parametrize(
    "condition",
    [
        (traj.reward.sum() > 3) & ~(traj.length < traj.reward.max()),
        (traj["a", "b"] >= np.array([1, 2])).any() | traj.done.all(),
        TrajectoryPredicate(len, "any rows"),
    ],
)
def test_a_condition_pickles_and_is_copied(condition: TrajectoryPredicate) -> None:
    for same in pickle.loads(pickle.dumps(condition)), copy.deepcopy(condition):
        assert repr(same) == repr(condition)
    assert copy.deepcopy(traj).length is not None


def test_a_condition_is_shown_as_it_can_be_written() -> None:
    condition = (traj["length"].all() & ~(traj.length <= traj.total_reward)) | (
        traj["next", "done"] == True  # noqa: E712
    ).any()
    shown = str(condition)
    assert shown == (
        "((traj['length'].all() & ~(traj.length <= traj.total_reward)) | "
        "(traj[('next', 'done')] == True).any())"
    )
    assert str(eval(shown, {"traj": traj})) == shown


@pytest.mark.parametrize("three", [3, 3.0, np.float64(3), np.int8(3), torch.tensor([3])])
def test_numbers_of_every_library_are_compared_on_both_sides(three: Any) -> None:
    data = rows([1, 1, 1, 2, 3, 4])
    assert found(three <= traj.reward.sum(), data) == [1, 2]
    assert found(traj.reward.sum() == three, data) == [1]
    assert found((three == traj.reward).any(), data) == [2]


def test_nan_is_neither_more_nor_less() -> None:
    data = rows([float("nan"), 5, 1, 5, 1, 1])
    assert found(traj.reward.max() > 3, data) == [1]
    assert found((traj.reward > 3).any(), data) == [0, 1]
    assert found(~(traj.reward.max() > 3), data) == [0, 2]
    assert found(traj.reward.all(), data) == [0, 1, 2]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float16, torch.int64])
def test_sums_of_narrow_numbers_do_not_overflow(dtype: torch.dtype) -> None:
    data = rows([200, 200, 100, 100, 100, 101], dtype)
    assert found(traj.reward.sum() > 399, data) == [0]
    assert found(traj.reward.min() > -1, data) == [0, 1, 2]


@pytest.mark.parametrize(
    ("write", "attributes"),
    [
        (lambda: not traj.length, {"advice": Number.advice}),
        (lambda: (traj.reward > 3) & (traj.length > 3), {"advice": RowComparison.advice}),
        (lambda: ~traj.reward, {"advice": TrajectoryField.advice}),
        (lambda: (traj.length > 3) & len, {"expected": "a condition on trajectories"}),
        (lambda: traj.reward.sum() > "3", {"found": "3"}),
        (lambda: traj.reward == None, {"expected": "a number, or an array of numbers"}),  # noqa: E711
        (lambda: traj.reward.sum() > torch.zeros(2), {"expected": "one number", "found": [2]}),
        (lambda: traj[3], {"argument": "key", "found": 3}),
        (lambda: TrajectoryPredicate("3"), {"argument": "fn"}),  # type: ignore[arg-type]
        (lambda: (traj.length > 3)(rows([1] * 6)), {"found": "TensorDict"}),
    ],
)
def test_what_means_nothing_is_refused_where_it_is_written(
    write: Callable[[], Any], attributes: dict[str, Any]
) -> None:
    with refused(UsageError, **attributes):
        write()


@pytest.mark.parametrize(
    ("write", "found"),
    [
        (lambda: (traj.length > 3) and (traj.length < 9), "(traj.length > 3)"),
        (lambda: 3 < traj.length < 9, "(traj.length > 3)"),
        (lambda: (traj.length > 3) | (traj.reward > 3), "(traj.reward > 3)"),
        (lambda: traj.reward > traj.cost, "traj.cost"),
    ],
)
def test_an_operand_that_python_would_drop_is_in_the_error(
    write: Callable[[], Any], found: str
) -> None:
    with pytest.raises(UsageError) as caught:
        write()
    assert found in repr(caught.value.found)


def test_an_entry_that_rows_do_not_have_is_no_attribute() -> None:
    found = Trajectory(TensorDict({"a": torch.zeros(2)}, [2]))
    with pytest.raises(AttributeError):
        found.b  # noqa: B018
    with pytest.raises(NoRewards):
        found.total_reward  # noqa: B018
    assert not hasattr(found, "b")
    assert pickle.loads(pickle.dumps(found)).a.tolist() == [0, 0]


def test_a_trajectory_is_made_of_a_tensordict_alone() -> None:
    with refused(UsageError, argument="data", found="dict"):
        Trajectory({"a": 1})  # type: ignore[arg-type]


def test_a_chain_of_any_length_is_one_condition() -> None:
    data = rows([1, 2, 3, 4, 5, 6])
    several = [traj.length > 0, *[traj.reward.sum() > 3.0] * 3000]
    assert found(functools.reduce(operator.and_, several), data) == [1, 2]
    assert found(~functools.reduce(operator.or_, several[1:]), data) == [0]


def test_conditions_in_one_another_have_a_limit() -> None:
    condition = traj.length > 1
    for _ in range(99):
        condition = ~condition
    assert found(condition, rows([1, 2, 3, 4, 5, 6])) == []
    with refused(UsageError, expected=100, found=101):
        _ = ~condition
