"""Loops of the shapes of TorchRL's training scripts collect the rows of TorchRL's collector."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tensordict.nn import InteractionType, TensorDictModule, TensorDictSequential
from tensordict.nn.distributions import NormalParamExtractor

import datasets_cli
from tests.torchrl.test_torchrl_environments import check_same_batch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchrl import collectors
    from torchrl.data import OneHot
    from torchrl.envs import (
        CatTensors,
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
    from torchrl.envs.utils import ExplorationType, set_exploration_type
    from torchrl.modules import (
        MLP,
        AdditiveGaussianModule,
        BatchRenorm1d,
        EGreedyModule,
        OneHotCategorical,
        OrnsteinUhlenbeckProcessModule,
        ProbabilisticActor,
        QValueActor,
        TanhNormal,
    )

pytestmark = pytest.mark.filterwarnings("ignore")  # TorchRL's own

Program = tuple[Any, Any, dict[str, Any]]
"""An environment, a policy and what a collector takes."""


def pendulum() -> GymEnv:
    with set_gym_backend("gymnasium"):
        return GymEnv("Pendulum-v1", device="cpu")


def cart_pole() -> GymEnv:
    return GymEnv("CartPole-v1", device="cpu")


def tracked(environment: Any, *more: Any) -> TransformedEnv:
    steps = Compose(InitTracker(), StepCounter(15), DoubleToFloat(), RewardSum(), *more)
    return TransformedEnv(environment, steps)


def gaussian(network: torch.nn.Module, environment: Any, **arguments: Any) -> ProbabilisticActor:
    layers = torch.nn.Sequential(network, NormalParamExtractor())
    return ProbabilisticActor(
        TensorDictModule(layers, in_keys=["observation"], out_keys=["loc", "scale"]),
        spec=environment.action_spec_unbatched,
        in_keys=["loc", "scale"],
        distribution_class=TanhNormal,
        distribution_kwargs={"low": -2.0, "high": 2.0, "tanh_loc": False},
        **arguments,
    )


def actor() -> TensorDictModule:
    layers = torch.nn.Sequential(MLP(3, 1, num_cells=[8]), torch.nn.Tanh())
    return TensorDictModule(layers, in_keys=["observation"], out_keys=["action"])


def sac() -> Program:
    parallel = ParallelEnv(1, EnvCreator(pendulum), serial_for_single=True)
    policy = gaussian(
        MLP(3, 2, num_cells=[8]), parallel, default_interaction_type=InteractionType.RANDOM
    )
    arguments = {"init_random_frames": 20, "compile_policy": False, "cudagraph_policy": False}
    return tracked(parallel), policy, {"device": "cpu", **arguments}


def td3() -> Program:
    environment = tracked(SerialEnv(2, pendulum))
    noise = AdditiveGaussianModule(sigma_end=0.1, annealing_num_steps=100)
    policy = TensorDictSequential(actor(), noise)
    return environment, policy, {"init_random_frames": 20, "reset_at_each_iter": True}


def ddpg() -> Program:
    environment = tracked(pendulum())
    noise = OrnsteinUhlenbeckProcessModule(spec=environment.action_spec, annealing_num_steps=100)
    return environment, TensorDictSequential(actor(), noise), {"init_random_frames": 20}


def dqn() -> Program:
    environment = TransformedEnv(cart_pole(), Compose(RewardSum(), StepCounter()))
    values = QValueActor(MLP(4, 2, num_cells=[8]), in_keys=["observation"], spec=OneHot(2))
    greedy = EGreedyModule(OneHot(2), eps_init=0.5, eps_end=0.1, annealing_num_steps=100)
    arguments = {"storing_device": "cpu", "max_frames_per_traj": -1, "init_random_frames": 20}
    return environment, TensorDictSequential(values, greedy), {"device": "cpu", **arguments}


def crossq() -> Program:
    parallel = SerialEnv(2, pendulum)
    layers = torch.nn.Sequential(
        BatchRenorm1d(3, momentum=0.01, warmup_steps=10), MLP(3, 2, num_cells=[8])
    )
    return tracked(parallel), gaussian(layers, parallel).eval(), {"init_random_frames": 20}


def gail() -> Program:
    normed = ObservationNorm(loc=0.1, scale=0.5, in_keys=["observation"])
    environment = tracked(pendulum(), normed)
    policy = gaussian(MLP(3, 2, num_cells=[8]), environment, return_log_prob=True)
    return environment, policy, {"max_frames_per_traj": -1}


def discrete_sac() -> Program:
    cat = CatTensors(in_keys=["observation"], out_key="observation_vector", del_keys=False)
    environment = tracked(SerialEnv(2, cart_pole), cat)
    policy = ProbabilisticActor(
        TensorDictModule(MLP(4, 2, num_cells=[8]), ["observation_vector"], ["logits"]),
        spec=environment.action_spec_unbatched,
        in_keys=["logits"],
        distribution_class=OneHotCategorical,
        default_interaction_type=InteractionType.RANDOM,
    )
    return environment, policy, {"init_random_frames": 20, "reset_at_each_iter": False}


def collected(kind: Any, make: Callable[[], Program]) -> list[Any]:
    """Return the batches of a loop, in which the weights and the exploration change."""
    torch.manual_seed(0)
    environment, policy, arguments = make()
    environment.set_seed(0)
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        collector = kind(environment, policy, frames_per_batch=20, total_frames=80, **arguments)
    batches = []
    for batch in collector:
        batches.append(batch)
        for weight in policy.parameters():
            weight.data += torch.randn_like(weight) / 10
        for module in policy.modules():
            if hasattr(module, "step"):
                module.step(20)
        collector.update_policy_weights_()
    collector.shutdown()
    return batches


@pytest.mark.parametrize("make", [sac, td3, ddpg, dqn, crossq, gail, discrete_sac])
def test_rows_are_those_of_torchrls_collector(make: Callable[[], Program]) -> None:
    ours, theirs = (
        collected(each, make) for each in (datasets_cli.Collector, collectors.Collector)
    )
    assert len(ours) == len(theirs) == 4
    for mine, other in zip(ours, theirs, strict=True):
        check_same_batch(mine, other)
