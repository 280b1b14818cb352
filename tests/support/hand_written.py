"""Rows of environments, collected by a loop over gymnasium alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

Choose = Callable[[np.ndarray], int]
BATCH = ("observation", "action", "next")


def falls(observation: np.ndarray) -> int:
    """Push the cart of CartPole outwards, so that the pole falls soon."""
    return int(observation[0] > 0)


def balances(observation: np.ndarray) -> int:
    """Push the cart below the pole, which stays up for hundreds of steps."""
    return int(observation[2] + observation[3] > 0)


def policy_of(choose: Choose) -> Callable[[TensorDictBase], TensorDictBase]:
    """Return the policy that chooses each lane's action, one-hot, by its observation alone."""

    def policy(tensordict: TensorDictBase) -> TensorDictBase:
        observation = tensordict["observation"]
        chosen = [choose(each.numpy()) for each in observation.reshape(-1, 4)]
        action = torch.nn.functional.one_hot(torch.tensor(chosen), 2)
        return tensordict.set("action", action.reshape(*observation.shape[:-1], 2))

    return policy


def lane(seed: int, num_steps: int, choose: Choose, **arguments: Any) -> TensorDict:
    """Return the rows of one CartPole ``[T]``, with the number of the trajectory in it."""
    environment = gymnasium.make("CartPole-v1", **arguments)
    observation, _ = environment.reset(seed=seed)
    rows, trajectory = [], 0
    for _ in range(num_steps):
        action = choose(observation)
        following, reward, terminated, truncated, _ = environment.step(action)
        rows.append((observation, action, following, reward, terminated, truncated, trajectory))
        observation = following
        if terminated or truncated:
            observation, _ = environment.reset()
            trajectory += 1
    return _tensordict(rows)


def _tensordict(rows: list[tuple[Any, ...]]) -> TensorDict:
    columns = [torch.as_tensor(np.array(column)) for column in zip(*rows, strict=True)]
    observation, action, following, reward, terminated, truncated, trajectory = columns
    flags = {"terminated": terminated, "truncated": truncated, "done": terminated | truncated}
    next_rows = {name: flag.unsqueeze(-1) for name, flag in flags.items()}
    next_rows |= {"observation": following, "reward": reward.float().unsqueeze(-1)}
    tree = {"observation": observation, "action": torch.nn.functional.one_hot(action, 2)}
    return TensorDict({**tree, "next": next_rows, "trajectory": trajectory}, len(rows))


def lanes(
    num_lanes: int, num_steps: int, choose: Choose, *, seed: int = 0, **arguments: Any
) -> TensorDict:
    seeds = range(seed, seed + num_lanes)
    return torch.stack([lane(each, num_steps, choose, **arguments) for each in seeds])


def check_equal(found: TensorDictBase, expected: TensorDict) -> None:
    """Assert that rows ``[*batch, T]`` are those of the loop, trajectories too."""
    assert bool((found.select(*BATCH) == expected.select(*BATCH)).all())
    assert not found["done"].any()
    if "collector" in found:
        ids = found["collector", "traj_ids"].reshape(-1, found.shape[-1])
        numbers = expected["trajectory"].reshape(ids.shape)
        for lane_ids, lane_numbers in zip(ids, numbers, strict=True):
            assert torch.equal(lane_ids.diff() != 0, lane_numbers.diff() != 0)
        firsts = [set(lane_ids.tolist()) for lane_ids in ids]
        assert sum(map(len, firsts)) == len(set().union(*firsts)), "lanes share a trajectory"
