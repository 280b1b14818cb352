"""Hindsight experience replay: goals of rows that were written."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict

from datasets_cli import (
    BatchStream,
    DistributedSampler,
    ExperienceReplay,
    GoalRule,
    HERSampler,
    HindsightStrategy,
    LazyMemmapStorage,
    LazyTensorStorage,
    ListStorage,
    RandomSampler,
    ReplayBuffer,
    ReplayBufferEnsemble,
    SamplerWithoutReplacement,
    SliceSampler,
    TensorDictReplayBuffer,
)
from datasets_cli.config import Config
from datasets_cli.replay import LazyStackStorage
from datasets_cli.replay.batches.drawing import SharedDraw
from datasets_cli.replay.goals.sampler import goal_steps
from datasets_cli.replay.trajectories.bounds import TrajectoryKeys
from tests.support import maze_files
from tests.support.goal_rows import (
    ACHIEVED,
    DESIRED,
    FAR,
    RULE,
    buffer_of,
    goal_rows,
    rows_for_goals,
    trajectories_around,
)
from tests.support.trajectory_rows import chi_square_score

FLAGS = [("next", name) for name in ("terminated", "truncated", "done")]


def hindsight(row: TensorDict, goal: torch.Tensor) -> TensorDict:
    """Return one row with another goal, and what follows from it, step by step."""
    row = row.clone()
    row[DESIRED], row["next", *DESIRED] = goal, goal
    is_near = abs(float(row["next", *ACHIEVED]) - float(goal)) <= 1
    row["next", "reward"][:] = 0.0 if is_near else -1.0
    if row["next", "terminated"] and not is_near:
        row["next", "truncated"][:] = True
    row["next", "terminated"][:] = is_near
    row["next", "done"][:] = bool(row["next", "terminated"] or row["next", "truncated"])
    return row


def check_rows(batch: TensorDict, info: Any, rows: TensorDict, strategy: str, walked: Any) -> None:
    """Check a batch of single rows by the rows that are there."""
    for place, row in enumerate(info["index"].tolist()):
        given, expected = int(info["goal_row"][place]), rows[row]
        assert bool(batch["relabelled"][place]) == (given >= 0)
        if given >= 0:
            assert given in rows_for_goals(strategy, row, walked)
            expected = hindsight(expected, rows["next", *ACHIEVED][given])
        found = batch[place].exclude("relabelled")
        assert (found == expected).all(), (row, given)


sizes = st.lists(st.integers(1, 5), min_size=1, max_size=6)
some_strategy = st.sampled_from(["future", "final", "episode", "random", "geometric"])


@settings(max_examples=15)
@given(writes=st.lists(sizes, min_size=1, max_size=3), cut=st.booleans(), strategy=some_strategy)
def test_batches_are_what_a_slow_loop_makes_of_a_ring(
    writes: list[list[int]], cut: bool, strategy: str
) -> None:
    """Trajectories of one row, unfinished ones, and ones that the cursor cut are among them."""
    buffer = buffer_of(size=8, strategy=strategy)
    numbers = torch.arange(100)
    for lengths in writes:
        rows = goal_rows(lengths, first=buffer.write_count, cut=[0] if cut else [])
        if cut:  # the last trajectory has no end yet
            for key in FLAGS:
                rows[key][-1] = False
        buffer.extend(rows)
        batch, info = buffer.sample(20, return_info=True)
        stored = buffer[:]
        done = stored["next", "done"].view(-1).tolist()
        cursor, is_full = buffer.storage.cursor, len(buffer) == 8
        walked = trajectories_around(done, cursor, is_full)
        assert numbers[: len(buffer)].tolist() == sorted(itertools.chain(*walked))
        check_rows(batch, info, stored, strategy, walked)


def test_batches_are_those_of_a_reference_that_draws_the_same_numbers() -> None:
    lengths = [3, 1, 5, 1, 7]
    rows = goal_rows(lengths)
    buffer = buffer_of(rows, ratio=0.5)
    generator = torch.Generator().manual_seed(7)
    walked = trajectories_around(rows["next", "done"].view(-1).tolist(), 0, False)
    for _ in range(5):
        index = torch.randint(len(rows), (64,), generator=generator)
        chance, uniform = torch.rand((2, 64), dtype=torch.float64, generator=generator)
        expected = []
        for row, luck, part in zip(index.tolist(), chance.tolist(), uniform.tolist(), strict=True):
            ahead = rows_for_goals("future", row, walked)
            goal = rows["next", *ACHIEVED][ahead[int(part * len(ahead))]]
            expected.append(hindsight(rows[row], goal) if luck < 0.5 else rows[row])
        found = buffer.sample(64)
        assert (found.exclude("relabelled") == torch.stack(expected)).all()


@pytest.mark.parametrize(
    ("kind", "format", "prefetch"),
    [
        (ReplayBuffer, "torch", 2),
        (TensorDictReplayBuffer, "torch", 0),
        (ReplayBuffer, "numpy", 0),
        (TensorDictReplayBuffer, "jax", 2),
    ],
)
def test_every_format_says_which_goals_are_new(kind: Any, format: str, prefetch: int) -> None:
    buffer = kind(
        storage=LazyTensorStorage(50),
        sampler=HERSampler(RULE, ratio=0.5),
        batch_size=16,
        prefetch=prefetch,
        seed=1,
    )
    buffer.extend(goal_rows([5, 9], dtype=torch.float32))
    buffer = buffer.with_format(format)
    batch, info = buffer.sample(return_info=True)
    goals = np.asarray(batch["observation"]["desired_goal"])
    is_new = np.asarray(batch["relabelled"])
    assert is_new.dtype == bool and 0 < is_new.sum() < 16
    assert ((goals == FAR) == ~is_new).all()
    assert ((np.asarray(info["goal_row"]) == -1) == ~is_new[:, 0]).all()
    assert (np.asarray(info["relabelled"]) == is_new).all()
    assert set(info) == {"index", "relabelled", "goal_row"}


@pytest.mark.parametrize("storage", [ListStorage, LazyStackStorage, LazyMemmapStorage])
def test_rows_in_lists_and_files_get_the_same_goals(storage: Any) -> None:
    batches = []
    for kind in (storage, LazyTensorStorage):
        buffer = ReplayBuffer(storage=kind(20), sampler=HERSampler(RULE, ratio=0.5), seed=4)
        buffer.extend(goal_rows([4, 9]))
        batches.append(buffer.sample(32))
    assert (batches[0] == batches[1]).all() and batches[0]["relabelled"].any()
    assert (buffer[:] == goal_rows([4, 9])).all()  # what is stored stays


def test_a_ratio_of_0_gives_the_batches_of_the_other_sampler_bit_for_bit() -> None:
    rows = goal_rows([4, 9])
    plain = ReplayBuffer(storage=LazyTensorStorage(20), seed=7)
    plain.extend(rows)
    buffer = buffer_of(rows, ratio=0)
    for _ in range(3):
        expected, found = plain.sample(32), buffer.sample(32)
        assert not found.pop("relabelled").any()
        assert (found == expected).all()


def test_every_row_of_an_epoch_comes_once_and_its_end_is_known() -> None:
    buffer = buffer_of(goal_rows([4, 9]), sampler=SamplerWithoutReplacement())
    buffer.batch_size = 5
    batches = list(buffer)
    reached = torch.cat([batch["next", *ACHIEVED] for batch in batches]).view(-1)
    assert reached.sort().values.tolist() == [*range(13)]
    assert torch.cat([batch["relabelled"] for batch in batches]).any()


@pytest.mark.parametrize(
    ("sampler", "prefetch"),
    [
        (RandomSampler, 0),
        (RandomSampler, 3),
        (SamplerWithoutReplacement, 3),
        (DistributedSampler, 0),
    ],
)
def test_a_state_continues_with_the_same_goals(sampler: Any, prefetch: int) -> None:
    def make() -> ReplayBuffer:
        return ReplayBuffer(
            storage=LazyTensorStorage(50),
            sampler=HERSampler(RULE, sampler=sampler()),
            batch_size=4,
            prefetch=prefetch,
            seed=1,
        )

    buffer, other = make(), make()
    buffer.extend(goal_rows([5, 9, 1, 8]))
    for _ in range(3):
        buffer.sample()
    other.load_state_dict(buffer.state_dict())
    for _ in range(5):
        assert (buffer.sample() == other.sample()).all()


def test_members_of_an_ensemble_give_goals() -> None:
    members = [buffer_of(goal_rows([5, 9], first=first), ratio=0.5) for first in (0, 100)]
    batch, info = ReplayBufferEnsemble(*members, sample_from_all=True).sample(64, return_info=True)
    assert batch["relabelled"].any() and torch.equal(batch["relabelled"], info["relabelled"])
    assert (batch[1][DESIRED][batch[1]["relabelled"]] >= 100).all()


def test_rows_written_over_give_no_goal_even_in_a_batch_made_ahead() -> None:
    buffer = ReplayBuffer(
        storage=LazyTensorStorage(6),
        sampler=HERSampler(RULE, ratio=1, strategy="random"),
        batch_size=30,
        prefetch=2,
    )
    for first in range(0, 60, 6):
        buffer.extend(goal_rows([6], first=first))
        for _ in range(2):
            batch = buffer.sample()
            for leaf in (batch["next", *ACHIEVED], batch[DESIRED]):
                assert set(leaf.view(-1).tolist()) <= {*range(first, first + 6)}


def test_goals_are_found_where_environments_stand_side_by_side() -> None:
    storage = LazyTensorStorage(40, ndim=2)
    buffer = ReplayBuffer(storage=storage, sampler=HERSampler(RULE, ratio=1), seed=2)
    rows = torch.stack([goal_rows([4, 3, 2]), goal_rows([2, 6, 1], first=100)])
    buffer.extend(rows)
    _, info = buffer.sample(200, return_info=True)
    own, given = info["index"], info["goal_row"]
    assert own.shape == given.shape == (200, 2)
    done = rows["next", "done"].squeeze(-1)
    for (step, environment), (goal_step, goal_environment) in zip(
        own.tolist(), given.tolist(), strict=True
    ):
        assert environment == goal_environment and step <= goal_step
        assert not done[environment, step:goal_step].any()


def test_the_trajectories_may_be_told_by_another_column() -> None:
    rows = goal_rows([6])
    rows["attempt"] = torch.tensor([0, 0, 1, 1, 1, 2]).unsqueeze(1)
    buffer = buffer_of(
        rows, strategy="final", ratio=1, trajectories=TrajectoryKeys(number=("attempt",))
    )
    _, info = buffer.sample(50, return_info=True)
    last = torch.tensor([1, 1, 4, 4, 4, 5])
    assert torch.equal(info["goal_row"], last[info["index"]])


# Slices


@pytest.mark.parametrize("pad", [False, True])
@pytest.mark.parametrize("truncated_key", [("next", "truncated"), "last"])
def test_rows_of_a_slice_share_a_goal_in_the_future_of_them_all(
    pad: bool, truncated_key: Any
) -> None:
    slices = SliceSampler(
        slice_len=4, strict_length=False, pad_output=pad, truncated_key=truncated_key
    )
    buffer = buffer_of(goal_rows([2, 9, 1, 4]), sampler=slices, ratio=0.5)
    end = torch.tensor([1] * 2 + [10] * 9 + [11] + [15] * 4)
    found = []
    for _ in range(20):
        batch, info = buffer.sample(16, return_info=True)
        if pad:
            assert len(batch) == 16
        begin = 0
        for stop in (info[truncated_key].view(-1).nonzero().view(-1) + 1).tolist():
            rows, goals = info["index"][begin:stop], info["goal_row"][begin:stop]
            assert (goals == goals[0]).all() and (rows.diff() == 1).all()
            assert goals[0] == -1 or rows[-1] <= goals[0] <= end[rows[-1]]
            found.append(int(goals[0]) >= 0)
            begin = stop
            while pad and begin < 16 and not info["collector", "mask"][begin]:
                assert info["goal_row"][begin] == goals[0]
                begin += 1
    assert 0 < sum(found) < len(found)


def test_the_end_of_a_slice_is_marked_beside_what_follows_from_its_goal() -> None:
    slices = SliceSampler(slice_len=3)
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(20),
        sampler=HERSampler(RULE, sampler=slices, ratio=1, strategy="final"),
    )
    buffer.extend(goal_rows([8]))
    batch = buffer.sample(30).reshape(10, 3)
    is_near = (batch["next", *ACHIEVED] - batch["next", *DESIRED]).abs() <= 1
    assert torch.equal(batch["next", "terminated"], is_near)
    assert batch["next", "truncated"][:, -1].all() and batch["next", "done"][:, -1].all()
    assert torch.equal(batch["next", "done"][:, :2], is_near[:, :2])


# Rules


def test_a_function_returns_the_reward_of_all_rows_in_one_call() -> None:
    calls = []

    def reward(achieved: Any, desired: Any, batch: TensorDict) -> torch.Tensor:
        calls.append(batch.shape)
        assert (batch[DESIRED] == desired).all() and (batch["next", *ACHIEVED] == achieved).all()
        return -(achieved - desired).abs()

    buffer = buffer_of(goal_rows([9], cut=[0]), rule=reward, ratio=0.5)
    batch = buffer.sample(32)
    distance = (batch["next", *ACHIEVED] - batch[DESIRED]).abs().float()
    is_new = batch["relabelled"]
    assert calls == [(32,)] and 0 < is_new.sum() < 32
    assert torch.equal(batch["next", "reward"], torch.where(is_new, -distance, -1.0))
    assert torch.equal(batch["next", "done"], batch["next", "truncated"])  # as they were stored


def test_success_follows_where_rows_have_it() -> None:
    rows = goal_rows([9])
    rows["next", "info", "success"] = torch.zeros(9, dtype=torch.bool)
    batch = buffer_of(rows, ratio=1).sample(64)
    is_near = (batch["next", *ACHIEVED] - batch[DESIRED]).abs() <= 1
    assert torch.equal(batch["next", "info", "success"], is_near.view(-1))


def test_goals_may_have_other_keys_and_dimensions() -> None:
    rows = TensorDict(
        {
            "state": torch.zeros(6, 2, 2),
            "goal": torch.ones(6, 2, 2),
            "next": {
                "state": torch.arange(24.0).view(6, 2, 2),
                "cost": torch.ones(6),
                "done": torch.tensor([False, False, True] * 2),
            },
        },
        [6],
    )
    buffer = buffer_of(
        rows,
        rule=GoalRule.sparse(0.1, reached=0, missed=1),
        ratio=1,
        achieved_goal_key="state",
        desired_goal_key="goal",
        reward_key=("next", "cost"),
    )
    batch, info = buffer.sample(20, return_info=True)
    assert torch.equal(batch["goal"], rows["next", "state"][info["goal_row"]])
    assert torch.equal(batch["next", "cost"] == 0, info["goal_row"] == info["index"])
    assert "goal" not in batch["next"]


# Each strategy gives goals of the steps that it names, as likely as it says.


WITHIN = [each for each in HindsightStrategy if each is not HindsightStrategy.RANDOM]
ALMOST_ONE = 1 - 2**-53
DRAWS = 2_000


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
    offsets = np.random.default_rng(0).geometric(1 - gamma, 200_000) - 1
    likely = np.bincount(offsets[offsets < 6], minlength=6)
    expected = likely / likely.sum() * found.sum()
    assert found[:3].sum() == found[9] == 0
    assert abs(chi_square_score(found[3:9], expected)) < 4


def test_geometric_with_a_gamma_of_0_is_the_step_itself() -> None:
    assert np.flatnonzero(counts("geometric", 3, gamma=0)).tolist() == [3]


@settings(max_examples=50)
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
    several = torch.stack([buffer.sample(5)["relabelled"].view(-1) for _ in range(400)])
    given = several.sum(0).numpy()
    for place in range(5):
        found = np.array([given[place], 400 - given[place]])
        assert abs(chi_square_score(found, np.array([120, 280]))) < 4


# Goals where rows go to other processes, and where other processes write rows.


MAZE = GoalRule.sparse(0.45)


@pytest.fixture
def maze(tmp_path: Path, config: Config) -> ExperienceReplay:
    id = maze_files.install(maze_files.unpack("open", tmp_path / "source"), config)
    return ExperienceReplay(
        id, sampler=HERSampler(MAZE, sampler=DistributedSampler()), batch_size=15
    )


def test_a_worker_gives_goals_and_the_next_pass_is_another_epoch(maze: ExperienceReplay) -> None:
    batches = list(BatchStream(maze).loader(num_workers=1))
    assert torch.cat([batch["index"] for batch in batches]).sort().values.tolist() == [*range(180)]
    for batch in batches:
        own, given = batch["index"] // 60, batch["goal_row"] // 60  # episodes of 60 steps
        assert torch.equal(own[given >= 0], given[given >= 0]) and batch["relabelled"].any()
    assert maze.sampler.sampler.epoch == 1  # which copies of it begin with


def test_goals_are_drawn_again_where_another_process_wrote_rows() -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(9), shared=True)
    buffer.extend(goal_rows([9]))
    sampler = HERSampler(RULE, ratio=1)
    draw = SharedDraw(buffer.storage, sampler, 30, torch.Generator())
    draw.attempt()
    buffer.extend(goal_rows([9], first=100))  # as another process does between two attempts
    draw.retry()
    _, info, rows = draw.attempt()
    sampler.relabel(rows, info)
    for goals in (rows["observation"]["desired_goal"], rows["next"]["observation"]["desired_goal"]):
        assert (goals >= 100).all()


def test_shared_rows_get_goals() -> None:
    buffer = ReplayBuffer(
        storage=LazyTensorStorage(9), sampler=HERSampler(RULE, ratio=1), shared=True
    )
    for first in (0, 9, 18):
        buffer.extend(goal_rows([4, 5], first=first))
        batch = buffer.sample(40)
        assert (batch[DESIRED] >= batch["next", *ACHIEVED]).all() and FAR not in batch[DESIRED]
