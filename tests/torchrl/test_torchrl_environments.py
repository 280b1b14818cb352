"""A collector over TorchRL's environments gives the rows of TorchRL's collector."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tensordict import NonTensorData, TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential

import datasets_cli
from datasets_cli.errors import Unsupported, WrongRows
from tests.support.interpreters import preloaded
from tests.support.paths import PROJECT
from tests.support.refusals import refused

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchrl import collectors
    from torchrl.envs import (
        Compose,
        DoubleToFloat,
        EnvCreator,
        GymEnv,
        InitTracker,
        ObservationNorm,
        ParallelEnv,
        RewardSum,
        SerialEnv,
        StepCounter,
        TransformedEnv,
        VecNorm,
        set_gym_backend,
    )
    from torchrl.modules import AdditiveGaussianModule, LSTMModule, RandomPolicy
    from torchrl.testing.mocking_classes import CountingEnv, EnvWithMetadata, NestedCountingEnv

pytestmark = pytest.mark.filterwarnings("ignore")  # TorchRL's own


def pendulum() -> GymEnv:
    environment = GymEnv("Pendulum-v1")
    environment.set_seed(0)
    return environment


def transformed() -> TransformedEnv:
    normed = ObservationNorm(loc=0.5, scale=2.0, in_keys=["observation"])
    steps = Compose(InitTracker(), StepCounter(15), RewardSum(), normed, DoubleToFloat())
    environment = TransformedEnv(GymEnv("Pendulum-v1"), steps)
    environment.set_seed(0)
    return environment


def cart_pole() -> TransformedEnv:
    with set_gym_backend("gymnasium"):
        return TransformedEnv(GymEnv("CartPole-v1"), StepCounter(12))


def two_lanes() -> SerialEnv:
    return SerialEnv(2, transformed)


def several(kind: type = SerialEnv) -> Any:
    environment = kind(3, EnvCreator(cart_pole))
    environment.set_seed(0)
    return environment


def linear() -> TensorDictModule:
    torch.manual_seed(1)
    return TensorDictModule(torch.nn.Linear(3, 1), ["observation"], ["action"])


def batches(kind: Any, make: Callable[[], Any], make_policy: Any, arguments: Any) -> list[Any]:
    torch.manual_seed(0)
    policy = make_policy() if make_policy else None
    collector = kind(make(), policy, **{"frames_per_batch": 24, "total_frames": 72, **arguments})
    collected = [*collector]
    collector.shutdown()
    return collected


def check_same_rows(make: Any, make_policy: Any = None, **arguments: Any) -> None:
    ours = batches(datasets_cli.Collector, make, make_policy, arguments)
    theirs = batches(collectors.Collector, make, make_policy, arguments)
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        check_same_batch(mine, other)


def check_same_batch(ours: TensorDict, theirs: TensorDict) -> None:
    assert {*ours.keys(True)} == {*theirs.keys(True)}
    assert (ours.names, ours.device) == (theirs.names, theirs.device)
    for each in (ours, theirs):  # where batches begin anew, theirs begin with 1
        each["collector", "traj_ids"] -= each["collector", "traj_ids"].min()
    for key, value in ours.items(True, True):
        assert value.dtype == theirs[key].dtype and torch.equal(value, theirs[key]), key


@pytest.mark.parametrize(
    ("make_policy", "arguments"),
    [
        (None, {}),
        (linear, {}),
        (linear, {"max_frames_per_traj": 7}),
        (None, {"max_frames_per_traj": -1, "init_random_frames": -1}),
        (None, {"reset_at_each_iter": True}),
        (linear, {"init_random_frames": 24}),
        (linear, {"set_truncated": True}),
        (None, {"split_trajs": True}),
        (linear, {"device": "cpu"}),
        (None, {"storing_device": "cpu"}),
        (linear, {"postproc": lambda batch: batch.exclude("observation")}),
    ],
)
def test_rows_of_one_environment(make_policy: Any, arguments: dict[str, Any]) -> None:
    check_same_rows(pendulum, make_policy, **arguments)


@pytest.mark.parametrize("arguments", [{}, {"reset_at_each_iter": True}])
def test_rows_of_a_transformed_environment(arguments: dict[str, Any]) -> None:
    check_same_rows(transformed, linear, **arguments)


@pytest.mark.parametrize("arguments", [{}, {"set_truncated": True}])
def test_rows_of_environments_side_by_side(arguments: dict[str, Any]) -> None:
    check_same_rows(several, **arguments)


def test_rows_of_environments_side_by_side_whose_trajectories_are_cut() -> None:
    def make() -> SerialEnv:
        environment = SerialEnv(3, lambda: GymEnv("CartPole-v1"))
        environment.set_seed(0)
        return environment

    check_same_rows(make, max_frames_per_traj=7)


@pytest.mark.slow
def test_rows_of_environments_in_processes() -> None:
    check_same_rows(lambda: several(ParallelEnv))


class ByName(torch.nn.Module):
    """A module of two entries, by the names of its arguments."""

    def forward(self, observation: torch.Tensor, step_count: torch.Tensor) -> torch.Tensor:
        return observation.sum(-1, keepdim=True) / 10 + step_count


def by_function(tensordict: TensorDict) -> TensorDict:
    return tensordict.set("action", tensordict["observation"].sum(-1, keepdim=True))


def that_overwrites(tensordict: TensorDict) -> TensorDict:
    return by_function(tensordict.set("observation", tensordict["observation"] + 1))


def that_explores() -> TensorDictSequential:
    noise = AdditiveGaussianModule(sigma_end=0.1, annealing_num_steps=100)  # it gets the spec
    return TensorDictSequential(linear(), noise)


POLICIES = [RandomPolicy, ByName, that_explores, lambda: by_function, lambda: that_overwrites]


@pytest.mark.parametrize("policy", POLICIES)
def test_rows_of_policies_of_each_kind(policy: Any) -> None:
    check_same_rows(lambda: TransformedEnv(pendulum(), StepCounter(9)), policy)


def test_rows_of_a_policy_that_remembers() -> None:
    recurrent = LSTMModule(3, 4, in_key="observation", out_key="memory")
    action = TensorDictModule(torch.nn.Linear(4, 1), ["memory"], ["action"])

    def make() -> TransformedEnv:
        primer = recurrent.make_tensordict_primer()
        return TransformedEnv(pendulum(), Compose(InitTracker(), StepCounter(7), primer))

    check_same_rows(make, lambda: TensorDictSequential(recurrent, action))


def test_rows_of_an_environment_with_nested_flags() -> None:
    check_same_rows(lambda: NestedCountingEnv(max_steps=5))


def test_a_cut_is_truncated_where_the_environment_has_no_such_flag() -> None:
    check_same_rows(lambda: CountingEnv(max_steps=50), max_frames_per_traj=7)
    with refused(Unsupported, argument="set_truncated"):
        check_same_rows(CountingEnv, set_truncated=True)


def test_the_state_has_that_of_the_environments_transforms() -> None:
    first, second = (TransformedEnv(pendulum(), VecNorm(["observation"])) for _ in range(2))
    states = []
    for environment in (first, second):
        collector = datasets_cli.Collector(environment, frames_per_batch=10, total_frames=20)
        collector.next()
        states.append(collector.state_dict())
    counted = states[0]["sources"][0]["environment"]["_extra_state"]["observation_count"].clone()
    collector.load_state_dict(states[0])
    assert environment.state_dict()["_extra_state"]["observation_count"] > counted
    assert collector.next() is not None and not [*collector]


def test_rows_of_a_replay_buffer() -> None:
    stored = []
    for kind in (datasets_cli.Collector, collectors.Collector):
        buffer = datasets_cli.ReplayBuffer(storage=datasets_cli.LazyTensorStorage(72))
        arguments = {"replay_buffer": buffer, "init_random_frames": 24}
        assert batches(kind, pendulum, linear, arguments) == [None] * 3
        stored.append(buffer[:])
    check_same_batch(*stored)


def collected(kind: type, environments: list[Any]) -> list[Any]:
    """Return the batches of several processes, which get new weights after each."""
    policy = linear()
    collector = kind(environments, policy, frames_per_batch=24, total_frames=48)
    batches = []
    for batch in collector:
        batches.append(batch.clone())
        batches[-1]["collector", "traj_ids"].zero_()  # theirs count those of all processes
        policy.module.weight.data += 1
        collector.update_policy_weights_()
    collector.shutdown()
    return batches


def test_entries_that_are_no_tensors_are_in_the_rows() -> None:
    check_same_rows(EnvWithMetadata)


def test_what_a_policy_says_in_words_is_in_the_rows() -> None:
    def policy(tensordict: TensorDict) -> TensorDict:
        return by_function(tensordict).set("thought", NonTensorData("push"))

    batch = datasets_cli.Collector(pendulum(), policy, frames_per_batch=3).next()
    assert [*batch["thought"]] == ["push"] * 3 and batch["action"].shape == (3, 1)
    own = datasets_cli.GymEnv("Pendulum-v1")
    with refused(WrongRows, key=("thought",), found="NonTensorData"):
        datasets_cli.Collector(own, policy, frames_per_batch=3)


def several_processes() -> None:
    """Compare the rows of collectors in two processes."""
    for environments in ([transformed, EnvCreator(transformed)], [two_lanes] * 2):
        ours = collected(datasets_cli.MultiSyncCollector, environments)
        theirs = collected(collectors.MultiSyncCollector, environments)
        for mine, other in zip(ours, theirs, strict=True):
            check_same_batch(mine, other)
    texts = datasets_cli.MultiSyncCollector([EnvWithMetadata] * 2, frames_per_batch=6)
    assert texts.next().get("non_tensor").tolist() == [[0, 1, 2]] * 2
    texts.shutdown()
    print("all equal")


@pytest.mark.slow
def test_rows_of_several_processes() -> None:
    code = """
