"""Queries against TorchRL 0.14.1: the same conditions find the same trajectories in both.

Where TorchRL contradicts its own pages, the test names the defect and shows the right result.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict

from tests.support.parity import ours, theirs

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # TorchRL's, of NumPy 2
    pytest.mark.filterwarnings("ignore:No trajectory id entry:UserWarning"),  # TorchRL's, of flags
]

Make = Callable[[Any], Any]
"""A condition, from either library's ``traj``."""

lengths = st.lists(st.integers(1, 5), min_size=1, max_size=5)


def rollout(lengths: list[int], told: str = "episode") -> TensorDict:
    """Rows of trajectories; whole numbers, so that sums are exact in float32 too."""
    owner = torch.repeat_interleave(torch.tensor(lengths))
    number = torch.arange(len(owner))
    is_end = owner != torch.cat((owner[1:], owner[-1:] + 1))
    values = torch.stack((number % 7, number * 3 % 5, -number % 3), 1).float()
    following = {"reward": (number * 5 % 11 - 4).float().unsqueeze(1)}
    rows = TensorDict({"row": number, "state": values, "next": following}, [len(owner)])
    if told == "flags":
        flags = {"done": is_end, "terminated": is_end & (owner % 2 == 0), "truncated": is_end}
        rows["next"].update({name: flag.unsqueeze(1) for name, flag in flags.items()})
    else:
        rows[("collector", "traj_ids") if told == "collector" else told] = owner
    return rows


def written(
    library: Any, batches: list[TensorDict], capacity: int, kind: str = "LazyTensorStorage"
) -> Any:
    storage = getattr(library, kind)(capacity)
    buffer = library.TensorDictReplayBuffer(storage=storage, batch_size=2)
    for rows in batches:
        buffer.extend(rows)
    return buffer


def rows_of(found: list[Any]) -> list[list[int]]:
    return [each.row.tolist() for each in found]


SIGNS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
REDUCED = ["sum", "mean", "max", "min", "first", "last"]


def number_of(traj: Any, name: str, reduction: str) -> Any:
    if name == "length":
        return traj.length
    key = {"reward": "reward", "nested": ("next", "reward"), "state": "state"}[name]
    reduction = "max" if name == "state" and reduction in ("first", "last") else reduction
    return getattr(traj[key], reduction)()


@st.composite
def conditions(draw: Any) -> Make:
    name = draw(st.sampled_from(["length", "reward", "nested", "state"]))
    reduction, sign = draw(st.sampled_from(REDUCED)), draw(st.sampled_from(SIGNS))
    value = draw(st.integers(-4, 12))
    if draw(st.booleans()) and name != "length":
        key = "state" if name == "state" else "reward"
        way = draw(st.sampled_from(["any", "all"]))
        return lambda traj: getattr(sign(getattr(traj, key), value), way)()
    return lambda traj: sign(number_of(traj, name, reduction), value)


def joined(inner: Any) -> Any:
    pairs = st.tuples(inner, inner, st.sampled_from([operator.and_, operator.or_]))
    both = pairs.map(lambda p: lambda traj: p[2](p[0](traj), p[1](traj)))
    return both | inner.map(lambda one: lambda traj: ~one(traj))


@settings(max_examples=15)
@given(
    batches=st.lists(lengths, min_size=1, max_size=3),
    capacity=st.sampled_from([5, 9, 60]),
    told=st.sampled_from(["episode", "traj_ids", "collector", "flags"]),
    make=st.recursive(conditions(), joined, max_leaves=3),
)
def test_a_condition_finds_the_trajectories_that_it_finds_in_torchrl(
    batches: list[list[int]], capacity: int, told: str, make: Make
) -> None:
    all_rows = rollout([*itertools.chain(*batches)], told).split([sum(each) for each in batches])
    buffers = [written(library, [*all_rows], capacity) for library in (ours, theirs)]
    found, expected = (
        buffer.query(make(library.traj))
        for buffer, library in zip(buffers, (ours, theirs), strict=True)
    )
    assert rows_of(found) == rows_of(expected)
    for one, other in zip(found, expected, strict=True):
        assert (one.data == other.data.exclude("index")).all()
        assert (one.length, one.total_reward.item()) == (other.length, other.total_reward.item())


def test_each_number_comes_before_those_that_are_known_less_and_before_flags() -> None:
    rows = rollout([3, 1, 4], "flags")
    for name in ("done", "terminated"):
        rows["next", name] = torch.zeros(8, 1, dtype=torch.bool)  # truncated alone ends them
    keys = {"flags": [3, 1, 4], "episode": [2, 6], "traj_ids": [5, 3], "collector": [6, 2]}
    for told, right in keys.items():
        if told != "flags":
            key = ("collector", "traj_ids") if told == "collector" else told
            rows[key] = (torch.arange(8) >= right[0]).long()
        for library in (ours, theirs):
            assert [each.length for each in library.iter_trajectories(rows)] == right


