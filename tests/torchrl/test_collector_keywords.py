"""Every keyword of TorchRL's collectors and environments is taken at its default."""

from __future__ import annotations

import inspect
import re
import warnings
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule

import datasets_cli
from datasets_cli import GymEnv, UsageError
from datasets_cli.errors import Unsupported
from datasets_cli.torchrl.keywords import KEYWORDS
from tests.support import public_names
from tests.support.paths import PROJECT

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchrl import collectors, envs
    from torchrl.collectors import distributed

PAGE = (PROJECT / "docs" / "collectors.md").read_text(encoding="utf-8")


def make_env() -> GymEnv:
    return GymEnv("CartPole-v1")


def defaults_of(theirs: type) -> dict[str, Any]:
    parameters = inspect.signature(theirs.__init__).parameters.values()
    return {each.name: each.default for each in parameters if each.default is not each.empty}


FRAMES = {"frames_per_batch": 10, "total_frames": 10}
SINGLE = {"collector_class": "single"}  # theirs is the class
KINDS = {
    "Collector": (collectors.Collector, make_env, FRAMES),
    "MultiSyncCollector": (collectors.MultiSyncCollector, [make_env], FRAMES),
    "MultiAsyncCollector": (collectors.MultiSyncCollector, [make_env], FRAMES),
    "DistributedCollector": (distributed.DistributedCollector, [make_env], FRAMES | SINGLE),
    "RPCCollector": (distributed.RPCCollector, [make_env], FRAMES | SINGLE),
    "DistributedSyncCollector": (distributed.DistributedSyncCollector, [make_env], FRAMES | SINGLE),
    "RayCollector": (distributed.RayCollector, [make_env], FRAMES | SINGLE | {"engine": "local"}),
    "SerialEnv": (envs.SerialEnv, make_env, {"num_workers": 2}),
    "ParallelEnv": (envs.ParallelEnv, make_env, {"num_workers": 2}),
    "GymEnv": (envs.GymWrapper, None, {"env_name": "CartPole-v1"}),
}


@pytest.mark.parametrize("name", KINDS)
def test_every_keyword_is_taken_at_its_default(name: str) -> None:
    theirs, environment, given = KINDS[name]
    arguments = {**defaults_of(theirs), **given, "create_env_fn": environment}
    if name == "GymEnv":
        del arguments["create_env_fn"], arguments["env"]
        arguments |= {"from_pixels": False, "pixels_only": True, "frame_skip": None}
        arguments |= {"batch_size": None, "allow_done_after_reset": False, "device": None}
    ours: Any = public_names.find(name)
    assert arguments.keys() <= {*inspect.signature(ours).parameters}
    made = ours(**arguments)
    (made.shutdown if hasattr(made, "shutdown") else made.close)()


TABLES = (
    *("Collector", "MultiSyncCollector", "MultiAsyncCollector", "DistributedCollector"),
    *("SerialEnv", "GymEnv"),
)


@pytest.mark.parametrize("name", TABLES)
def test_what_is_asked_of_a_keyword_that_does_nothing_is_refused_and_on_the_page(name: str) -> None:
    refused = {each for each, keyword in KEYWORDS[name].items() if keyword.advice}
    section = PAGE.split("## Unsupported keywords")[1].split("\n## ")[0]
    assert refused <= {*re.findall(r"`(\w+)`", section)}
    ours: Any = public_names.find(name)
    for keyword in sorted(refused):
        with pytest.raises(Unsupported) as caught:
            ours(**{keyword: object()})
        assert caught.value.argument == keyword


def test_a_policy_may_be_made_by_a_function() -> None:
    def policy(tensordict: TensorDict) -> TensorDict:
        return tensordict.set("action", torch.tensor([0, 1]))

    (batch,) = datasets_cli.Collector(make_env, policy_factory=lambda: policy, **FRAMES)
    assert batch["action"][:, 1].all()


def test_hooks_are_called_around_a_batch() -> None:
    told: list[Any] = []
    collector = datasets_cli.Collector(
        make_env,
        pre_collect_hook=lambda: told.append("before"),
        post_collect_hook=lambda batch: told.append(len(batch)),
        **FRAMES,
    )
    assert len([*collector]) == 1 and told == ["before", 10]


def test_frames_are_rounded_up_with_a_warning() -> None:
    lanes = datasets_cli.environments.SerialEnv(3, make_env)
    with pytest.warns(UserWarning, match="frames_per_batch=10 .* 12 frames"):
        collector = datasets_cli.Collector(lanes, frames_per_batch=10)
    assert collector.next().shape == (3, 4)
    with pytest.warns(UserWarning, match="total_frames=15 .* 20 frames"):
        collector = datasets_cli.Collector(make_env, frames_per_batch=10, total_frames=15)
    assert len([*collector]) == 2


def test_one_function_makes_the_environments_of_several_processes() -> None:
    collector = datasets_cli.MultiSyncCollector(make_env, num_workers=2, **FRAMES)
    assert collector.next().shape == (2, 5)
    collector.shutdown()


def test_weights_are_named_by_keyword() -> None:
    module, other = torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)
    policy = TensorDictModule(module, ["observation"], ["action"])
    newer = TensorDictModule(other, ["observation"], ["action"])
    collector = datasets_cli.Collector(make_env, policy, check_actions=False, **FRAMES)
    collector.update_policy_weights_(policy=newer, worker_ids=None)
    assert torch.equal(module.weight, other.weight)
    with pytest.raises(UsageError, match="worker_ids"):
        collector.update_policy_weights_(newer, worker_ids=[0])
