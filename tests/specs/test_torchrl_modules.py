"""TorchRL's actors, exploration and losses give the same with our specs as with TorchRL's."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import NormalParamExtractor, TensorDictSequential
from torch import nn

import datasets_cli as ours
from tests.support.spec_pairs import same

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchrl import envs, modules
    from torchrl.data import tensor_specs as theirs
    from torchrl.envs.utils import ExplorationType, check_env_specs, set_exploration_type

BATCH = 5


class Distribution(nn.Module):
    """The logits of seven values of each of three actions."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 21)

    def forward(self, observation: torch.Tensor) -> Any:
        return self.linear(observation).view(*observation.shape[:-1], 7, 3).log_softmax(-2)


def box(library: Any) -> Any:
    return library.Bounded(-0.5, 0.5, (2,))


def in_composite(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda library: library.Composite(action=make(library))


def safe(spec: Any) -> Any:
    keys: dict[str, Any] = {"in_keys": ["observation"], "out_keys": ["action"]}
    return modules.SafeModule(nn.Linear(4, 2), **keys, spec=spec, safe=True)


def gaussian(spec: Any) -> Any:
    net = nn.Sequential(nn.Linear(4, 4), NormalParamExtractor())
    inner = modules.SafeModule(net, in_keys=["observation"], out_keys=["loc", "scale"])
    low = spec["action"].space.low if hasattr(spec, "keys") else spec.space.low
    return modules.ProbabilisticActor(
        inner,
        in_keys=["loc", "scale"],
        spec=spec,
        distribution_class=modules.TanhNormal,
        distribution_kwargs={"low": low, "high": 0.5},
        return_log_prob=True,
        safe=True,
    )


def value() -> Any:
    return modules.ValueOperator(nn.Linear(4, 1), in_keys=["observation"])


def q_actor(spec: Any) -> Any:
    return modules.QValueActor(nn.Linear(4, 3), in_keys=["observation"], spec=spec)


def greedy(spec: Any) -> Any:
    explore = modules.EGreedyModule(spec, eps_init=0.9, annealing_num_steps=10)
    return TensorDictSequential(q_actor(spec), explore)


def masked(spec: Any) -> Any:
    keys: dict[str, Any] = {"action_mask_key": "mask"}
    actor = modules.QValueActor(nn.Linear(4, 3), in_keys=["observation"], spec=spec, **keys)
    return TensorDictSequential(actor, modules.EGreedyModule(spec, eps_init=0.9, **keys))


def tanh(spec: Any) -> Any:
    return TensorDictSequential(safe(spec), modules.TanhModule(in_keys=["action"], spec=spec))


def distributional(spec: Any) -> Any:
    support = torch.arange(7.0)
    keys: dict[str, Any] = {"in_keys": ["observation"], "support": support}
    return modules.DistributionalQValueActor(module=Distribution(), spec=spec, **keys)


def noisy(kind: Any) -> Callable[[Any], Any]:
    return lambda spec: TensorDictSequential(safe(spec), kind(spec))


BOXES: dict[str, Callable[[Any], Any]] = {
    "SafeModule": safe,
    "ProbabilisticActor": gaussian,
    "ActorCriticWrapper": lambda spec: modules.ActorCriticWrapper(gaussian(spec), value()),
    "Actor": lambda spec: modules.Actor(nn.Linear(4, 2), spec=spec, safe=True),
    "TanhModule": tanh,
    "AdditiveGaussianModule": noisy(modules.AdditiveGaussianModule),
    "OrnsteinUhlenbeck": noisy(modules.OrnsteinUhlenbeckProcessModule),
}
CHOICES: dict[str, Callable[[Any], Any]] = {
    "QValueActor": q_actor,
    "EGreedyModule": greedy,
    "masked": masked,
    "Distributional": distributional,
}


def rows(action: torch.Tensor) -> TensorDict:
    torch.manual_seed(3)
    flags = torch.zeros(BATCH, 1, dtype=torch.bool)
    after = {"observation": torch.randn(BATCH, 4), "reward": torch.randn(BATCH, 1)}
    return TensorDict(
        {
            "observation": torch.randn(BATCH, 4) * 9,
            "action": action,
            "mask": torch.tensor([[True, False, True]] * BATCH),
            "is_init": flags,
            "next": {**after, "done": flags, "terminated": flags},
        },
        [BATCH],
    )


def run(make: Callable[[Any], Any], spec: Any, action: torch.Tensor) -> TensorDict:
    """Return what a module writes, or a loss gives."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = make(spec)
        with set_exploration_type(ExplorationType.RANDOM):
            given = module(rows(action))
    return given.select(*(key for key in given.keys(True, True) if "info" not in str(key)))


@pytest.mark.parametrize("wrap", [lambda make: make, in_composite], ids=["leaf", "Composite"])
@pytest.mark.parametrize("name", BOXES)
def test_actions_between_bounds_are_the_same(name: str, wrap: Any) -> None:
    action = torch.rand(BATCH, 2) - 0.5
    mine, other = (run(BOXES[name], wrap(box)(each), action) for each in (ours, theirs))
    assert mine.keys() and same(mine, other)


KINDS: dict[str, Callable[[Any], Any]] = {
    "OneHot": lambda library: library.OneHot(3),
    "Categorical": lambda library: library.Categorical(3),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CHOICES)
def test_actions_of_categories_are_the_same(name: str, kind: str) -> None:
    make = KINDS[kind]
    action = make(theirs).rand((BATCH,))
    for spec in (make, in_composite(make)):
        mine, other = (run(CHOICES[name], spec(each), action) for each in (ours, theirs))
        assert mine.keys() and same(mine, other)


def test_a_copied_module_knows_its_specs() -> None:
    module = safe(ours.Composite(action=box(ours)))
    torch.manual_seed(0)
    expected = module(rows(torch.rand(BATCH, 2)))["action"]
    for copied in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(copied(rows(torch.rand(BATCH, 2)))["action"], expected)
        assert copied.spec == module.spec


def test_each_class_is_one_of_torchrls_of_its_name() -> None:
    names = [*KINDS, "Binary", "Composite", "MultiCategorical", "MultiOneHot", "NonTensor"]
    made = ours.specs.Binary(2), ours.Composite(), ours.MultiCategorical([2]), ours.MultiOneHot([2])
    for spec in (ours.OneHot(2), ours.Categorical(2), *made, ours.NonTensor()):
        name = type(spec).__name__
        assert name in names and isinstance(spec, getattr(theirs, name))
        assert isinstance(spec, theirs.TensorSpec) and not isinstance(spec, theirs.Stacked)
    assert not isinstance(ours.OneHot(2), theirs.Categorical | theirs.Composite)


class Walk(envs.EnvBase):
    """An environment of TorchRL's, whose specs are of one library."""

    def __init__(self, library: Any) -> None:
        super().__init__(device="cpu")
        flag = library.Categorical(2, (1,), dtype=torch.bool)
        self.observation_spec = library.Composite(
            position=library.Unbounded((3,)), sight={"far": library.Bounded(-1.0, 1.0, (2,))}
        )
        self.action_spec = library.OneHot(3)
        self.reward_spec = library.Composite(reward=library.Unbounded((1,)))
        self.done_spec = library.Composite(done=flag, terminated=flag)
        self.place = 0

    def _seen(self, is_done: bool) -> dict[str, Any]:
        flags = dict.fromkeys(("done", "terminated"), torch.tensor([is_done]))
        sight = {"far": torch.full((2,), self.place / 99)}
        return {"position": torch.full((3,), float(self.place)), "sight": sight, **flags}

    def _reset(self, tensordict: Any = None, **options: Any) -> TensorDict:
        self.place = 0
        return TensorDict(self._seen(is_done=False))

    def _step(self, tensordict: Any) -> TensorDict:
        self.place += 1 + int(tensordict["action"].int().argmax())
        return TensorDict({**self._seen(self.place > 5), "reward": torch.ones(1) * self.place})

    def _set_seed(self, seed: int | None) -> None:
        torch.manual_seed(seed or 0)


def walked(library: Any, transform: Callable[[Any], Any]) -> Any:
    environment = envs.TransformedEnv(Walk(library), transform(library))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_env_specs(environment, seed=0)
        environment.set_seed(0)
        return environment.rollout(9, break_when_any_done=False).contiguous()


TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "counted": lambda library: envs.Compose(
        envs.InitTracker(), envs.StepCounter(3), envs.RewardSum(), envs.RewardScaling(0.0, 2.0)
    ),
    "joined": lambda library: envs.CatTensors(["position", ("sight", "far")], "all"),
    "selected": lambda library: envs.SelectTransform("position"),
    "primed": lambda library: envs.TensorDictPrimer(hidden=library.Unbounded((4,))),
    "stacked": lambda library: envs.CatFrames(3, -1, ["position"]),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_an_environment_of_torchrls_has_our_specs(name: str) -> None:
    mine, other = (walked(library, TRANSFORMS[name]) for library in (ours, theirs))
    assert len(mine) == 9 and same(mine, other)