@pytest.mark.parametrize("told", ["episode", "traj_ids", "collector", "flags"])
def test_a_rollout_has_the_trajectories_that_it_has_in_torchrl(told: str) -> None:
    rows = rollout([3, 1, 4], told)
    found = [*ours.iter_trajectories(rows)]
    assert (
        rows_of(found)
        == rows_of([*theirs.iter_trajectories(rows)])
        == [[0, 1, 2], [3], [4, 5, 6, 7]]
    )
    assert found[2].state.data_ptr() == rows["state"][4:].data_ptr()  # a view in both


def test_a_key_that_is_given_comes_before_those_that_are_known() -> None:
    rows = rollout([3, 1, 4]).set("half", torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]))
    for library in (ours, theirs):
        found = library.filter_trajectories(rows, library.traj.length > 3, trajectory_key="half")
        assert rows_of(found) == [[0, 1, 2, 3], [4, 5, 6, 7]]
        (found,) = written(library, [rows], 9).query(
            lambda each: bool(each.row[0] == 4), trajectory_key="half"
        )
        assert found.row.tolist() == [4, 5, 6, 7]


def test_of_several_environments_each_has_its_trajectories_after_the_other() -> None:
    rows = rollout([2, 3, 3]).reshape(2, 4)
    found = []
    for library in (ours, theirs):
        storage = library.LazyTensorStorage(10, ndim=2)
        buffer = library.TensorDictReplayBuffer(storage=storage, batch_size=2)
        buffer.extend(rows)
        found.append(rows_of(buffer.query(library.traj.reward.max() > 0)))
    assert found[0] == found[1] == [[0, 1], [2, 3], [4], [5, 6, 7]]


def test_a_trajectory_has_the_members_that_it_has_in_torchrl() -> None:
    rows = rollout([3, 2], "flags")
    for library in (ours, theirs):
        _, found = library.iter_trajectories(rows)
        assert (found.length, len(found), found.batch_size) == (2, 2, torch.Size([2]))
        assert found.total_reward == rows["next", "reward"][3:].sum()
        assert set(found.keys()) == {"row", "state", "next"}
        assert found.reward is found.get("reward") is found["next", "reward"]
        assert found.get("cost") is None
        assert found.get("cost", 3) == 3
        assert found[1:].row.tolist() == [4]
        assert "length=2" in repr(found)
        for wrong in (lambda: found["reward"], lambda: found.cost):  # noqa: B023
            with pytest.raises((KeyError, AttributeError)):
                wrong()


def test_a_condition_says_of_itself_what_it_says_in_torchrl() -> None:
    for library in (ours, theirs):
        traj = library.traj
        condition = (traj.reward.sum() > 3) & ~(traj["next", "done"] == True).any()  # noqa: E712
        assert condition.required_keys() == {"reward", ("next", "done")}
        assert repr(condition) == (
            "TrajectoryPredicate(((traj.reward.sum() > 3) & "
            "~(traj[('next', 'done')] == True).any()))"
        )
        assert (traj.length > 3).required_keys() == frozenset()
        own = library.TrajectoryPredicate(lambda found: found.length > 3, "long", frozenset({"a"}))
        assert (repr(own), own.required_keys()) == ("TrajectoryPredicate(long)", {"a"})
        assert library.TrajectoryPredicate(len).required_keys() is None
        (found,) = library.filter_trajectories(rollout([3, 4]), own & (traj.length < 9))
        assert own(found) is True


# What TorchRL gets wrong


def test_a_list_that_began_again_is_not_in_the_order_of_time_in_torchrl() -> None:
    rows = rollout([3, 2, 2])
    found, wrong = (
        rows_of(written(library, [rows[:5], rows[5:]], 5, "ListStorage").query())
        for library in (ours, theirs)
    )
    assert found == [[2], [3, 4], [5, 6]]
    assert wrong == [[5, 6], [2], [3, 4]]


def test_a_full_storage_whose_last_row_ends_nothing_is_glued_to_its_first_in_torchrl() -> None:
    rows = rollout([2, 3, 2], "flags")
    for name in ("done", "terminated", "truncated"):
        rows["next", name][-1] = False
    found, wrong = (
        rows_of(library.TensorDictReplayBuffer(storage=library.TensorStorage(rows)).query())
        for library in (ours, theirs)
    )
    assert found == [[0, 1], [2, 3, 4], [5, 6]]
    assert wrong == [[2, 3, 4], [5, 6, 0, 1]]
