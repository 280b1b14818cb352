"""Queries: which rows and trajectories a condition chooses."""

from __future__ import annotations

import copy
import functools
import itertools
import operator
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    filter_trajectories,
    traj,
)
from datasets_cli.errors import NoRewards, UnknownKey, Unsupported, UsageError, WrongRows
from datasets_cli.replay import TrajectoryPredicate
from datasets_cli.replay.queries import trajectory
from datasets_cli.replay.queries.conditions import EXAMPLE, TextCondition
from datasets_cli.replay.queries.expressions import Number, RowComparison, TrajectoryField
from tests.replay.views.conftest import LENGTHS, install
from tests.support.refusals import refused
from tests.support.text_rows import ID, steps_of, write

STARTS = np.cumsum([0, *LENGTHS])

Slow = Callable[[np.ndarray], bool]
"""What a condition says of the rows of a trajectory, int64 ``[T]``, by their numbers alone."""

X = traj["observation", "x"]  # 2 * row and 2 * row + 1
ONE, FOUR = "one number per row", "Tensor of 4 values"
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


each_layout = pytest.mark.parametrize("replay", ["ted", "compact"], indirect=True)


@pytest.fixture(scope="session")
def replay(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> ExperienceReplay:
    """A small dataset that no test writes to."""
    root = tmp_path_factory.mktemp("queried")
    layout = getattr(request, "param", "compact")
    return ExperienceReplay(install(root, layout), 6, root=root, download=False, text=True)


def rows_of(found: list[Trajectory]) -> list[list[int]]:
    return [each.action.flatten().tolist() for each in found]


@each_layout
@settings(max_examples=15, suppress_health_check=list(HealthCheck))
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


@settings(max_examples=20)
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


@each_layout
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


@each_layout
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


# ``traj``: what is written by it, what is shown of it, and what is refused at once.


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
    several = [traj.length > 0, *[traj.reward.sum() > 3.0] * 1100]
    assert found(functools.reduce(operator.and_, several), data) == [1, 2]
    assert found(~functools.reduce(operator.or_, several[1:]), data) == [0]


# Conditions as text: what they mean is what Python means by them, and nothing else is run.


@each_layout
def test_a_condition_keeps_the_trajectories_that_it_holds_for(replay: ExperienceReplay) -> None:
    for where, numbers in [
        ("length > 4", [2, 4]),
        ("length >= 4 and length != 6", [0]),
        ("3 <= length < 6", [0, 3]),
        ("not length == 6 or number == 4", [0, 1, 3, 4]),
        ("return > 12 and length >= 4", [2, 4]),
        ("return / length < 3", [0, 1]),
        ("terminated", [0, 1, 2, 3, 4]),
        ("truncated or terminated == false", []),
        ("start * 2 - 1 > 20 / (1 + 1)", [3, 4]),
        ("max(next.reward) >= 5", [2, 3, 4]),
        ("length > 3\n    and length < 6", [0]),
        ("min(action) == -(-4)", [1]),
        ("last(action) - first(action) == length - 1", [0, 1, 2, 3, 4]),
        ("mean(next.reward) > 1e-1 and true", [0, 1, 2, 3, 4]),
        ("length / (length - 1) > 1e300", [1]),
    ]:
        assert replay.filter(where).trajectories["number"].tolist() == numbers, where


COLUMNS = st.sampled_from(["length", "number", "start", "max(action)"])
NUMBERS = st.recursive(
    COLUMNS | st.integers(0, 20).map(str) | st.floats(0.1, 20).map("{:.3f}".format),
    lambda part: st.tuples(part, st.sampled_from("+-*"), part).map("({0[0]} {0[1]} {0[2]})".format),
    max_leaves=3,
)
COMPARED = st.tuples(NUMBERS, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), NUMBERS)
TEXT_CONDITIONS = st.recursive(
    COMPARED.map(" ".join),
    lambda part: (
        st.tuples(part, st.sampled_from(["and", "or"]), part).map(" ".join)
        | part.map("not ({})".format)
    ),
    max_leaves=4,
)


