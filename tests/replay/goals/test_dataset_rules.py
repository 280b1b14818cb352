"""Rules of goals, written out, against the rewards that real environments gave."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from tensordict import TensorDictBase

from datasets_cli import (
    ExperienceReplay,
    FrameStack,
    GoalRule,
    HERSampler,
    ReplayBuffer,
    Storage,
    open_storage,
)
from datasets_cli.config import Config
from tests.support import maze_files
from tests.support.paths import TEST_DATA

D4RL_CUTS = TEST_DATA / "d4rl" / "cuts"

Maze = tuple[ExperienceReplay, dict[str, np.ndarray]]


@pytest.fixture(scope="module", params=maze_files.NAMES)
def maze(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Maze]:
    folder = tmp_path_factory.mktemp("maze")
    source = maze_files.unpack(request.param, folder / "source")
    config = Config(folder / "root")
    id = maze_files.install(source, config, "compact" if request.param == "open" else "ted")
    yield ExperienceReplay(id, root=config.root, download=False), maze_files.file_rows(source)


def expected_rewards(rule: str, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
    """As gymnasium-robotics computes them."""
    distance = np.linalg.norm(achieved - desired, axis=-1)
    return np.exp(-distance) if rule == "dense" else (distance <= 0.45).astype(np.float64)


def kind(replay: ExperienceReplay) -> str:
    return "dense" if "Dense" in replay.metadata["env_spec"] else "sparse"


def nearness(achieved: torch.Tensor, desired: torch.Tensor, batch: TensorDictBase) -> torch.Tensor:
    return (-(achieved - desired).norm(dim=-1)).exp()


def rule_of(replay: ExperienceReplay) -> GoalRule:
    terminates = '"continuing_task": false' in replay.metadata["env_spec"]
    rule = GoalRule.sparse(0.45, terminates=terminates)
    return rule if kind(replay) == "sparse" else GoalRule(nearness, rule.terminated, rule.success)


def test_rewards_worked_out_with_the_stored_goals_are_those_of_the_file(maze: Maze) -> None:
    replay, file = maze
    rows = replay[:]
    rule = rule_of(replay)
    goals = rows["next", "observation"]
    found = rule.reward(goals["achieved_goal"], goals["desired_goal"], rows)
    assert torch.equal(found, torch.from_numpy(file["reward"])) or kind(replay) == "dense"
    assert np.allclose(found, file["reward"], rtol=1e-15, atol=0)
    if rule.terminated is not None:
        reached = rule.terminated(goals["achieved_goal"], goals["desired_goal"], rows)
        assert torch.equal(reached, torch.from_numpy(file["terminated"]))


def test_without_new_goals_every_reward_is_the_one_of_the_file(maze: Maze) -> None:
    replay, file = maze
    replay.set_sampler(HERSampler(rule_of(replay), ratio=0))
    batch, info = replay.sample(500, return_info=True)
    stored = file["reward"][info["index"]]
    assert batch["next", "reward"].squeeze(1).numpy().tobytes() == stored.tobytes()


def test_rewards_of_new_goals_are_those_that_the_environment_would_give(maze: Maze) -> None:
    replay, file = maze
    replay.set_sampler(HERSampler(rule_of(replay), ratio=1))
    batch, info = replay.sample(2000, return_info=True)
    goals = file["achieved"][info["goal_row"]]
    assert np.array_equal(batch["observation", "desired_goal"], goals)
    assert np.array_equal(batch["next", "observation", "desired_goal"], goals)
    right = expected_rewards(kind(replay), file["achieved"][info["index"]], goals)
    assert np.allclose(batch["next", "reward"].squeeze(1), right, rtol=1e-15, atol=0)
    near = np.linalg.norm(file["achieved"][info["index"]] - goals, axis=-1) <= 0.45
    assert np.array_equal(batch["next", "info", "success"], near) and near.sum() > 0


def test_a_step_terminates_by_its_new_goal_only_where_goals_end_episodes(maze: Maze) -> None:
    replay, _ = maze
    replay.set_sampler(HERSampler(rule_of(replay), ratio=1, strategy="random"))
    batch, info = replay.sample(2000, return_info=True)
    terminated, truncated, done = (
        batch["next", name].squeeze(1) for name in ("terminated", "truncated", "done")
    )
    stored = replay[info["index"]]
    if '"continuing_task": false' in replay.metadata["env_spec"]:
        assert torch.equal(terminated, batch["next", "info", "success"])
    else:
        assert torch.equal(terminated, stored["next", "terminated"].squeeze(1))
    assert torch.equal(done, terminated | truncated)
    assert done[stored["next", "done"].squeeze(1)].all()  # what ended there still does


@pytest.mark.parametrize("format", ["numpy", "jax"])
def test_other_formats_have_the_same_goals(maze: Maze, format: str) -> None:
    """Rows of a dataset become arrays without a TensorDict in between."""
    replay, _ = maze
    replay.set_sampler(HERSampler(rule_of(replay)))
    replay.reader.use_generator(None, 5)
    expected = replay.sample(100)
    replay.reader.use_generator(None, 5)
    found = replay.with_format(format, cast=format == "jax").sample(100)
    for key in (("next", "reward"), ("observation", "desired_goal"), ("relabelled",)):
        leaf = functools.reduce(lambda tree, name: tree[name], key, found)
        assert np.array_equal(np.asarray(leaf), expected[key].numpy().astype(leaf.dtype))
    assert set(found) == set(expected.keys())


def in_memory(replay: ExperienceReplay) -> Storage:
    return open_storage(replay.data_path, device="cpu")


def of_stacks(replay: ExperienceReplay) -> Storage:
    return FrameStack(open_storage(replay.data_path), 3, key=("observation", "observation"))


@pytest.mark.parametrize("storage", [in_memory, of_stacks])
def test_other_storages_of_a_dataset_have_the_same_goals(maze: Maze, storage: Any) -> None:
    rule = rule_of(maze[0])
    batches = [
        ReplayBuffer(storage=each, sampler=HERSampler(rule), seed=5).sample(100)
        for each in (maze[0].storage, storage(maze[0]))
    ]
    for key in (("next", "reward"), ("observation", "desired_goal"), ("relabelled",)):
        assert torch.equal(batches[0][key], batches[1][key])


def test_goals_of_a_view_are_of_its_own_trajectories(maze: Maze) -> None:
    replay, file = maze
    replay.set_sampler(HERSampler(rule_of(replay), ratio=1, strategy="random"))
    view = replay.episodes_at([2, 0])
    batch, info = view.sample(500, return_info=True)
    offsets = replay.storage.offsets
    whole = [*range(offsets[2], offsets[3]), *range(offsets[1])]
    rows = np.array(whole)[info["goal_row"]]
    assert np.array_equal(batch["observation", "desired_goal"], file["achieved"][rows])


def test_the_goal_that_d4rls_antmaze_states_is_not_the_one_of_its_rewards() -> None:
    """So rows of it have no rule: those rewarded are farther from it than others that are not."""
    with h5py.File(D4RL_CUTS / "antmaze-medium-diverse-v0.hdf5") as file:
        apart = np.linalg.norm(file["observations"][:, :2] - file["infos/goal"][:], axis=1)
        assert file["rewards"][:].sum() == 3 and apart[file["rewards"][:] == 1].min() > 4.3
    with h5py.File(D4RL_CUTS / "antmaze-umaze-v0.hdf5") as file:
        apart = np.linalg.norm(file["observations"][:, :2] - file["infos/goal"][:], axis=1)
        assert file["rewards"][:].sum() == 0 and apart.min() < 4.3
