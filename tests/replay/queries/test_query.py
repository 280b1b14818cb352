"""Queries of written rows, datasets and views find what a loop over single rows finds."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensordict import TensorDict

from datasets_cli import (
    ExperienceReplay,
    FrameStack,
    LazyTensorStorage,
    ListStorage,
    ReplayBuffer,
    RewardScaling,
    Trajectory,
    traj,
)
from datasets_cli.errors import UnknownKey, Unsupported, UsageError, WrongRows
from datasets_cli.replay import TrajectoryPredicate
from datasets_cli.replay.queries import trajectory
from datasets_cli.replay.queries.expressions import Number, RowComparison, TrajectoryField
from tests.replay.views.conftest import LENGTHS
from tests.support.refusals import refused

STARTS = np.cumsum([0, *LENGTHS])

Slow = Callable[[np.ndarray], bool]
"""What a condition says of the rows of a trajectory, int64 ``[T]``, by their numbers alone."""

X = traj["observation", "x"]  # 2 * row and 2 * row + 1
ONE, FOUR = "one number a row", "Tensor of 4 values"
CONDITIONS: list[tuple[TrajectoryPredicate, Slow]] = [
    (traj.length >= 4, lambda rows: len(rows) >= 4),
    (traj.reward.sum() > 18, lambda rows: (rows / 2).sum() > 18),
    (traj.total_reward <= 5, lambda rows: (rows / 2).sum() <= 5),
    (traj["next", "reward"].mean() != 2, lambda rows: (rows / 2).mean() != 2),
    (traj.action.first() < 5, lambda rows: rows[0] < 5),
    (traj.action.last() < 11, lambda rows: rows[-1] < 11),
    (X.max() == 21, lambda rows: rows.max() == 10),
    (X.min() > 9, lambda rows: rows.min() > 4),
    (X.sum() > 100, lambda rows: (4 * rows + 1).sum() > 100),
    (X.mean() > 20, lambda rows: (2 * rows + 0.5).mean() > 20),
    ((X == 16).any(), lambda rows: 8 in rows),
    ((np.array([8, 11]) < X).all(), lambda rows: rows.min() > 5),
    (traj["next", "terminated"].any(), lambda rows: bool(np.isin(rows + 1, STARTS).any())),
    (~traj.action.all(), lambda rows: 0 in rows),
    (traj.action.max() > traj.length, lambda rows: rows.max() > len(rows)),
]
conditions = st.recursive(
    st.sampled_from(CONDITIONS),
    lambda inner: st.builds(
        lambda one, other, sign: (
            sign(one[0], other[0]),
            lambda rows: sign(one[1](rows), other[1](rows)),
        ),
        *(inner, inner),
        st.sampled_from([operator.and_, operator.or_]),
    ),
    max_leaves=3,
)


def rows_of(found: list[Trajectory]) -> list[list[int]]:
    return [each.action.flatten().tolist() for each in found]


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(
    numbers=st.lists(st.integers(0, 4), min_size=1, max_size=6) | st.none(),
    cut=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    condition=conditions,
)
def test_a_condition_holds_for_the_trajectories_of_a_view_that_it_holds_for_by_row(
    replay: ExperienceReplay, numbers: list[int] | None, cut: tuple[int, int], condition: Any
) -> None:
    parts = [np.arange(*pair) for pair in itertools.pairwise(STARTS)]
    view = replay
    if numbers is not None:
        whole = replay.episodes_at(numbers)
        first, last = min(cut[0], len(whole) - 1), cut[1]
        view = whole.rows(first, max(first + 1, len(whole) - last))
        rows = np.concatenate([parts[number] for number in numbers])
        ends = np.cumsum([0, *(len(parts[number]) for number in numbers)])
        bounds = ends.clip(first, max(first + 1, len(whole) - last))
        parts = [rows[a:b] for a, b in itertools.pairwise(bounds) if a < b]
    predicate, slow = condition
    right = [part.tolist() for part in parts if slow(part)]
    assert rows_of(view.query(predicate)) == right
    assert [
        each["action"].flatten().tolist() for each in view.filter(predicate).episodes()
    ] == right


def written(values: np.ndarray, owner: np.ndarray) -> TensorDict:
    rows = torch.from_numpy(values)
    x = torch.stack((2 * rows, 2 * rows + 1), 1)
    is_end = torch.from_numpy(np.isin(values + 1, STARTS)).unsqueeze(1)
    following = {"reward": rows.unsqueeze(1) / 2, "terminated": is_end}
    entries = {"action": rows, "observation": {"x": x}, "episode": torch.from_numpy(owner)}
    return TensorDict({**entries, "next": following}, [len(values)])


@settings(max_examples=40)
@given(
    numbers=st.lists(st.integers(0, 4), min_size=1, max_size=6),
    capacity=st.sampled_from([3, 7, 11, 40]),
    cuts=st.sets(st.integers(1, 30), max_size=3),
    make=st.sampled_from([LazyTensorStorage, ListStorage]),
    condition=conditions,
)
def test_a_condition_holds_for_the_written_trajectories_that_it_holds_for_by_row(
    numbers: list[int], capacity: int, cuts: set[int], make: Any, condition: Any
) -> None:
    values = np.concatenate([np.arange(STARTS[n], STARTS[n + 1]) for n in numbers])
    owner = np.repeat(np.arange(len(numbers)), [LENGTHS[n] for n in numbers])
    buffer = ReplayBuffer(storage=make(capacity), batch_size=2)
    for some in np.split(np.arange(len(values)), sorted(cut for cut in cuts if cut < len(values))):
        for rows in np.array_split(some, -(-len(some) // capacity)):
            buffer.extend(written(values[rows], owner[rows]))
    kept, kept_owner = values[-capacity:], owner[-capacity:]
    parts = [kept[kept_owner == number] for number in sorted(set(kept_owner.tolist()))]
    predicate, slow = condition
    assert rows_of(buffer.query(predicate)) == [part.tolist() for part in parts if slow(part)]


def test_trajectories_that_blocks_cut_are_found_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trajectory, "BLOCK_ROWS", 2)
    values, owner = np.arange(STARTS[-1]), np.repeat(np.arange(5), LENGTHS)
    buffer = ReplayBuffer(storage=LazyTensorStorage(50), batch_size=2)
    buffer.extend(written(values, owner))
    parts = [values[a:b] for a, b in itertools.pairwise(STARTS)]
    for predicate, slow in CONDITIONS:
        right = [part.tolist() for part in parts if slow(part)]
        assert rows_of(buffer.query(predicate)) == right, predicate


def test_a_condition_reads_rows_of_the_trajectories_that_it_finds_alone(
    replay: ExperienceReplay, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    get = type(replay.storage).get
    monkeypatch.setattr(
        type(replay.storage), "get", lambda self, index: read.extend(index) or get(self, index)
    )
    assert replay.query((traj.reward.sum() < 0) | (X > 1000).any()) == []
    assert read == []
    (found,) = replay.query(traj.length == 1)
    assert read == [4]
    assert found["observation", "mission"] == [""]


def test_a_function_sees_each_trajectory_whole(replay: ExperienceReplay) -> None:
    found = replay.query(lambda each: each.observation["mission"][-1] == "go left")
    assert rows_of(found) == [[0, 1, 2, 3]]
    long, late = TrajectoryPredicate(lambda each: each.length == 6), traj.action.first() > 10
    assert rows_of(replay.query(long & late)) == [[*range(14, 20)]]
    assert rows_of(replay.query(~(long | late))) == [[0, 1, 2, 3], [4]]


def test_a_condition_sees_rows_as_the_transform_makes_them() -> None:
    buffer = ReplayBuffer(
        storage=LazyTensorStorage(50),
        transform=RewardScaling(0, 10, in_keys=[("next", "reward")]),
        batch_size=2,
    )
    buffer.extend(written(np.arange(STARTS[-1]), np.repeat(np.arange(5), LENGTHS)))
    (found,) = buffer.query(traj.reward.sum() > 400)
    assert found.action.tolist() == list(range(14, 20))
    assert found.total_reward == 10 * sum(range(14, 20)) / 2


def test_stacks_of_frames_are_what_a_condition_and_its_trajectories_have(
    replay: ExperienceReplay,
) -> None:
    stacked = replay.with_storage(FrameStack(replay.storage, 2, key=("observation", "x")))
    found = stacked.query(X.min() == 0)  # the padding of each first row
    assert len(found) == 5
    assert found[1].observation["x"].tolist() == [[[0, 0], [8, 9]]]
    assert rows_of(stacked.query(traj.reward.sum() == 2)) == [[4]]


def test_batches_of_other_formats_are_found_as_tensordicts(replay: ExperienceReplay) -> None:
    (found,) = replay.with_format("numpy").query(traj.length == 1)
    assert found.reward.tolist() == [[2]]


def test_a_query_without_a_condition_gives_every_trajectory(replay: ExperienceReplay) -> None:
    assert [each.length for each in replay.query()] == [*LENGTHS]
    assert replay.filter("length > 100").query() == []
    assert ReplayBuffer(storage=LazyTensorStorage(5)).query(traj.length > 1) == []


def test_what_is_found_are_copies() -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(5), batch_size=2)
    buffer.extend(written(np.arange(4), np.zeros(4, np.int64)))
    buffer.query(traj.length > 0)[0].action.zero_()
    assert buffer["action"].tolist() == [0, 1, 2, 3]


def test_a_column_of_a_dataset_may_tell_its_trajectories_apart(replay: ExperienceReplay) -> None:
    found = replay.query(traj.length == 1, trajectory_key="action")
    assert rows_of(found) == [[row] for row in range(STARTS[-1])]


Refusal = tuple[Callable[[ExperienceReplay], Any], type[UsageError], dict[str, Any]]

MISSION = ("observation", "mission")
REFUSALS: list[Refusal] = [
    (lambda rb: rb.query(3), UsageError, {"argument": "predicate", "found": 3}),
    (lambda rb: rb.query(traj.reward), UsageError, {"advice": TrajectoryField.advice}),
    (lambda rb: rb.query(traj.length), UsageError, {"advice": Number.advice}),
    (lambda rb: rb.filter(traj.reward > 3), UsageError, {"advice": RowComparison.advice}),
    (lambda rb: rb.query(traj.cost.sum() > 1), UnknownKey, {"key": ("cost",)}),
    (lambda rb: rb.query((np.zeros(3) < X).any()), WrongRows, {"expected": [2], "found": [3]}),
    (lambda rb: rb.query(X.first() > 3), WrongRows, {"expected": ONE, "found": [2]}),
    (lambda rb: rb.query(traj[MISSION].max() > 3), WrongRows, {"key": MISSION, "found": "text"}),
    (lambda rb: rb.filter(traj["observation"].any()), UnknownKey, {"key": ("observation",)}),
    (lambda rb: rb.query(trajectory_key="cost"), UnknownKey, {"key": ("cost",)}),
    (lambda rb: rb.query(lambda each: each.action > 3), UsageError, {"found": FOUR}),
    (lambda rb: rb.query(lambda each: None), UsageError, {"found": "None"}),
    (lambda rb: rb.filter(TrajectoryPredicate(len)), Unsupported, {"found": len}),
]


@pytest.mark.parametrize(("call", "error", "attributes"), REFUSALS)
def test_a_condition_that_does_not_fit_the_rows_is_refused(
    replay: ExperienceReplay,
    call: Callable[[ExperienceReplay], Any],
    error: type[UsageError],
    attributes: dict[str, Any],
) -> None:
    with refused(error, **attributes):
        call(replay)


def test_rows_that_nothing_separates_are_refused() -> None:
    buffer = ReplayBuffer(storage=ListStorage(5), batch_size=2)
    buffer.extend([1, 2])
    with refused(WrongRows, expected="TensorDict", found="int"):
        buffer.query()
    buffer = ReplayBuffer(storage=LazyTensorStorage(5), batch_size=2)
    buffer.extend(TensorDict({"action": torch.zeros(3), "text": ["a", "b", "c"]}, [3]))
    with refused(UnknownKey, argument="trajectory_key"):
        buffer.query()


@pytest.mark.parametrize("make", [LazyTensorStorage, ListStorage])
@pytest.mark.parametrize("key", ["text", "pairs", "group", "none"])
def test_entries_that_are_not_real_numbers_are_refused(make: Any, key: str) -> None:
    entries = {"text": ["a", "b"], "group": {"a": torch.ones(2)}, "none": torch.zeros(2, 0)}
    pairs = torch.zeros(2, dtype=torch.complex64)
    rows = TensorDict({**entries, "pairs": pairs, "episode": torch.zeros(2)}, [2])
    buffer = ReplayBuffer(storage=make(5), batch_size=2)
    buffer.extend(rows)
    with refused(UsageError, key=(key,)):
        buffer.query(traj[key].sum() > 3)


def test_infinity_and_numbers_above_a_type_are_compared() -> None:
    values = torch.tensor([[np.inf, -np.inf], [1, 2]])
    rows = TensorDict({"x": values, "half": values.half(), "episode": torch.arange(2)}, [2])
    buffer = ReplayBuffer(storage=LazyTensorStorage(5), batch_size=2)
    buffer.extend(rows)
    (found,) = buffer.query(traj.x.sum() < float("inf"))
    assert found.x.tolist() == [[1, 2]]
    assert len(buffer.query((traj.half < 70_000.0).any())) == 2