@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(where=TEXT_CONDITIONS)
def test_conditions_are_those_of_python_for_each_trajectory(
    where: str, replay: ExperienceReplay
) -> None:
    found = TextCondition(where, replay.trajectories).mask().tolist()
    for number, length in enumerate(LENGTHS):
        start = int(STARTS[number])
        names = {"number": number, "length": length, "start": start}
        last = start + length - 1
        right = eval(where, {"max": lambda action: action}, {**names, "action": last})
        assert found[number] is bool(right)


LONG = "+".join(["length"] * 250)
DIGITS = f"return > 1{'0' * 400}"


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("", ""),
        ("return >", "return >"),
        ("length > 3; length", "length > 3; length"),
        ("length := 3", "length := 3"),
        ("length > 3\0", "length > 3\0"),
        (DIGITS, DIGITS[:200] + "..."),
        ("(" * 3000 + "length" + ")" * 3000, "(" * 200 + "..."),
        ("length", "length"),
        ("length and terminated", "length"),
        ("terminated + 1 > 0", "terminated"),
        ("terminated > 0", "terminated > 0"),
        (f"true == {LONG}", f"true == {LONG}".replace("+", " + ")[:200] + "..."),
        ("median(action) > 3", "median(action)"),
        ("max(action, action) > 3", "max(action, action)"),
        ("__import__('os').system('true')", "__import__('os').system('true')"),
        ("length.__class__ == 3", "length.__class__"),
        ("[length][0] > 3", "[length][0]"),
        ("(lambda: length)() > 3", "(lambda: length)()"),
        ("length ** 9 > 3", "length ** 9"),
        ("length is 3", "length is 3"),
        ("length > 3j", "3j"),
        ("length > '3'", "length > '3'"),
    ],
)
def test_a_text_that_is_not_a_condition_is_refused_with_the_part_at_fault(
    replay: ExperienceReplay, where: str, found: str
) -> None:
    with refused(UsageError, argument="where", found=found), shows(EXAMPLE):
        replay.filter(where)


@pytest.mark.parametrize(
    ("where", "error", "attributes"),
    [
        ("not " * 3000 + "true", UsageError, {"expected": 10_000, "found": 12_004}),
        ("score > 3", UnknownKey, {"key": "score"}),
        ("max(score) > 3", UnknownKey, {"key": ("score",)}),
        ("first(observation.x) > 3", WrongRows, {"key": ("observation", "x"), "found": [2]}),
        ("max(observation.mission) > 3", WrongRows, {"found": "text"}),
    ],
)
def test_a_column_that_a_condition_cannot_read_is_refused_with_its_advice(
    replay: ExperienceReplay, where: str, error: type[UsageError], attributes: dict[str, Any]
) -> None:
    with refused(error, **attributes), shows("ondition"):
        replay.filter(where)


@contextmanager
def shows(text: str) -> Iterator[None]:
    """Check that an error of few lines shows a text, and its advice last."""
    try:
        yield
    except UsageError as error:
        assert text in str(error) and len(str(error)) < 2000
        assert str(error).endswith(error.advice or "")
        raise


# A condition as text and one of ``traj`` hold for the same trajectories.


Spellings = tuple[str, Any]
"""A number or a condition as text, and the same of ``traj``."""

SIGNS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
LEAVES: list[Spellings] = [
    ("reward", traj.reward),
    ("next.reward", traj["next", "reward"]),
    ("action", traj.action),
    ("byte", traj.byte),
    ("half", traj.half),
]
FLAGS: list[Spellings] = [
    *LEAVES,
    ("next.terminated", traj["next", "terminated"]),
    ("observation.x", traj["observation", "x"]),
]


def reduced(leaf: Spellings, reduction: str) -> Spellings:
    return f"{reduction}({leaf[0]})", getattr(leaf[1], reduction)()


