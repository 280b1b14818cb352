"""What is collected equals a loop over gymnasium with the same seeds, step by step."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from datasets_cli import GymEnv, MultiSyncCollector, ParallelEnv
from datasets_cli.environments import MultiAsyncCollector, SerialEnv
from datasets_cli.torchrl import SyncDataCollector
from tests.support.hand_written import balances, check_equal, falls, lane, lanes, policy_of
from tests.support.interpreters import preloaded
from tests.support.paths import PROJECT

ENDS = {"terminated": (falls, 500), "truncated": (balances, 30)}


def make_env(max_episode_steps: int = 500) -> GymEnv:
    return GymEnv("CartPole-v1", max_episode_steps=max_episode_steps)


def collected(environment: Any, choose: Any, frames: int) -> Any:
    """Return two batches of a collector, joined along time."""
    collector = SyncDataCollector(
        environment, policy_of(choose), frames_per_batch=frames // 2, total_frames=frames
    )
    collector.set_seed(7)
    return torch.cat([*collector], -1)


@pytest.mark.parametrize("end", ENDS)
def test_one_environment(end: str) -> None:
    choose, most = ENDS[end]
    expected = lane(7, 200, choose, max_episode_steps=most)
    assert 3 < int(expected["next", end].sum()) == int(expected["next", "done"].sum())
    check_equal(collected(make_env(most), choose, 200), expected)


@pytest.mark.parametrize("end", ENDS)
def test_four_environments(end: str) -> None:
    choose, most = ENDS[end]
    environment = SerialEnv(4, lambda: make_env(most))
    expected = lanes(4, 100, choose, seed=7, max_episode_steps=most)
    assert int(expected["next", end].sum()) == int(expected["next", "done"].sum()) > 8
    check_equal(collected(environment, choose, 400), expected)


def test_a_cut_at_a_number_of_frames_is_a_truncation_that_resets() -> None:
    collector = SyncDataCollector(
        SerialEnv(2, make_env),
        policy_of(balances),
        frames_per_batch=160,
        total_frames=160,
        max_frames_per_traj=20,
    )
    collector.set_seed(0)
    expected = lanes(2, 80, balances, max_episode_steps=20)
    batch = next(iter(collector))
    counts = torch.arange(80).remainder(20).expand(2, -1).unsqueeze(-1)
    assert torch.equal(batch.pop("step_count"), counts)
    assert torch.equal(batch.pop(("next", "step_count")), counts + 1)
    check_equal(batch, expected)


def test_a_rollout_equals_the_loop_and_stops_at_an_end() -> None:
    environment = make_env()
    environment.set_seed(3)
    whole = lane(3, 1100, falls)
    keywords = {"auto_reset": False, "break_when_any_done": False}
    check_equal(environment.rollout(1100, policy_of(falls), **keywords), whole)
    environment.set_seed(3)
    first = environment.rollout(1100, policy_of(falls), auto_reset=False)
    check_equal(first, whole[: int(whole["next", "done"].flatten().int().argmax()) + 1])


def several_processes() -> None:
    """Compare collectors whose environments, or who themselves, are in several processes."""
    for choose, most in ENDS.values():
        environment = ParallelEnv(2, lambda most=most: make_env(most))
        expected = lanes(2, 100, choose, seed=7, max_episode_steps=most)
        check_equal(collected(environment, choose, 200), expected)
    environments = [SerialEnv(2, make_env)] * 2
    keywords: Any = {"policy": policy_of(falls), "frames_per_batch": 200, "total_frames": 400}
    collector = MultiSyncCollector(environments, cat_results="stack", **keywords)
    assert collector.set_seed(0) == 4
    found = torch.cat([*collector], -1)
    check_equal(found.reshape(4, 100), lanes(4, 100, falls))
    collector.shutdown()
    collector = MultiAsyncCollector([make_env] * 2, **keywords | {"total_frames": 800})
    collector.set_seed(0)
    batches = [*collector]
    for worker in range(2):  # worker 1 has the odd numbers
        own = [each for each in batches if each["collector", "traj_ids"][0] % 2 == worker]
        check_equal(torch.cat(own, -1), lane(worker, 200 * len(own), falls))
    collector.shutdown()
    print("all equal")


def test_several_processes() -> None:
    code = "from tests.environments import test_hand_written_loop as loop; loop.several_processes()"
    done = preloaded("-c", code, folder=PROJECT)
    assert done.stdout.splitlines()[-1:] == ["all equal"], done.stderr
