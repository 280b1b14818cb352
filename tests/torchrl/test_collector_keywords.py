"""Collectors: TorchRL's keywords, and TorchRL's collectors that fill our buffers."""

from __future__ import annotations

import inspect
import re
import warnings
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torchrl.data import Composite, Unbounded
from torchrl.envs import EnvBase

import datasets_cli
from datasets_cli import (
    GymEnv,
    LazyMemmapStorage,
    LazyTensorStorage,
    ReplayBuffer,
    TensorDictReplayBuffer,
    UsageError,
)
from datasets_cli.errors import Unsupported
from datasets_cli.torchrl.keywords import KEYWORDS
from tests.support import public_names
from tests.support.paths import PROJECT
from tests.support.refusals import refused

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
    unsupported = {each for each, keyword in KEYWORDS[name].items() if keyword.advice}
    section = PAGE.split("## Unsupported keywords")[1].split("\n## ")[0]
    assert unsupported <= {*re.findall(r"`(\w+)`", section)}
    ours: Any = public_names.find(name)
    for keyword in sorted(unsupported):
        with refused(Unsupported, argument=keyword):
            ours(**{keyword: object()})


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


# TorchRL's collectors of several processes, which write into a buffer of ours.


with warnings.catch_warnings():  # TorchRL's modules use what TorchRL deprecates
    warnings.simplefilter("ignore")
    from torchrl.collectors import MultiAsyncCollector, MultiSyncCollector

LENGTH, TOTAL_FRAMES = 7, 60


class Counting(EnvBase):  # type: ignore[misc]
    """Each step counts one up; a trajectory has seven."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_spec = Composite(step=Unbounded((1,), dtype=torch.int64))
        self.action_spec = Unbounded((1,))
        self.reward_spec = Unbounded((1,))
        self.count = 0

    def _reset(self, tensordict: Any = None, **_: Any) -> TensorDict:
        self.count = 0
        return TensorDict({"step": torch.zeros(1, dtype=torch.int64)}, [])

    def _step(self, tensordict: TensorDict) -> TensorDict:
        self.count += 1
        done = torch.tensor([self.count == LENGTH])
        following = {"step": torch.tensor([self.count]), "reward": torch.tensor([1.0 * self.count])}
        return TensorDict(following | {"done": done, "terminated": done.clone()}, [])

    def _set_seed(self, seed: int | None) -> None:
        torch.manual_seed(seed or 0)


@pytest.mark.filterwarnings("ignore")  # TorchRL's own
@pytest.mark.parametrize(
    ("collector", "kind"),
    [
        (MultiSyncCollector, LazyTensorStorage),
        pytest.param(MultiAsyncCollector, LazyMemmapStorage, marks=pytest.mark.slow),
    ],
)
def test_torchrls_collectors_fill_a_buffer_of_ours(
    collector: Any, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not hasattr(ReplayBuffer, "_storage"):  # which the collector asks whether it has rows
        monkeypatch.setattr(
            ReplayBuffer, "_storage", property(lambda buffer: buffer.storage), raising=False
        )
    buffer = TensorDictReplayBuffer(storage=kind(40), batch_size=8)
    filling = collector(
        [Counting, Counting],
        None,  # random actions
        frames_per_batch=20,
        total_frames=TOTAL_FRAMES,
        replay_buffer=buffer,
    )
    try:
        sizes = [len(buffer) for _ in filling]
    finally:
        filling.shutdown()
    assert len(sizes) == 3 and sizes[-1] == len(buffer) == 40  # a ring that is full
    assert buffer.shared and buffer.writer.write_count >= TOTAL_FRAMES
    rows = buffer[:]
    assert torch.equal(rows["next", "step"], rows["step"] + 1)
    assert torch.equal(rows["next", "reward"], rows["next", "step"].float())
    assert torch.equal(rows["next", "done"], rows["next", "step"] == LENGTH)
    assert set(rows["step"].flatten().tolist()) == {*range(LENGTH)}
    assert len(set(rows["collector", "traj_ids"].tolist())) > 4
