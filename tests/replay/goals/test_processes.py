"""Goals where rows go to other processes, and where other processes write rows."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch

from datasets_cli import (
    BatchStream,
    DistributedSampler,
    ExperienceReplay,
    GoalRule,
    HERSampler,
    LazyTensorStorage,
    ReplayBuffer,
)
from datasets_cli.config import Config
from datasets_cli.replay.batches.drawing import SharedDraw
from tests.support import maze_files
from tests.support.goal_rows import ACHIEVED, DESIRED, FAR, RULE, goal_rows

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


def test_a_copy_continues_with_the_same_goals(maze: ExperienceReplay) -> None:
    maze.set_sampler(HERSampler(MAZE))
    maze.reader.use_generator(None, 3)
    maze.sample()
    copy = pickle.loads(pickle.dumps(maze))
    assert all((maze.sample() == copy.sample()).all() for _ in range(3))


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
