"""The examples of TorchRL's pages on collectors, with only the import lines changed.

A collector that never ends is left after some batches. What the tutorial prints is compared as
keys, shapes, element types and devices, and by the lengths of its trajectories.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDictBase

from datasets_cli import (
    GymEnv,
    LazyMemmapStorage,
    LazyTensorStorage,
    RandomPolicy,
    ReplayBuffer,
    SliceSampler,
)
from datasets_cli.environments import SerialEnv
from datasets_cli.torchrl import SyncDataCollector


def make_env() -> GymEnv:
    return GymEnv("CartPole-v1")


PRINTED = """TensorDict(
    fields={
        action: Tensor(shape=torch.Size([200, 2]), device=cpu, dtype=torch.int64, is_shared=False),
        collector: TensorDict(
            fields={
                traj_ids: Tensor(shape=torch.Size([200]), device=cpu, dtype=torch.int64, is_shared=False)},
            batch_size=torch.Size([200]),
            device=None,
            is_shared=False),
        done: Tensor(shape=torch.Size([200, 1]), device=cpu, dtype=torch.bool, is_shared=False),
        next: TensorDict(
            fields={
                done: Tensor(shape=torch.Size([200, 1]), device=cpu, dtype=torch.bool, is_shared=False),
                observation: Tensor(shape=torch.Size([200, 4]), device=cpu, dtype=torch.float32, is_shared=False),
                reward: Tensor(shape=torch.Size([200, 1]), device=cpu, dtype=torch.float32, is_shared=False),
                terminated: Tensor(shape=torch.Size([200, 1]), device=cpu, dtype=torch.bool, is_shared=False),
                truncated: Tensor(shape=torch.Size([200, 1]), device=cpu, dtype=torch.bool, is_shared=False)},
            batch_size=torch.Size([200]),
            device=None,
            is_shared=False),
        observation: Tensor(shape=torch.Size([200, 4]), device=cpu, dtype=torch.float32, is_shared=False),
        terminated: Tensor(shape=torch.Size([200, 1]), device=cpu, dtype=torch.bool, is_shared=False),
        truncated: Tensor(shape=torch.Size([200, 1]), device=cpu, dtype=torch.bool, is_shared=False)},
    batch_size=torch.Size([200]),
    device=None,
    is_shared=False)
"""  # noqa: E501 (as the page has it)


def test_the_tutorial(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    env = GymEnv("CartPole-v1")
    env.set_seed(0)
    policy = RandomPolicy(env.action_spec)
    collector = SyncDataCollector(env, policy, frames_per_batch=200, total_frames=-1)
    for data in collector:
        print(data)
        break
    assert capsys.readouterr().out == PRINTED
    assert data.names == ["time"]
    lengths = data["collector", "traj_ids"].bincount()
    assert lengths.tolist() == [11, 12, 17, 12, 63, 16, 16, 30, 13, 10]
    assert bool((data["collector", "traj_ids"].diff() >= 0).all())

    buffer = ReplayBuffer(storage=LazyMemmapStorage(max_size=1000))
    indices = buffer.extend(data)
    assert len(buffer) == collector.frames_per_batch
    assert torch.equal(indices, torch.arange(200))
    print(buffer.sample(batch_size=30))
    at_30 = PRINTED.replace("[200", "[30").replace("device=None", "device=cpu")
    assert capsys.readouterr().out == at_30
    # "build a buffer and indicate its batch-size in the constructor, then try to iterate over it"
    rb = ReplayBuffer(storage=buffer.storage, batch_size=30)
    assert [len(batch) for batch, _ in zip(rb, range(3), strict=False)] == [30, 30, 30]


def test_single_transitions_are_flattened_by_a_transform() -> None:
    N, policy = 200, None  # noqa: N806 (the page's name)
    collector = SyncDataCollector(
        SerialEnv(4, make_env), policy, frames_per_batch=N, total_frames=N
    )
    memory = ReplayBuffer(storage=LazyTensorStorage(N), transform=lambda data: data.reshape(-1))
    for data in collector:
        memory.extend(data)
    assert len(memory) == 4 and memory.sample(3).shape == (150,)


def memory_of(size: int, ndim: int) -> ReplayBuffer:
    return ReplayBuffer(
        storage=LazyTensorStorage(size, ndim=ndim),
        sampler=SliceSampler(num_slices=4, trajectory_key=("collector", "traj_ids")),
    )


def fill(memory: ReplayBuffer, collector: Any, num_batches: int = 3) -> None:
    """Extend a buffer by some batches, and look at slices after each."""
    for _, data in zip(range(num_batches), collector, strict=False):
        memory.extend(data)
        for _ in range(16):
            check_slices(memory.sample(16).reshape(4, 4))
    assert len(memory) == memory.storage.max_size
    collector.shutdown()


def check_slices(slices: TensorDictBase) -> None:
    joined = slices["next", "observation"][:, :-1] == slices["observation"][:, 1:]
    assert bool(joined.all())
    assert all(len(ids.unique()) == 1 for ids in slices["collector", "traj_ids"])


@pytest.mark.parametrize("size", [200, 300])
def test_slices_of_one_environment(size: int) -> None:
    N, policy, env = 200, None, make_env()  # noqa: N806
    # Single environment: no need for a multi-dimensional buffer
    memory = memory_of(size, 1)
    collector = SyncDataCollector(env, policy, frames_per_batch=N, total_frames=-1)
    fill(memory, collector)


def test_slices_of_several_environments_over_batches() -> None:
    # Not on the page with SerialEnv: the same lanes as ParallelEnv's, without its processes.
    collector = SyncDataCollector(SerialEnv(4, make_env), frames_per_batch=200, total_frames=-1)
    fill(memory_of(300, 2), collector, num_batches=6)
