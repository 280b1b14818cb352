"""What HERSampler refuses, and says instead: arguments, rows and rules without a meaning."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from datasets_cli import (
    GoalRule,
    HERSampler,
    LazyTensorStorage,
    ListStorage,
    PrioritizedSampler,
    ReplayBuffer,
    SamplerWithoutReplacement,
    SliceSampler,
)
from datasets_cli.errors import EmptyBuffer, UnknownKey, UsageError, WrongRows
from datasets_cli.replay import LazyStackStorage
from tests.support.goal_rows import ACHIEVED, DESIRED, RULE, buffer_of, goal_rows
from tests.support.refusals import check_refused


def test_arguments_without_a_meaning_are_refused() -> None:
    no_distance, same = (
        "must be a finite distance, not negative",
        {"desired_goal_key": ("observation", "achieved_goal")},
    )
    keyed = partial(buffer_of, goal_rows([4]))
    check_refused(
        UsageError,
        [
            (
                "strategy must be one of future, final, .* not 'past'",
                partial(buffer_of, strategy="past"),
            ),
            ("ratio must be a number from 0 to 1, not 1.5", lambda: buffer_of(ratio=1.5)),
            ("ratio must be", lambda: setattr(HERSampler(RULE), "ratio", -1)),
            ("Use strategy='future'", lambda: buffer_of(strategy="geometric", gamma=1)),
            ("gamma requires strategy='geometric', not 'future'", lambda: buffer_of(gamma=0.9)),
            ("GoalRule or a function, not 3", lambda: buffer_of(rule=3)),
            (
                "PrioritizedSampler draws by priorities",
                lambda: buffer_of(sampler=PrioritizedSampler(9, 0.5, 0.5)),
            ),
            ("Expected a sampler", lambda: buffer_of(sampler=3)),
            ("are both observation.achieved", lambda: keyed(**same).sample(2)),
            ("A key is a name, or names", lambda: keyed(desired_goal_key=3).sample(2)),
            *(
                (no_distance, partial(GoalRule.sparse, threshold))
                for threshold in (-0.1, float("nan"), float("inf"), "0.5", None)
            ),
        ],
    )


def without(key: Any) -> TensorDict:
    return goal_rows([4]).exclude(key)


def test_rows_without_goals_are_refused() -> None:
    def sample(rows: TensorDict, **arguments: Any) -> Callable[[], Any]:
        return lambda: buffer_of(rows, ratio=1, **arguments).sample(8)

    def changed(**entries: torch.Tensor) -> TensorDict:
        keys: dict[str, Any] = {"desired": DESIRED, "terminated": ("next", "terminated")}
        return goal_rows([4]).update({keys.get(name, name): x for name, x in entries.items()})

    def of_itself(achieved: Any, desired: Any, batch: Any) -> Any:
        return achieved

    goals_alone, won = goal_rows([4]), {"success_key": ("next", "won")}
    flags = "next.terminated is torch.float32, not a flag"
    check_refused(
        UsageError,
        [
            (
                "do not have next.observation.achieved_goal as one tensor",
                sample(without(("next", *ACHIEVED))),
            ),
            ("do not have observation.desired_goal", sample(without(DESIRED))),
            ("do not have next.terminated", sample(without(("next", "terminated")))),
            ("cannot become a goal: observation.des", sample(changed(desired=torch.zeros(4, 2)))),
            ("is torch.float64 .* torch.float32", sample(changed(desired=torch.zeros(4, 1)))),
            (flags, sample(changed(terminated=torch.zeros(4, 1)))),
            ("The rows already have relabelled", sample(changed(relabelled=torch.zeros(4)))),
            ("do not have next.won as one tensor", sample(goals_alone, rule=RULE, **won)),
            ("needs a rule with a success function", sample(goals_alone, rule=of_itself, **won)),
            (
                "Pass it a truncated_key",
                sample(goals_alone, sampler=SliceSampler(slice_len=2, truncated_key=None)),
            ),
        ],
    )


@pytest.mark.parametrize("storage", [ListStorage, LazyStackStorage])
def test_rows_of_a_list_some_of_which_lack_a_goal_are_refused(storage: Any) -> None:
    for key in (("next", *ACHIEVED), DESIRED, ("next", "reward")):
        buffer = ReplayBuffer(storage=storage(9), sampler=HERSampler(RULE, ratio=1))
        buffer.extend(goal_rows([4]))
        buffer.extend(without(key))
        with pytest.raises(UsageError):
            buffer.sample(50)


@pytest.mark.parametrize("storage", [ListStorage, LazyTensorStorage])
def test_goals_of_several_tensors_are_refused(storage: Any) -> None:
    rows = goal_rows([4])
    rows[DESIRED] = TensorDict({"kettle": torch.zeros(4, 1)}, [4])
    rows["next", *ACHIEVED] = TensorDict({"kettle": torch.zeros(4, 1)}, [4])
    buffer = ReplayBuffer(storage=storage(9), sampler=HERSampler(RULE, ratio=1))
    buffer.extend(rows)
    with pytest.raises((UnknownKey, WrongRows)) as error:
        buffer.sample(8)
    assert {error.value.key} <= {DESIRED, ("next", *ACHIEVED), None}


def test_what_is_refused_loses_no_row_of_an_epoch() -> None:
    epoch = SamplerWithoutReplacement()
    buffer = ReplayBuffer(storage=LazyTensorStorage(4), sampler=HERSampler(RULE, sampler=epoch))
    with pytest.raises(EmptyBuffer):
        buffer.sample(2)
    buffer.extend(goal_rows([4]))
    buffer.set_sampler(HERSampler(RULE, sampler=epoch, success_key=("next", "won")))
    with pytest.raises(UsageError):
        buffer.sample(2)
    buffer.set_sampler(HERSampler(RULE, sampler=epoch))
    found = torch.cat([buffer.sample(2)["next", *ACHIEVED] for _ in range(2)])
    assert found.view(-1).sort().values.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("returned", "found"),
    [
        (torch.zeros(3), "torch.float32 [3]"),
        (torch.zeros(8, 2), "torch.float32 [8, 2]"),
        (torch.zeros(8, dtype=torch.complex64), "torch.complex64 [8]"),
        ("much", "much"),
    ],
)
def test_rewards_of_another_dtype_or_shape_are_refused(returned: Any, found: str) -> None:
    buffer = buffer_of(goal_rows([4]), rule=lambda *_: returned, ratio=1)
    with pytest.raises(UsageError) as error:
        buffer.sample(8)
    assert error.value.found == found


def test_rows_that_are_no_single_steps_are_refused() -> None:
    several: list[Any] = [goal_rows([2])] * 3
    for rows, words in (([1, 2, 3], "do not have"), (several, r"batch size \[2\]")):
        buffer = ReplayBuffer(storage=ListStorage(9), sampler=HERSampler(RULE))
        buffer.extend(rows)
        check_refused(UsageError, [(words, partial(buffer.sample, 2))])
