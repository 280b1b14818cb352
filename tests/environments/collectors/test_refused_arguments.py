"""What collectors refuse, and why."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from datasets_cli import Collector, GymEnv, MultiSyncCollector, UsageError


def make_env() -> GymEnv:
    return GymEnv("CartPole-v1")


def collector_of(environment: Any = make_env, policy: Any = None, **arguments: Any) -> Collector:
    given = {"frames_per_batch": 40, "total_frames": 80, **arguments}
    return Collector(environment, policy, **given)


def renames(tensordict: TensorDict) -> TensorDict:
    return tensordict.set("observation", torch.zeros(4)).set("action", torch.tensor([1, 0]))


def below_next(tensordict: TensorDict) -> TensorDict:
    return tensordict.set("action", torch.tensor([1, 0])).set(("next", "hidden"), torch.zeros(1))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"frames_per_batch": 0}, "frames_per_batch"),
        ({"total_frames": 0}, "or -1 for no end"),
        ({"max_frames_per_traj": -2}, "max_frames_per_traj"),
        ({"init_random_frames": 1.5}, "init_random_frames"),
        ({"environment": "CartPole-v1"}, "takes an environment"),
        ({"environment": lambda: 3}, "not 3"),
        ({"environment": make_env(), "create_env_kwargs": {"a": 1}}, "made already"),
        ({"policy": 3}, "policy is 3"),
        ({"policy": lambda _: None}, "The policy returned NoneType"),
        ({"policy": lambda tensordict: tensordict}, "the policy gave nothing"),
        ({"policy": lambda _: torch.tensor([0.7, 0.3])}, "not in the environment's action_spec"),
        ({"policy": lambda _: torch.tensor(1)}, r"shape \[2\]"),
        ({"policy": renames}, "another tensor at"),
        ({"policy": below_next}, "below 'next'"),
        ({"postproc": 3}, "postproc must be a function"),
        ({"replay_buffer": 3}, "replay_buffer must be a buffer"),
        ({"exploration_type": "bold"}, "exploration_type is one of"),
        ({"return_same_td": True}, "its own memory"),
        ({"env_device": "cuda"}, "on the processor"),
        ({"extend_buffer": False}, "whole batches"),
    ],
)
def test_what_cannot_be_done_is_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        collector_of(**arguments)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"create_env_fn": make_env}, "takes a list"),
        ({"create_env_fn": []}, "takes a list"),
        ({"cat_results": "heap"}, "'stack' or a dimension"),
        ({"create_env_kwargs": [{}]}, "each of 2 processes, not 1"),
        ({"create_env_fn": [3, make_env]}, "Process 0 has 3"),
    ],
)
def test_what_several_processes_cannot_do_is_refused(arguments: Any, said: str) -> None:
    given = {"create_env_fn": [make_env] * 2, "frames_per_batch": 40, **arguments}
    with pytest.raises(UsageError, match=said):
        MultiSyncCollector(**given)


def test_a_policy_writes_the_same_entries_in_each_step() -> None:
    calls = []

    def policy(tensordict: TensorDict) -> TensorDict:
        calls.append(1)
        tensordict["extra" if len(calls) < 5 else "other"] = torch.zeros(1)
        return tensordict.set("action", torch.tensor([1, 0]))

    with pytest.raises(UsageError, match="Every row has the same entries"):
        collector_of(policy=policy).next()


@pytest.mark.parametrize("later", [[0, 0], [1, 1], [0, 5]])
def test_an_action_of_no_category_is_refused_in_each_step(later: list[int]) -> None:
    actions = iter([[1, 0]] * 5)

    def policy(tensordict: TensorDict) -> TensorDict:
        return tensordict.set("action", torch.tensor(next(actions, later)))

    with pytest.raises(UsageError, match="is not in the environment's action_spec"):
        collector_of(policy=policy).next()


def test_what_to_install_is_said_where_gymnasium_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = "datasets_cli.core.gymnasium_extra"
    monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(UsageError, match=r"pip install 'rlds-cli\[collect\]'"):
        importlib.import_module(module)
