"""A collector over TorchRL's environments gives the rows of TorchRL's collector."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule

import datasets_cli
from datasets_cli import UsageError

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
        set_gym_backend,
    )

pytestmark = pytest.mark.filterwarnings("ignore")  # TorchRL's own


def pendulum() -> GymEnv:
    environment = GymEnv("Pendulum-v1")
    environment.set_seed(0)
    return environment


def transformed() -> TransformedEnv:
    normed = ObservationNorm(loc=0.5, scale=2.0, in_keys=["observation"])
    steps = Compose(InitTracker(), StepCounter(30), RewardSum(), normed, DoubleToFloat())
    environment = TransformedEnv(GymEnv("Pendulum-v1"), steps)
    environment.set_seed(0)
    return environment


def cart_pole() -> TransformedEnv:
    with set_gym_backend("gymnasium"):
        return TransformedEnv(GymEnv("CartPole-v1"), StepCounter(12))


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
    collector = kind(make(), policy, **{"frames_per_batch": 60, "total_frames": 180, **arguments})
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
    assert {*ours.keys(True, True)} == {*theirs.keys(True, True)}
    assert (ours.names, ours.device) == (theirs.names, theirs.device)
    for each in (ours, theirs):  # where batches begin anew, theirs begin with 1
        each["collector", "traj_ids"] -= each["collector", "traj_ids"].min()
    for key, value in ours.items(True, True):
        assert value.dtype == theirs[key].dtype and torch.equal(value, theirs[key]), key


@pytest.mark.parametrize("make_policy", [None, linear])
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"max_frames_per_traj": 7},
        {"max_frames_per_traj": -1, "init_random_frames": -1},
        {"reset_at_each_iter": True},
        {"init_random_frames": 60},
        {"set_truncated": True},
        {"split_trajs": True},
        {"device": "cpu"},
        {"storing_device": "cpu"},
        {"postproc": lambda batch: batch.exclude("observation")},
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


def test_rows_of_environments_in_processes() -> None:
    check_same_rows(lambda: several(ParallelEnv))


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

    with pytest.raises(UsageError, match="policy's action is not in the environment's action_spec"):
        datasets_cli.Collector(pendulum(), policy, frames_per_batch=10)
    with pytest.raises(UsageError, match="policy's action is not in the environment's action_spec"):
        datasets_cli.Collector(pendulum(), lambda rows: rows, frames_per_batch=10)
