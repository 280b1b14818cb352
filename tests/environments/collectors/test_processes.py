"""Collectors in several processes: weights, seeds, states, and processes that fail.

Each group runs in a process of its own whose workers are forks, which start at once.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule

from datasets_cli import (
    GymEnv,
    LazyTensorStorage,
    MultiSyncCollector,
    ReplayBuffer,
    RldsError,
    UsageError,
)
from datasets_cli.environments import MultiAsyncCollector
from datasets_cli.errors import WrongState
from tests.support.interpreters import preloaded
from tests.support.paths import PROJECT
from tests.support.refusals import refused


def make_env() -> GymEnv:
    return GymEnv("Pendulum-v1")


def weights_and_states() -> None:
    """One collector: random first frames, weights, a replay buffer, a state."""
    policy = TensorDictModule(torch.nn.Linear(3, 1, bias=False), ["observation"], ["action"])
    buffer = ReplayBuffer(storage=LazyTensorStorage(1000, ndim=1))
    collector = MultiSyncCollector(
        [make_env] * 2,
        policy,
        frames_per_batch=40,
        init_random_frames=40,
        replay_buffer=buffer,
        cat_results=0,
        postproc=lambda batch: batch.select("observation", "action", "collector"),
    )
    for weight in (None, 1.0, 2.0):
        if weight is not None:
            torch.nn.init.constant_(policy.module.weight, weight)
            collector.update_policy_weights_()
        collector.next()
    rows = buffer[:]
    assert rows.shape == (120,)
    expected = rows["observation"].sum(-1, keepdim=True)
    assert not torch.allclose(rows["action"][:40], expected[:40])
    assert torch.allclose(rows["action"][40:80], expected[40:80], atol=1e-5)
    assert torch.allclose(rows["action"][80:], 2 * expected[80:], atol=1e-5)
    with refused(WrongState, argument="weights", found=["weight"]):
        collector.update_policy_weights_({"weight": torch.ones(1)})
    torch.nn.init.constant_(policy.module.weight, 3.0)
    collector.update_policy_weights_()
    state = collector.state_dict()
    assert state["sources"][1]["policy"]["module.weight"].tolist() == [[3.0] * 3]
    assert state["frames"] == 120 and len(state["sources"]) == 2
    collector.load_state_dict(state)
    collector.next()
    seen = set(rows["collector", "traj_ids"].tolist())
    assert not seen & set(buffer[:]["collector", "traj_ids"][120:].tolist())
    collector.shutdown()


def random_actions_differ_and_repeat() -> None:
    """Processes draw other actions than each other, and the same ones in another collector."""
    found = []
    for _ in range(2):
        torch.manual_seed(3)
        collector = MultiSyncCollector([make_env] * 2, frames_per_batch=20)
        collector.set_seed(0, static_seed=True)
        found.append(collector.next().exclude("collector"))
        collector.shutdown()
    assert bool((found[0] == found[1]).all())
    assert torch.equal(found[0]["observation"][0, 0], found[0]["observation"][1, 0])
    assert not torch.equal(found[0]["action"][0], found[0]["action"][1])


class Failing:
    """A policy that fails at its n-th call."""

    def __init__(self, calls: int, failure: Callable[[], Any]) -> None:
        self.calls, self.failure = calls, failure

    def __call__(self, tensordict: TensorDict) -> TensorDict:
        self.calls -= 1
        if not self.calls:
            self.failure()
        return tensordict.set("action", torch.zeros(1))


def divide() -> float:
    return 1 / 0


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def failures() -> None:
    """The error of a process that fails or dies is raised here, and the other processes end."""
    with refused(UsageError, argument="create_env_fn", found="int"):
        MultiSyncCollector([lambda: 3], frames_per_batch=5)
    for failure, found, shown in (
        (divide, "ZeroDivisionError: division by zero", "in divide"),
        (die, "ended with exit code -9 before it was closed", "Collector process"),
    ):
        collector = MultiAsyncCollector([make_env] * 2, Failing(25, failure), frames_per_batch=20)
        with pytest.raises(RldsError) as raised:
            for _ in range(4):
                collector.next()
        assert raised.value.found == found and shown in str(raised.value)
        with pytest.raises(RldsError):
            collector.next()
        channels = collector._source._channels
        assert not [channel for channel in channels if channel.worker.is_alive()]


def test_weights_states_and_seeds() -> None:
    run("page.weights_and_states(); page.random_actions_differ_and_repeat()")


def test_failures_and_a_program_that_ends_without_a_shutdown() -> None:
    run("page.failures();"
        "c = page.MultiAsyncCollector([page.make_env], frames_per_batch=20, total_frames=-1);"
        "c.next()")  # fmt: skip


def run(code: str) -> str:
    """Run code in an interpreter without a main file, and return what it wrote on stderr."""
    code = (
        f"from tests.environments.collectors import test_processes as page; {code}; print('done')"
    )
    done = preloaded("-c", code, folder=PROJECT)
    assert done.stdout.splitlines()[-1:] == ["done"] and not done.returncode, done.stderr
    return done.stderr
