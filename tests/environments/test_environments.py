"""Environments: steps, rollouts, actions."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict

from datasets_cli import Collector, GymEnv, ParallelEnv, RandomPolicy, UsageError, check_env_specs
from datasets_cli.environments import SerialEnv
from datasets_cli.errors import Unsupported, WrongRows
from tests.environments.record.toys import Corridor
from tests.support.refusals import refused
from tests.support.spaced_env import SpacedEnv


def make_env() -> GymEnv:
    return GymEnv("CartPole-v1")


def test_a_seed_resets_and_gives_the_next_one() -> None:
    first = gymnasium.make("CartPole-v1").reset(seed=5)[0]
    environment = make_env()
    assert environment.set_seed(5) == 6
    rollout = environment.rollout(1, auto_reset=False)
    assert torch.equal(rollout["observation"][0], torch.from_numpy(first))
    assert torch.equal(environment.reset(seed=5)["observation"], torch.from_numpy(first))


def test_lanes_have_consecutive_seeds_or_one() -> None:
    environment = SerialEnv(3, make_env)
    assert environment.set_seed(5) == 8
    alone = [make_env().reset(seed=seed)["observation"] for seed in (5, 6, 7)]
    assert torch.equal(environment.reset(seed=5)["observation"], torch.stack(alone))
    assert environment.set_seed(6, static_seed=True) == 6
    same = environment.rollout(1, auto_reset=False)["observation"][:, 0]
    assert torch.equal(same, alone[1].expand(3, 4))


def test_torchs_random_numbers_are_not_seeded() -> None:
    torch.manual_seed(1)
    expected = torch.rand(())
    torch.manual_seed(1)
    make_env().set_seed(0)
    assert torch.rand(()) == expected


@pytest.mark.parametrize("batch", [(), (2,)])
def test_a_step_is_written_below_next(batch: tuple[int, ...]) -> None:
    environment = SerialEnv(2, make_env) if batch else make_env()
    torch.manual_seed(0)
    root = environment.reset(seed=0)
    stepped = environment.rand_step(root)
    environment.reset(seed=0)
    torch.manual_seed(0)
    rollout = environment.rollout(1, auto_reset=False)
    assert stepped is root and stepped.shape == batch
    assert bool((stepped == rollout[..., 0]).all())
    assert environment.action_spec.is_in(stepped["action"])


def test_a_lane_that_ended_is_reset_before_the_next_step() -> None:
    environment = SerialEnv(2, lambda: GymEnv("CartPole-v1", max_episode_steps=3))
    root = environment.reset(seed=0)
    for _ in range(2):
        root = environment.rand_step(root)["next"].exclude("reward")
    environment.reset(TensorDict({"_reset": torch.tensor([[True], [False]])}, 2))
    stepped, following = environment.step_and_maybe_reset(environment.rand_action())
    assert stepped["next", "truncated"].flatten().tolist() == [False, True]
    assert torch.equal(stepped["next", "observation"][0], following["observation"][0])
    assert not torch.equal(stepped["next", "observation"][1], following["observation"][1])
    assert not following["done"].any()


def test_a_reset_of_some_lanes_is_refused_first_or_with_a_seed() -> None:
    environment = SerialEnv(2, make_env)
    some = TensorDict({"_reset": torch.tensor([[True], [False]])}, 2)
    none = TensorDict({"_reset": torch.zeros(2, 1, dtype=torch.bool)}, 2)
    with refused(UsageError, key="_reset", found=[True, False]):
        environment.reset(some)
    root = environment.reset(seed=0)
    assert torch.equal(environment.reset(none)["observation"], root["observation"])
    with refused(UsageError, key="_reset", found=[True, False]):
        environment.reset(some, seed=1)
    with refused(WrongRows, key="_reset", expected=(2, 1), found=(3, 1)):
        environment.reset(TensorDict({"_reset": torch.tensor([[True], [False], [True]])}, 3))
    with refused(UsageError, argument="seed", found=1.5):
        environment.set_seed(1.5)  # type: ignore[arg-type]


def test_a_step_of_a_lane_that_ended_is_refused() -> None:
    environment = SerialEnv(2, lambda: GymEnv("CartPole-v1", max_episode_steps=1))
    with refused(UsageError, found=[True, True]):
        environment.rand_step()
    environment.reset()
    environment.rand_step()
    with refused(UsageError, found=[True, True]):
        environment.rand_step()


def test_specs_are_those_of_the_spaces() -> None:
    environment = SerialEnv(2, make_env)
    box = gymnasium.make("CartPole-v1").observation_space
    assert environment.batch_size == (2,) and environment.action_spec.shape == (2, 2)
    assert environment.action_spec.dtype == torch.int64
    observation = environment.observation_spec["observation"]
    assert torch.equal(observation.space.high, torch.from_numpy(box.high).expand(2, 4))
    assert environment.reward_spec.shape == (2, 1)
    assert set(environment.done_spec.keys()) == {"done", "terminated", "truncated"}
    root = environment.reset()
    assert environment.observation_spec.is_in(root.select("observation"))
    assert environment.done_spec.is_in(root.select("done", "terminated", "truncated"))


@pytest.mark.parametrize("categorical", [False, True])
def test_every_space_of_arrays_becomes_rows_and_actions(categorical: bool) -> None:
    def make() -> GymEnv:
        return GymEnv(SpacedEnv(), categorical_action_encoding=categorical)

    environment = SerialEnv(3, make)
    torch.manual_seed(0)
    rows = environment.rollout(20, break_when_any_done=False)
    given = rows["nested", "kind"], rows["pair"], rows["bits"], rows["place"]
    turn = rows["action", "turn"]
    if not categorical:
        turn = turn.argmax(-1) + 5
        assert given[0].shape == (3, 20, 3) and given[1].shape == (3, 20, 5)
        given = (
            given[0].argmax(-1),
            torch.stack([given[1][..., :2].argmax(-1), given[1][..., 2:].argmax(-1)], -1),
            *given[2:],
        )
    count = rows["place"][..., 0].long()  # which the other entries follow from
    assert torch.equal(given[0], count % 3 + (10 if categorical else 0))
    assert torch.equal(given[1], torch.stack([count % 2, count % 3], -1))
    assert torch.equal(given[2], (count.unsqueeze(-1) >> torch.arange(4)) % 2)
    # The environment returns the action it took, in its own numbers, as the next observation.
    took = rows["next", "took"]
    assert torch.equal(took[..., 0].long(), turn)
    assert torch.equal(took[..., 1:], rows["action", "push"].double())
    assert int(rows["next", "done"].sum()) == 3 * (20 // SpacedEnv.length)


@pytest.mark.parametrize("categorical", [False, True])
@pytest.mark.parametrize("made_of", ["CartPole-v1", "Pendulum-v1", SpacedEnv])
def test_the_specs_are_those_of_the_steps(made_of: Any, categorical: bool) -> None:
    def make() -> GymEnv:
        name = made_of if isinstance(made_of, str) else made_of()
        return GymEnv(name, categorical_action_encoding=categorical)

    check_env_specs(make(), seed=0)
    check_env_specs(SerialEnv(2, make), seed=0)


def test_the_parts_of_a_tuple_are_numbered() -> None:
    def make() -> GymEnv:
        return GymEnv(Corridor(), categorical_action_encoding=True)

    check_env_specs(make(), seed=0)
    environment = SerialEnv(2, make)
    rows = environment.rollout(20, break_when_any_done=False)
    assert torch.equal(rows["next", "goal", "0"][..., 0], rows["next", "place"].float())
    assert rows["goal", "1"].unique(dim=1).tolist() == [[[1, 0, 1]]] * 2
    reward = rows["action", "0"] + rows["action", "1"][..., 0]
    assert torch.allclose(rows["next", "reward"].squeeze(-1), reward)


def test_names_that_rows_have_are_refused_as_observations() -> None:
    environment = gymnasium.wrappers.TransformObservation(
        gymnasium.make("CartPole-v1"),
        lambda observation: {"reward": observation},
        spaces.Dict(reward=spaces.Box(-np.inf, np.inf, (4,), np.float32)),
    )
    with refused(UsageError, key=("reward",)):
        GymEnv(environment).reset()


def test_a_space_without_arrays_is_refused() -> None:
    environment = gymnasium.wrappers.TransformObservation(
        gymnasium.make("CartPole-v1"), lambda _: "text", spaces.Text(5)
    )
    with refused(Unsupported, key=("observation",), found=str(environment.observation_space)):
        GymEnv(environment).reset()


@pytest.mark.parametrize(("action", "found"), [(torch.tensor(1), ()), (None, None)])
def test_an_action_of_another_shape_is_refused(action: Any, found: Any) -> None:
    environment = make_env()
    root = environment.reset()
    with refused(WrongRows, key=("action",), expected=(2,), found=found):
        environment.step(root if action is None else root.set("action", action))


def test_a_closed_environment_is_refused() -> None:
    environment = make_env()
    environment.close()
    with pytest.raises(UsageError):
        environment.reset()


def test_an_environment_is_not_pickled_after_a_reset() -> None:
    environment = make_env()
    again = pickle.loads(pickle.dumps(environment))
    assert again.action_spec == environment.action_spec
    environment.reset()
    batched = SerialEnv(2, make_env)
    batched.reset()
    for each in (environment, batched, GymEnv(gymnasium.make("CartPole-v1"))):
        with pytest.raises(Unsupported):
            pickle.dumps(each)


@pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])
@pytest.mark.parametrize(
    ("arguments", "argument", "found"),
    [
        ((0, make_env), "num_workers", 0),
        ((2, [make_env] * 3), "create_env_fn", 3),
        ((2, "CartPole-v1"), "create_env_fn", 11),
        ((2, make_env, [{}]), "create_env_kwargs", 1),
        ((1, [3]), "create_env_fn", "int"),
        ((1, lambda: 5), "create_env_fn", "int"),
    ],
)
def test_invalid_arguments_of_several_environments_are_refused(
    kind: Any, arguments: Any, argument: str, found: Any
) -> None:
    with refused(UsageError, argument=argument, found=found):
        kind(*arguments)


def test_environments_that_differ_are_refused() -> None:
    functions = [make_env, lambda: GymEnv("Pendulum-v1")]
    with refused(UsageError, argument="create_env_fn"):
        SerialEnv(2, functions).reset()


def test_a_module_of_the_observation_is_a_policy() -> None:
    module = torch.nn.Linear(3, 1)
    rollout = GymEnv("Pendulum-v1").rollout(3, module)
    assert torch.allclose(rollout["action"], module(rollout["observation"]))
    assert not rollout["action"].requires_grad


def test_random_actions_are_those_of_the_spec() -> None:
    spec = make_env().action_spec
    torch.manual_seed(0)
    found = RandomPolicy(spec, action_key="move")(TensorDict())["move"]
    torch.manual_seed(0)
    assert torch.equal(found, spec.rand())


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: GymEnv("CartPole-v77"), "env_name"),
        (lambda: GymEnv(3), "env_name"),  # type: ignore[arg-type]
        (lambda: GymEnv("CartPole-v1", nope=3), "env_name"),
        (lambda: GymEnv(gymnasium.make("CartPole-v1"), max_episode_steps=3), "max_episode_steps"),
        (lambda: GymEnv("CartPole-v1", device="nope"), "device"),
        (lambda: SerialEnv(1, make_env, device="nope"), "device"),
        (lambda: check_env_specs(None), "env"),
        (lambda: make_env().rollout(0), "max_steps"),
        (lambda: make_env().rollout(3, policy=3), "policy"),
        (lambda: GymEnv(SpacedEnv()).rollout(3, torch.nn.Linear(3, 1)), "policy"),
    ],
)
def test_the_argument_at_fault_is_named(call: Any, argument: str) -> None:
    with refused(UsageError, argument=argument):
        call()


# Actions are checked once, before an environment takes them.


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


def make_pendulum() -> GymEnv:
    return GymEnv("Pendulum-v1")


def collector_of(policy: Any, **arguments: Any) -> Collector:
    return Collector(SerialEnv(2, make_pendulum), policy, frames_per_batch=10, **arguments)


def test_actions_out_of_bounds_are_used_unchanged() -> None:
    collector = collector_of(pushes(1.0, -2.5))
    assert (collector.next()["action"][1] == -2.5).all()
    collector.shutdown()


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
