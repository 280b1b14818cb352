"""check_env_specs on an environment of two steps, each entry of which may be wrong."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDict

from datasets_cli import (
    Bounded,
    Categorical,
    Composite,
    OneHot,
    Unbounded,
    UsageError,
    check_env_specs,
)
from datasets_cli.errors import Unsupported, WrongRows

FLAG = Categorical(2, (1,), dtype=torch.bool)


class Environment:
    """Gives what its specs draw, but for the entries that are replaced."""

    def __init__(self, replaced: dict[Any, Any] | None = None, batch: tuple[int, ...] = ()) -> None:
        self.replaced = replaced or {}
        self.batch = torch.Size(batch)
        observation = Composite({"position": Bounded(-1, 1, (2,)), "arm": {"angle": Unbounded()}})
        flags = Composite(done=FLAG, terminated=FLAG, truncated=FLAG)
        self.observation_spec = observation.expand(self.batch)
        self.done_spec = flags.expand(self.batch)
        self.action_spec = OneHot(3).expand((*self.batch, 3))
        self.reward_spec = Unbounded((*self.batch, 1))
        self.seed: int | None = None

    def set_seed(self, seed: int) -> None:
        self.seed = seed

    def rollout(self, max_steps: int) -> TensorDict:
        steps = torch.stack([self.step() for _ in range(max_steps)], len(self.batch))
        for key, value in self.replaced.items():
            steps[key] = value
        return steps

    def step(self) -> TensorDict:
        after = self.observation_spec.rand().update(self.done_spec.rand())
        before = self.observation_spec.rand().update(self.done_spec.rand())
        after["reward"] = self.reward_spec.rand()
        return before.update({"action": self.action_spec.rand(), "next": after})


@pytest.mark.parametrize("batch", [(), (4,)])
def test_an_environment_that_keeps_to_its_specs_passes(batch: tuple[int, ...]) -> None:
    environment = Environment(batch=batch)
    check_env_specs(environment, seed=3)
    assert environment.seed == 3


@pytest.mark.parametrize(
    ("key", "value", "step", "expected"),
    [
        (("next", "reward"), torch.zeros(3), 0, (1,)),
        (("arm", "angle"), torch.zeros(3, 1).double(), 0, torch.float32),
        (("position",), torch.tensor([[0, 0], [0, 9.0], [0, 0]]), 1, Bounded(-1, 1, (2,))),
        (("action",), torch.zeros(3, 3, dtype=torch.bool), 0, OneHot(3)),
    ],
)
def test_an_entry_that_does_not_is_named(
    key: tuple[str, ...], value: torch.Tensor, step: int, expected: object
) -> None:
    with pytest.raises(WrongRows) as raised:
        check_env_specs(Environment({key: value}))
    error = raised.value
    assert (error.key, error.row, error.expected) == (key, step, expected)
    assert str(error).startswith(f"{'.'.join(key)} of step {step} ")


def test_an_entry_without_a_spec_is_named() -> None:
    with pytest.raises(WrongRows) as raised:
        check_env_specs(Environment({"extra": torch.zeros(3)}))
    assert raised.value.key == ("extra",) and raised.value.row is None


def test_a_missing_entry_is_named() -> None:
    environment = Environment()
    environment.observation_spec["velocity"] = Unbounded()
    environment.step = Environment().step  # type: ignore[method-assign]
    with pytest.raises(WrongRows) as raised:
        check_env_specs(environment)
    assert raised.value.key == ("next", "velocity")


def test_another_dtype_passes_without_check_dtype() -> None:
    environment = Environment({("arm", "angle"): torch.zeros(3, 1).double()})
    check_env_specs(environment, check_dtype=False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("return_contiguous", False),
        ("tensordict", TensorDict({})),
        ("break_when_any_done", False),
    ],
)
def test_steps_that_are_not_stacked_are_refused(name: str, value: Any) -> None:
    with pytest.raises(Unsupported) as raised:
        check_env_specs(Environment(), **{name: value})
    assert (raised.value.argument, raised.value.found) == (name, value)


def test_a_value_that_is_not_an_environment_is_refused() -> None:
    with pytest.raises(UsageError) as raised:
        check_env_specs(OneHot(2))
    assert (raised.value.argument, raised.value.found) == ("env", OneHot(2))


def test_an_environment_of_torchrl_passes() -> None:
    from torchrl.envs import GymEnv

    check_env_specs(GymEnv("CartPole-v1"), seed=0)
