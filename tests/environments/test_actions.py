"""Actions are checked once, before an environment takes them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict

from datasets_cli import Collector, GymEnv, UsageError
from datasets_cli.environments import SerialEnv
from datasets_cli.errors import WrongRows
from tests.support.refusals import refused

NAN, INF = float("nan"), float("inf")
FLOATS = spaces.Box(-2, 2, (2,), np.float32)
FREE = spaces.Box(-np.inf, np.inf, (2,), np.float32)
BYTES = spaces.Box(0, 100, (1,), np.uint8)
PAIR = spaces.MultiDiscrete([2, 3])
REFUSED: list[tuple[spaces.Space[Any], bool, list[Any]]] = [
    (
        spaces.Discrete(2),
        True,
        [[1, 1], [0, 0], [1, -1], [2, 0], [0.7, 0.3], [True, True], [NAN, 1]],
    ),
    (spaces.Discrete(2, start=5), False, [2, 7, -1, 5.5, NAN]),
    (PAIR, True, [[1, 0, 1, 1, 0], [1, 1, 1, 0, 0], [0, 0, 1, 1, 0]]),
    (PAIR, False, [[2, 0], [0, 3], [-1, 0]]),
    (spaces.MultiBinary(2), False, [[2, 0], [0.5, 0]]),
    (FLOATS, False, [[NAN, 0], [0, INF], [0, -INF]]),
    (FREE, False, [[NAN, 0], [0, INF], np.array([1e300, 0])]),
    (BYTES, False, [[300], [-1], [5.5]]),
]
TAKEN: list[tuple[spaces.Space[Any], bool, list[Any]]] = [
    (spaces.Discrete(2), True, [[1, 0], [0.0, 1.0], [True, False]]),
    (spaces.Discrete(2, start=5), False, [5, 6.0]),
    (PAIR, True, [[0, 1, 0, 0, 1]]),
    (PAIR, False, [[1, 2]]),
    (spaces.MultiBinary(2), False, [[1, 0], [True, True]]),
    (FLOATS, False, [[2 + 3e-6, -2 - 3e-6], [1, -2]]),
    (FREE, False, [[1e30, -1e30]]),
    (BYTES, False, [[100], [0]]),
    (spaces.Box(0, 1, (1,), np.bool_), False, [[True], [0]]),
]


class Taker(gymnasium.Env[np.ndarray, Any]):
    """Keeps the actions that it took."""

    observation_space = spaces.Box(0, 1, (1,))

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.action_space = space
        self.taken: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.taken.append(action)
        return np.zeros(1, np.float32), 0.0, False, False, {}


def pairs(table: list[Any]) -> list[Any]:
    return [(space, one_hot, action) for space, one_hot, actions in table for action in actions]


@pytest.mark.parametrize(("space", "one_hot", "action"), pairs(REFUSED))
def test_an_invalid_action_is_refused_before_the_step(
    space: Any, one_hot: bool, action: Any
) -> None:
    taker = Taker(space)
    environment = GymEnv(taker, categorical_action_encoding=not one_hot)
    root = environment.reset()
    for _ in range(3):
        environment.rand_step(root)
    with refused(WrongRows, key=("action",), row=3, expected=str(space)):
        environment.step(root.set("action", torch.as_tensor(action)))
    assert len(taker.taken) == 3


@pytest.mark.parametrize(("space", "one_hot", "action"), pairs(TAKEN))
def test_a_valid_action_is_accepted_without_a_warning(
    space: Any, one_hot: bool, action: Any
) -> None:
    taker = Taker(space)
    environment = GymEnv(taker, categorical_action_encoding=not one_hot)
    root = environment.reset()
    environment.step(root.set("action", torch.as_tensor(action)))
    assert space.contains(taker.taken[0]) or space == FLOATS
    environment.close()  # would warn


def pushes(*values: float) -> Callable[[TensorDict], TensorDict]:
    """Return a policy of Pendulum that gives lanes these actions, again and again."""
    return lambda rows: rows.set("action", torch.tensor(values).reshape(*rows.batch_size, 1))


def make_env() -> GymEnv:
    return GymEnv("Pendulum-v1")


def collector_of(policy: Any, **arguments: Any) -> Collector:
    return Collector(SerialEnv(2, make_env), policy, frames_per_batch=10, **arguments)


def test_actions_out_of_bounds_are_used_and_reported_once_at_the_end() -> None:
    collector = collector_of(pushes(1.0, -2.5))
    batches = [collector.next(), collector.next()]
    assert all((batch["action"][1] == -2.5).all() for batch in batches)
    with pytest.warns(UserWarning, match=r"\b10 actions .* 0\.5\b") as warned:
        collector.shutdown()
    assert len(warned) == 1


@pytest.mark.parametrize("action", [-2.5, NAN])
def test_strict_refuses_them(action: float) -> None:
    space = str(spaces.Box(-2.0, 2.0, (1,), np.float32))
    with refused(WrongRows, key=("action",), row=0, expected=space):
        collector_of(pushes(1.0, action), check_actions="strict")


def test_a_lane_that_goes_wrong_later_is_named_with_its_step() -> None:
    pushed = iter([1.0] * 8)

    def policy(rows: TensorDict) -> TensorDict:
        return pushes(0.0, next(pushed, NAN))(rows)

    collector = collector_of(policy)
    collector.next()
    with pytest.raises(WrongRows) as raised:
        collector.next()
    assert raised.value.row == 7 and np.isnan(raised.value.found).all()
    assert "lane 1 in step 7" in str(raised.value)


def test_without_the_check_any_action_is_taken() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        collector = collector_of(pushes(9.0, -9.0), check_actions=False)
        assert collector.next()["action"].abs().eq(9).all()
        collector.shutdown()
    taker = Taker(spaces.Discrete(2))
    both = Collector(
        GymEnv(taker), lambda _: torch.tensor([1, 1]), frames_per_batch=3, check_actions=False
    )
    assert both.next()["action"].tolist() == [[1, 1]] * 3 and taker.taken == [0, 0, 0]


def test_an_unknown_check_is_refused() -> None:
    with refused(UsageError, argument="check_actions", found="often"):
        collector_of(None, check_actions="often")
