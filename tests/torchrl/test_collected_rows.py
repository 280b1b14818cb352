"""A collector gives the rows that TorchRL's gives, for the same seeds and the same arguments."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import datasets_cli

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchrl import collectors, envs


def rows(library: Any, collector: Any, name: str, arguments: dict[str, Any]) -> torch.Tensor:
    torch.manual_seed(0)
    environment = library.GymEnv(name)
    environment.set_seed(0)
    return torch.cat([*collector(environment, frames_per_batch=150, total_frames=300, **arguments)])


@pytest.mark.filterwarnings("ignore")  # TorchRL's own
@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "Acrobot-v1"])
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"set_truncated": True},
        {"reset_at_each_iter": True},
        {"max_frames_per_traj": 20},
        {"init_random_frames": 150},
    ],
)
def test_rows_are_torchrls(name: str, arguments: dict[str, Any]) -> None:
    ours = rows(datasets_cli, datasets_cli.Collector, name, arguments)
    theirs = rows(envs, collectors.Collector, name, arguments)
    assert ours.names == theirs.names and {*ours.keys(True)} == {*theirs.keys(True)}
    if arguments.get("reset_at_each_iter"):  # theirs begins with 1 where nothing was collected
        for each in (ours, theirs):
            each["collector", "traj_ids"] -= each["collector", "traj_ids"][0].clone()
    assert bool((ours == theirs).all())
