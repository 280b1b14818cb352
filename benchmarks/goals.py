"""How long a batch with goals in hindsight takes, beside one without, and beside TorchRL's.

    python benchmarks/goals.py [--millions 1] [--repeat 1000]

Rows of a PointMaze in memory: 27 + 2 + 2 numbers of float64 an observation, trajectories of 100
steps, batches of 256, a new goal for 8 of 10 rows. Prints JSON: medians and means in microseconds,
and how many times a plain batch fits into one with goals.
"""

from __future__ import annotations

import argparse
import json
import warnings
from typing import Any

import torch
from tensordict import TensorDict
from timing import compare, shown

import datasets_cli
from datasets_cli import GoalRule, HERSampler, LazyTensorStorage, ReplayBuffer, SliceSampler

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torchrl.data

STEPS = 100
RADIUS = 0.45


def maze(num_rows: int) -> TensorDict:
    """Return rows of goals at TorchRL's keys."""
    position = torch.randn(num_rows, 2, dtype=torch.float64)
    state = torch.randn(num_rows, 27, dtype=torch.float64)
    goal = torch.randn(num_rows, 2, dtype=torch.float64)
    done = torch.zeros(num_rows, 1, dtype=torch.bool)
    done[STEPS - 1 :: STEPS] = True
    following = {
        "observation": state.roll(-1, 0),
        "achieved_goal": position.roll(-1, 0),
        "desired_goal": goal.clone(),
        "reward": torch.zeros(num_rows, 1),
        "done": done,
        "terminated": torch.zeros_like(done),
        "truncated": done.clone(),
    }
    rows = {"observation": state, "achieved_goal": position, "desired_goal": goal}
    rows["action"] = torch.randn(num_rows, 8)
    return TensorDict({**rows, "next": following}, [num_rows])


def reward(batch: Any) -> torch.Tensor:
    """Return the sparse reward of a batch, as both libraries take it."""
    apart = batch["next", "achieved_goal"] - batch["desired_goal"]
    return (apart.norm(dim=-1, keepdim=True) <= RADIUS).float()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--millions", type=float, default=1)
    parser.add_argument("--repeat", type=int, default=1000)
    options = parser.parse_args()
    rows = maze(int(options.millions * 1e6))
    keys: Any = {"achieved_goal_key": "achieved_goal", "desired_goal_key": "desired_goal"}
    rule = GoalRule.sparse(RADIUS)
    slices = HERSampler(rule, sampler=SliceSampler(slice_len=16), **keys)
    samplers = {"HER": HERSampler(rule, **keys), "HER, slices of 16": slices}
    storage = LazyTensorStorage(len(rows))
    ReplayBuffer(storage=storage).extend(rows)
    buffers = {name: ReplayBuffer(storage=storage, sampler=each) for name, each in samplers.items()}
    buffers["plain"] = ReplayBuffer(storage=storage)
    for name, library in (("ours", datasets_cli), ("TorchRL", torchrl.data)):
        made: Any = library
        held = made.LazyTensorStorage(len(rows))
        buffers[f"HERReplayBuffer, {name}"] = made.HERReplayBuffer(
            reward, storage=held, batch_size=256
        )
        buffers[f"HERReplayBuffer, {name}"].extend(rows)
    found = compare(
        {name: lambda buffer=buffer: buffer.sample(256) for name, buffer in buffers.items()},  # type: ignore[misc]
        options.repeat,
    )
    ratios = {name: time.over(found["plain"]) for name, time in found.items()}
    print(json.dumps({"microseconds": shown(found), "of a plain batch": ratios}, indent=1))


if __name__ == "__main__":
    main()
