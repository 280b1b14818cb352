"""What HERSampler refuses, and says instead: arguments, rows and rules without a meaning."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDict

from datasets_cli import (
    EmptyBuffer,
    GoalRule,
    HERSampler,
    LazyStackStorage,
    LazyTensorStorage,
    ListStorage,
    PrioritizedSampler,
    ReplayBuffer,
    SamplerWithoutReplacement,
    SliceSampler,
)
from datasets_cli.errors import UsageError
from tests.support.goal_rows import ACHIEVED, DESIRED, RULE, buffer_of, goal_rows


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"strategy": "past"}, "no strategy 'past'; expected one of future, final"),
        ({"ratio": 1.5}, "ratio must be a number from 0 to 1, not 1.5"),
        ({"strategy": "geometric", "gamma": 1}, "use 'future'"),
        ({"gamma": 0.9}, "gamma is of the strategy 'geometric', not of 'future'"),
        ({"rule": 3}, "GoalRule or a function, not 3"),
        ({"sampler": PrioritizedSampler(9, 0.5, 0.5)}, "PrioritizedSampler draws by priorities"),
        ({"sampler": 3}, "A sampler is expected"),
    ],
)
def test_arguments_without_a_meaning_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        buffer_of(**arguments)


@pytest.mark.parametrize("threshold", [-0.1, float("nan"), float("inf"), "0.5", None])
def test_a_distance_that_is_none_is_refused(threshold: Any) -> None:
    with pytest.raises(UsageError, match="a distance from 0 on"):
        GoalRule.sparse(threshold)


@pytest.mark.parametrize(
    "keys, message",
    [
        ({"desired_goal_key": ("observation", "achieved_goal")}, "are both observation.achieved"),
        ({"desired_goal_key": 3}, "A key is a name, or names"),
    ],
)
def test_keys_that_cannot_be_those_of_goals_are_refused(keys: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        buffer = ReplayBuffer(storage=LazyTensorStorage(9), sampler=HERSampler(RULE, **keys))
        buffer.extend(goal_rows([4]))
        buffer.sample(2)


def test_a_ratio_set_later_is_checked_too() -> None:
    sampler = HERSampler(RULE)
    with pytest.raises(UsageError, match="ratio must be"):
        sampler.ratio = -1


def without(key: Any) -> TensorDict:
    return goal_rows([4]).exclude(key)


@pytest.mark.parametrize(
    "rows, message",
    [
        (without(("next", *ACHIEVED)), "do not have next.observation.achieved_goal as one tensor"),
        (without(DESIRED), "do not have observation.desired_goal"),
        (without(("next", "terminated")), "do not have next.terminated"),
        (goal_rows([4]).update({DESIRED: torch.zeros(4, 2)}), "cannot be a goal: observation.des"),
        (goal_rows([4]).update({DESIRED: torch.zeros(4, 1)}), "is torch.float64 .* torch.float32"),
        (
            goal_rows([4]).update({("next", "terminated"): torch.zeros(4, 1)}),
            "next.terminated is torch.float32, which is no flag",
        ),
        (goal_rows([4]).update({"relabelled": torch.zeros(4)}), "The rows have relabelled"),
    ],
)
def test_rows_without_goals_are_refused(rows: TensorDict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        buffer_of(rows, ratio=1).sample(8)


@pytest.mark.parametrize("key", [("next", *ACHIEVED), DESIRED, ("next", "reward")])
@pytest.mark.parametrize("storage", [ListStorage, LazyStackStorage])
def test_rows_of_a_list_some_of_which_lack_a_goal_are_refused(storage: Any, key: Any) -> None:
    buffer = ReplayBuffer(storage=storage(9), sampler=HERSampler(RULE, ratio=1))
    buffer.extend(goal_rows([4]))
    buffer.extend(without(key))
    with pytest.raises(UsageError, match=r"do not have|missing from some rows|Rows differ"):
        buffer.sample(50)


@pytest.mark.parametrize("storage", [ListStorage, LazyTensorStorage])
def test_goals_of_several_tensors_are_refused(storage: Any) -> None:
    rows = goal_rows([4])
    rows[DESIRED] = TensorDict({"kettle": torch.zeros(4, 1)}, [4])
    rows["next", *ACHIEVED] = TensorDict({"kettle": torch.zeros(4, 1)}, [4])
    buffer = ReplayBuffer(storage=storage(9), sampler=HERSampler(RULE, ratio=1))
    buffer.extend(rows)
    with pytest.raises(UsageError, match="one tensor"):
        buffer.sample(8)


@pytest.mark.parametrize(
    "rule, message",
    [
        (RULE, "do not have next.won as one tensor"),
        (lambda achieved, desired, batch: achieved, "does not say what is a success"),
    ],
)
def test_a_success_that_is_asked_for_must_be_there(rule: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        buffer_of(goal_rows([4]), rule=rule, success_key=("next", "won")).sample(8)


def test_what_is_refused_loses_no_row_of_an_epoch() -> None:
    epoch = SamplerWithoutReplacement()
    buffer = ReplayBuffer(storage=LazyTensorStorage(4), sampler=HERSampler(sampler=epoch))
    with pytest.raises(EmptyBuffer):
        buffer.sample(2)
    buffer.extend(goal_rows([4]))
    with pytest.raises(UsageError, match="no dataset"):
        buffer.sample(2)
    buffer.set_sampler(HERSampler(RULE, sampler=epoch))
    found = torch.cat([buffer.sample(2)["next", *ACHIEVED] for _ in range(2)])
    assert found.view(-1).sort().values.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "returned, message",
    [
        (torch.zeros(3), r"must be torch.float32 \[8, 1\]"),
        (torch.zeros(8, 2), r"it returned torch.float32 \[8, 2\]"),
        (torch.zeros(8, dtype=torch.complex64), "complex64"),
        ("much", "is none"),
    ],
)
def test_rewards_of_another_form_are_refused(returned: Any, message: str) -> None:
    buffer = buffer_of(goal_rows([4]), rule=lambda achieved, desired, batch: returned, ratio=1)
    with pytest.raises(UsageError, match=message):
        buffer.sample(8)


@pytest.mark.parametrize(
    "rows, message",
    [([1, 2, 3], "do not have"), ([goal_rows([2])] * 3, r"batch size of its own, \[2\]")],
)
def test_rows_that_are_no_single_steps_are_refused(rows: list[Any], message: str) -> None:
    buffer = ReplayBuffer(storage=ListStorage(9), sampler=HERSampler(RULE))
    buffer.extend(rows)
    with pytest.raises(UsageError, match=message):
        buffer.sample(2)


def test_a_buffer_of_no_dataset_needs_a_rule() -> None:
    with pytest.raises(UsageError, match="no dataset whose rule is known"):
        buffer_of(goal_rows([4]), rule=None).sample(8)


def test_slices_whose_ends_are_not_marked_are_refused() -> None:
    buffer = buffer_of(goal_rows([4]), sampler=SliceSampler(slice_len=2, truncated_key=None))
    with pytest.raises(UsageError, match="Give it a truncated_key"):
        buffer.sample(4)
