"""How many frames a second collectors give, beside TorchRL's and a loop over gymnasium alone.

    python benchmarks/collectors.py [--batches 20]

CartPole, batches of 200 frames, random actions and a small network's, 1 environment and 4 in the
same process; then 4 in processes of their own. The loop steps gymnasium's environments and keeps
nothing. Prints JSON: frames a second by medians, and how many times TorchRL's fit into ours.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import torch
from tensordict.nn import TensorDictModule
from timing import compare

import datasets_cli

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torchrl.collectors
    import torchrl.envs

FRAMES = 200


def ours(num_environments: int, policy: Any, processes: bool) -> Any:
    """Return a collector of ours."""
    environment: Any = datasets_cli.GymEnv("CartPole-v1")
    if num_environments > 1:
        kind = datasets_cli.ParallelEnv if processes else datasets_cli.environments.SerialEnv
        environment = kind(num_environments, lambda: datasets_cli.GymEnv("CartPole-v1"))
    return datasets_cli.Collector(environment, policy, frames_per_batch=FRAMES)


def theirs(num_environments: int, policy: Any, processes: bool) -> Any:
    """Return a collector of TorchRL's."""
    environment: Any = torchrl.envs.GymEnv("CartPole-v1")
    if num_environments > 1:
        kind = torchrl.envs.ParallelEnv if processes else torchrl.envs.SerialEnv
        environment = kind(num_environments, lambda: torchrl.envs.GymEnv("CartPole-v1"))
    return torchrl.collectors.Collector(
        environment, policy, frames_per_batch=FRAMES, total_frames=-1
    )


def loop(num_environments: int) -> Callable[[], Any]:
    """Return what steps gymnasium's environments as often, by one action."""
    environments = [gymnasium.make("CartPole-v1") for _ in range(num_environments)]
    for environment in environments:
        environment.reset()

    def batch() -> None:
        for _ in range(FRAMES // num_environments):
            for environment in environments:
                _, _, terminated, truncated, _ = environment.step(1)
                if terminated or truncated:
                    environment.reset()

    return batch


def network() -> Any:
    """Return a policy of two layers, whose actions are one-hot."""

    class Greedy(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(
                torch.nn.Linear(4, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2)
            )

        def forward(self, observation: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.one_hot(self.layers(observation).argmax(-1), 2)

    return TensorDictModule(Greedy(), ["observation"], ["action"])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=20)
    batches = parser.parse_args().batches
    report: dict[str, Any] = {}
    for count, processes in ((1, False), (4, False), (4, True)):
        for chosen, policy in (("random", None), ("network", network())):
            collectors = {
                "ours": ours(count, policy, processes),
                "torchrl": theirs(count, policy, processes),
            }
            calls = {name: partial(next, iter(each)) for name, each in collectors.items()}
            calls["gymnasium"] = loop(count)
            torch.set_num_threads(1)  # for both; making TorchRL's environments sets it too
            times = compare(calls, batches)
            for collector in collectors.values():
                collector.shutdown()
            where = "in processes" if processes else "in this process"
            report[f"{count} {where}, {chosen}"] = {
                **{each: round(FRAMES / time.median * 1e6) for each, time in times.items()},
                "ours / torchrl": round(times["torchrl"].median / times["ours"].median, 2),
            }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
