"""Frames a second of collectors, beside TorchRL's and a bare loop over gymnasium.

    python -m benchmarks.collectors [--quick]

CartPole, batches of 200 frames: 1 environment and 4, in this process and in processes of their own,
with random actions and with a small network's. The bare loop steps the environments and stores
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import gymnasium
import torch
import torchrl.collectors
import torchrl.envs
from tensordict.nn import TensorDictModule

import datasets_cli
from benchmarks import measure
from benchmarks.measure import Call, Figure, Row, Run
from datasets_cli.environments import SerialEnv

FRAMES = 200
ENVIRONMENT = "CartPole-v1"


def ours(count: int, policy: Any, in_processes: bool) -> Any:
    environment: Any = datasets_cli.GymEnv(ENVIRONMENT)
    if count > 1:
        kind = datasets_cli.ParallelEnv if in_processes else SerialEnv
        environment = kind(count, lambda: datasets_cli.GymEnv(ENVIRONMENT))
    return datasets_cli.Collector(environment, policy, frames_per_batch=FRAMES)


def theirs(count: int, policy: Any, in_processes: bool) -> Any:
    envs: Any = torchrl.envs
    environment = envs.GymEnv(ENVIRONMENT)
    if count > 1:
        kind = envs.ParallelEnv if in_processes else envs.SerialEnv
        environment = kind(count, lambda: envs.GymEnv(ENVIRONMENT))
    options: Any = {"frames_per_batch": FRAMES, "total_frames": -1}
    return torchrl.collectors.Collector(environment, policy, **options)


def loop(count: int) -> Call:
    """Return what steps as many environments of gymnasium as often, by one action."""
    environments = [gymnasium.make(ENVIRONMENT) for _ in range(count)]
    for environment in environments:
        environment.reset()

    def batch() -> None:
        for _ in range(FRAMES // count):
            for environment in environments:
                _, _, terminated, truncated, _ = environment.step(1)
                if terminated or truncated:
                    environment.reset()

    return batch


def greedy() -> Any:
    """Return a policy of two layers, whose best action is one-hot."""
    nn = torch.nn
    layers = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2))
    best: Any = lambda seen: nn.functional.one_hot(layers(seen).argmax(-1), 2)  # noqa: E731
    return TensorDictModule(best, ["observation"], ["action"])


def collect(run: Run) -> Iterator[Row]:
    """Yield the rows of each number of environments and each policy."""
    for count, in_processes in ((1, False), (4, False), (4, True)):
        for name in ("random", "network"):
            if run.is_quick and (in_processes or name == "network"):
                continue
            policy = greedy() if name == "network" else None
            made = {"ours": ours, "TorchRL": theirs}
            collectors = {label: make(count, policy, in_processes) for label, make in made.items()}
            calls: dict[str, Call] = {
                label: partial(next, iter(each)) for label, each in collectors.items()
            }
            calls["gymnasium alone"] = loop(count)
            torch.set_num_threads(1)  # for both; TorchRL's environments set it too
            times = measure.in_turn(calls, run.pick(20, 10), "s")
            for collector in collectors.values():
                collector.shutdown()
            rates = {label: Figure(FRAMES / time.mean) for label, time in times.items()}
            where = " in processes" if in_processes else ""
            case = f"{count} environments{where}, {name}"
            yield from measure.rows_of(case, rates, ("TorchRL", "gymnasium alone"), "1/s")


CASES = {"collect": collect}

if __name__ == "__main__":
    measure.run(CASES)