def compared(one: Spellings, sign: str, other: Spellings) -> Spellings:
    return f"({one[0]} {sign} {other[0]})", SIGNS[sign](one[1], other[1])


def joined(one: Spellings, word: str, other: Spellings) -> Spellings:
    join = operator.and_ if word == "and" else operator.or_
    return f"({one[0]} {word} {other[0]})", join(one[1], other[1])


# Sums and means of tenths are in float64, single ones in the type of the rows.
numbers = st.one_of(
    st.just(("length", traj.length)),
    st.builds(
        reduced,
        st.sampled_from(LEAVES),
        st.sampled_from(["sum", "mean", "max", "min", "first", "last"]),
    ),
    st.builds(
        reduced,
        st.just(("observation.x", traj["observation", "x"])),
        st.sampled_from(["sum", "mean", "max", "min"]),
    ),
)
constants = st.one_of(
    st.integers(-300, 300).map(lambda tenths: tenths / 10),
    st.integers(-3, 300),
    st.sampled_from([2**53 + 1, -(2**53) - 1, 10**30, 1e300]),
).map(lambda value: (repr(value), value))
spelled_conditions = st.recursive(
    st.builds(compared, numbers, st.sampled_from([*SIGNS]), numbers | constants)
    | st.builds(reduced, st.sampled_from(FLAGS), st.sampled_from(["any", "all"])),
    lambda part: (
        st.builds(joined, part, st.sampled_from(["and", "or"]), part)
        | part.map(lambda one: (f"(not {one[0]})", ~one[1]))
    ),
    max_leaves=4,
)


@pytest.fixture(scope="module")
def tenths(tmp_path_factory: pytest.TempPathFactory) -> ExperienceReplay:
    """Return a dataset of numbers that no float holds exactly, in several types."""
    root = tmp_path_factory.mktemp("tenths")
    steps = steps_of(["go"], (4, 1, 6, 3, 6))
    number = np.arange(20)[:, None]
    steps["next", "reward"] = (number / 10).astype(np.float32)
    steps["next", "reward"][7] = np.nan
    steps["byte",] = (number * 15).astype(np.uint8)
    steps["half",] = (number / 10 - 1).astype(np.float16)
    (root / "datasets" / "toy").mkdir(parents=True)
    write(root / "staging", "compact", steps).rename(root / "datasets" / ID)
    return ExperienceReplay(ID, 4, root=root, download=False)


@pytest.fixture(scope="module")
def whole(tenths: ExperienceReplay) -> list[Trajectory]:
    return [*map(Trajectory, tenths.episodes())]


def numbers_of(view: ExperienceReplay) -> list[int]:
    return view.trajectories["number"].tolist()


@settings(max_examples=30)
@given(spellings=spelled_conditions)
def test_both_spellings_hold_for_the_same_trajectories(
    spellings: tuple[str, TrajectoryPredicate],
    tenths: ExperienceReplay,
    whole: list[Trajectory],
) -> None:
    text, condition = spellings
    expected = numbers_of(tenths.filter(condition))
    assert numbers_of(tenths.filter(text)) == expected
    assert [place for place, each in enumerate(whole) if condition(each)] == expected


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("first(next.reward) == 0.4", [1]),  # float32, as torch compares it
        ("first(next.reward) == 0.8 / 2", [1]),  # a calculated constant is one, too
        ("last(half) == -0.7", [0]),
        ("first(next.reward) * 1 == 0.4", []),  # calculated in float64
        ("max(byte) + 200 > 390", [3, 4]),  # and so not wrapped around at 256
        ("max(observation.x) >= min(observation.x) + 12", []),
    ],
)
def test_numbers_are_compared_in_the_type_of_the_rows(
    text: str, numbers: list[int], tenths: ExperienceReplay
) -> None:
    assert numbers_of(tenths.filter(text)) == numbers
