"""What the programs have in common: TorchRL's environments, networks and steps of learning."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.envs import (
    Compose,
    DoubleToFloat,
    EnvBase,
    GymWrapper,
    InitTracker,
    RewardSum,
    StepCounter,
    TransformedEnv,
    set_gym_backend,
)
from torchrl.envs.libs.gym import GymEnv
from torchrl.modules import MLP, ProbabilisticActor, QValueActor, TanhNormal, ValueOperator
from torchrl.modules.distributions import NormalParamExtractor, OneHotCategorical, TanhDelta

SEED = 5
DATASET = "door-human-v0"  # 39 numbers are observed, 28 are done
Losses = list[float]


class Door(gymnasium.Env):  # type: ignore[type-arg]
    """What the dataset's rows could be of, so that a policy for them can be evaluated."""

    observation_space = spaces.Box(-np.inf, np.inf, (39,))
    action_space = spaces.Box(-1, 1, (28,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.state = self.np_random.normal(size=39).astype(np.float32)
        return self.state, {}

    def step(self, action: Any) -> Any:
        self.state = (0.9 * self.state).astype(np.float32)
        self.state[:28] += 0.1 * action
        return self.state, -float(np.square(self.state).sum()), False, False, {}


def make_env(name: str, *more: Any, max_steps: int | None = 20) -> TransformedEnv:
    """An environment as the scripts make it: trajectories have a first row, a length, a return."""
    with set_gym_backend("gymnasium"):
        env: EnvBase = GymWrapper(Door()) if name == "Door" else GymEnv(name)
    counter = (StepCounter(max_steps),) if max_steps else ()
    return TransformedEnv(
        env, Compose(InitTracker(), *counter, DoubleToFloat(), RewardSum(), *more)
    )


def gaussian_actor(spec: Any, size: int, **words: Any) -> ProbabilisticActor:
    """A policy of bounded actions whose bounds are the spec's, for this many observed numbers."""
    bounds = spec["action"].space
    network = nn.Sequential(
        MLP(size, 2 * spec["action"].shape[-1], num_cells=[16]), NormalParamExtractor()
    )
    return ProbabilisticActor(
        module=TensorDictModule(network, ["observation"], ["loc", "scale"]),
        in_keys=["loc", "scale"],
        spec=spec,
        distribution_class=TanhNormal,
        distribution_kwargs={"low": bounds.low, "high": bounds.high, "tanh_loc": False},
        **words,
    )


def exact_actor(spec: Any, size: int) -> ProbabilisticActor:
    """A policy that always does the same."""
    bounds = spec["action"].space
    return ProbabilisticActor(
        module=TensorDictModule(
            MLP(size, spec["action"].shape[-1], num_cells=[16]), ["observation"], ["param"]
        ),
        in_keys=["param"],
        spec=spec,
        distribution_class=TanhDelta,
        distribution_kwargs={"low": bounds.low, "high": bounds.high},
    )


def categorical_actor(spec: Any, size: int) -> ProbabilisticActor:
    """A policy over categories, which draws one-hot vectors."""
    network = MLP(size, spec["action"].space.n, num_cells=[16])
    return ProbabilisticActor(
        module=TensorDictModule(network, ["observation"], ["logits"]),
        in_keys=["logits"],
        spec=spec,
        distribution_class=OneHotCategorical,
    )


def value(size: int, *keys: str, out: int = 1, out_key: str | None = None) -> ValueOperator:
    """A value of the entries, which have this many numbers together."""
    names = {"out_keys": [out_key]} if out_key else {}
    return ValueOperator(Joined(size, out), in_keys=list(keys), **names)


def q_actor(spec: Any, size: int) -> QValueActor:
    """A value for each category, and the best one as the action."""
    network = MLP(size, spec["action"].space.n, num_cells=[16])
    return QValueActor(module=network, spec=spec, in_keys=["observation"])


class Joined(nn.Module):
    """A network of several inputs, which are put side by side."""

    def __init__(self, size: int, out: int, *last: nn.Module) -> None:
        super().__init__()
        self.network = nn.Sequential(MLP(size, out, num_cells=[16]), *last)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.network(torch.cat(inputs, -1))


class Attention(nn.Module):
    """A causal transformer of states, actions and returns ``[B, T, ...]``.

    It stands for TorchRL's own, which needs the package transformers.
    """

    def __init__(self, state: int, action: int, out: int, *last: nn.Module) -> None:
        super().__init__()
        self.embed = nn.Linear(state + action + 1, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Sequential(nn.Linear(16, out), *last)

    def forward(self, state: torch.Tensor, action: torch.Tensor, rest: torch.Tensor) -> Any:
        past = nn.functional.pad(action, (0, 0, 1, -1))  # the action of a step is not its input
        mask = nn.Transformer.generate_square_subsequent_mask(state.shape[-2])
        steps = self.embed(torch.cat([state, past, rest], -1))
        return self.head(self.layer(steps, mask, is_causal=True))


class Learner:
    """An optimizer of a loss module, the updates of its targets, and what the losses were."""

    def __init__(self, loss: nn.Module, *updaters: Any, of: nn.Module | None = None) -> None:
        self.loss, self.updaters = loss, updaters
        learnt = [weight for weight in (of or loss).parameters() if weight.requires_grad]
        self.optimizer = torch.optim.Adam(learnt, 1e-3)
        self.losses: Losses = []

    def learn(self, batch: Any) -> Any:
        """Make one step with a batch; return what the loss module gave."""
        given = self.loss(batch)
        losses = given[0] if isinstance(given, tuple) else given
        total = sum(losses[key] for key in losses.keys() if key.startswith("loss")).sum()  # noqa: SIM118
        self.optimizer.zero_grad()
        total.backward()
        self.optimizer.step()
        for updater in self.updaters:
            updater.step()
        self.losses.append(float(total))
        return given


def use_quietly(main: Callable[[], Losses]) -> Losses:
    """Run a program with the seeds set; return its losses, which are finite."""
    torch.manual_seed(SEED)
    np.random.seed(SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        losses = main()
    assert losses and all(map(math.isfinite, losses)), losses
    return losses
