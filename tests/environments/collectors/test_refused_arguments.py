"""Invalid arguments and policies of collectors."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from datasets_cli import Collector, GymEnv, MultiSyncCollector, UsageError
from datasets_cli.errors import Unsupported, WrongRows, install_extra
from tests.support.refusals import refused


def make_env() -> GymEnv:
    return GymEnv("CartPole-v1")


def collector_of(environment: Any = make_env, policy: Any = None, **arguments: Any) -> Collector:
    return Collector(
        environment, policy, **{"frames_per_batch": 40, "total_frames": 80, **arguments}
    )


def renames(tensordict: TensorDict) -> TensorDict:
    return tensordict.set("observation", torch.zeros(4)).set("action", torch.tensor([1, 0]))


def below_next(tensordict: TensorDict) -> TensorDict:
    return tensordict.set("action", torch.tensor([1, 0])).set(("next", "hidden"), torch.zeros(1))


@pytest.mark.parametrize(
    ("arguments", "argument", "found"),
    [
        ({"frames_per_batch": 0}, "frames_per_batch", 0),
        ({"total_frames": 0}, "total_frames", 0),
        ({"max_frames_per_traj": -2}, "max_frames_per_traj", -2),
        ({"init_random_frames": 1.5}, "init_random_frames", 1.5),
        ({"environment": "CartPole-v1"}, "create_env_fn", "str"),
        ({"environment": lambda: 3}, "create_env_fn", "int"),
        ({"environment": make_env(), "create_env_kwargs": {"a": 1}}, "create_env_kwargs", ["a"]),
        ({"policy": 3}, "policy", 3),
        ({"policy": lambda _: None}, "policy", "NoneType"),
        ({"postproc": 3}, "postproc", 3),
        ({"pre_collect_hook": 3}, "pre_collect_hook", 3),
        ({"replay_buffer": 3}, "replay_buffer", 3),
        ({"exploration_type": "bold"}, "exploration_type", "bold"),
        ({"return_same_td": True}, "return_same_td", True),
        ({"env_device": "cuda"}, "env_device", "cuda"),
        ({"extend_buffer": False}, "extend_buffer", False),
    ],
)
def test_invalid_arguments_are_refused_by_name(
    arguments: dict[str, Any], argument: str, found: Any
) -> None:
    with refused(UsageError, argument=argument, found=found):
        collector_of(**arguments)


@pytest.mark.parametrize(
    ("policy", "error", "key"),
    [
        (lambda tensordict: tensordict, WrongRows, ("action",)),
        (lambda _: torch.tensor([0.7, 0.3]), WrongRows, ("action",)),
        (lambda _: torch.tensor(1), WrongRows, ("action",)),
        (renames, UsageError, ("observation",)),
        (below_next, UsageError, ("next", "hidden")),
    ],
)
def test_a_policy_that_writes_a_wrong_entry_is_refused(policy: Any, error: Any, key: Any) -> None:
    with refused(error, key=key):
        collector_of(policy=policy)


@pytest.mark.parametrize(
    ("arguments", "argument", "found"),
    [
        ({"create_env_fn": make_env}, "create_env_fn", make_env),
        ({"create_env_fn": []}, "create_env_fn", []),
        ({"create_env_fn": [3, make_env]}, "create_env_fn", 3),
        ({"cat_results": "heap"}, "cat_results", "heap"),
        ({"create_env_kwargs": [{}]}, "create_env_kwargs", 1),
        ({"num_workers": 3}, "num_workers", 3),
    ],
)
def test_invalid_arguments_of_several_processes_are_refused(
    arguments: Any, argument: str, found: Any
) -> None:
    options = {"create_env_fn": [make_env] * 2, "frames_per_batch": 40, **arguments}
    with refused(UsageError, argument=argument, found=found):
        MultiSyncCollector(**options)


def test_weights_of_some_processes_are_unsupported() -> None:
    with refused(Unsupported, argument="worker_ids", found=[0]):
        collector_of().update_policy_weights_(worker_ids=[0])


def test_a_policy_writes_the_same_entries_in_each_step() -> None:
    calls = []

    def policy(tensordict: TensorDict) -> TensorDict:
        calls.append(1)
        tensordict["extra" if len(calls) < 5 else "other"] = torch.zeros(1)
        return tensordict.set("action", torch.tensor([1, 0]))

    with pytest.raises(WrongRows) as raised:
        collector_of(policy=policy).next()
    forms = raised.value.expected, raised.value.found
    assert [sorted(each) for each in forms] == [["action", "extra"], ["action", "other"]]


@pytest.mark.parametrize("later", [[0, 0], [1, 1], [0, 5]])
def test_an_action_outside_the_categories_is_refused_in_each_step(later: list[int]) -> None:
    actions = iter([[1, 0]] * 5)

    def policy(tensordict: TensorDict) -> TensorDict:
        return tensordict.set("action", torch.tensor(next(actions, later)))

    with refused(WrongRows, key=("action",), row=4, found=later):
        collector_of(policy=policy).next()


def test_without_gymnasium_the_error_names_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = "datasets_cli.core.gymnasium_extra"
    monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with refused(UsageError, expected="gymnasium", advice=install_extra("collect")):
        importlib.import_module(module)