import torch
torch.set_num_threads(1)
torch.multiprocessing.set_start_method("fork")
from tests.torchrl import test_torchrl_environments as page
page.several_processes()
"""
    done = preloaded("-c", code, folder=PROJECT)
    assert done.stdout.splitlines()[-1:] == ["all equal"], done.stderr


class Counter:
    """An environment by its methods alone; its trajectories have three steps."""

    batch_size = torch.Size([2])
    action_spec = datasets_cli.Unbounded((2, 1))

    def set_seed(self, seed: int, static_seed: bool = False) -> int:
        return seed + 1

    def reset(self, tensordict: TensorDict | None = None) -> TensorDict:
        over = torch.ones(2, 1, dtype=torch.bool) if tensordict is None else tensordict["_reset"]
        before = torch.zeros(2, 1) if tensordict is None else tensordict["count"]
        return TensorDict({"count": before.masked_fill(over, 0), "done": over & False}, [2])

    def step(self, tensordict: TensorDict) -> TensorDict:
        count = tensordict["count"] + 1
        following = {"count": count, "reward": tensordict["action"], "done": count == 3}
        return tensordict.set("next", TensorDict(following, [2]))


def test_an_environment_is_what_has_the_methods() -> None:
    collector = datasets_cli.Collector(Counter(), frames_per_batch=10, total_frames=10)
    (batch,) = collector
    assert batch["count"][1, :, 0].tolist() == [0, 1, 2, 0, 1]
    assert batch["next", "count"][1, :, 0].tolist() == [1, 2, 3, 1, 2]
    assert batch["collector", "traj_ids"].tolist() == [[0, 0, 0, 2, 2], [1, 1, 1, 3, 3]]
    collector.shutdown()


def test_what_is_not_an_action_is_refused() -> None:
    def policy(tensordict: TensorDict) -> TensorDict:
        return tensordict.set("action", torch.full((1,), torch.nan))

    with refused(WrongRows, key=("action",)):
        datasets_cli.Collector(pendulum(), policy, frames_per_batch=10)
    with refused(WrongRows, key=("action",)):
        datasets_cli.Collector(pendulum(), lambda rows: rows, frames_per_batch=10)
