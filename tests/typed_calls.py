"""What a type checker sees of constructors that take their options from dataclasses.

``make lint`` reads this file, and nothing runs it: a misspelt keyword or a wrong type that is not
an error any more makes an ``ignore`` unused, which is one.
"""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

import torch

from datasets_cli import (
    AtariDQNExperienceReplay,
    CatFrames,
    D4RLExperienceReplay,
    ExperienceReplay,
    LazyTensorStorage,
    MinariExperienceReplay,
    Mixture,
    OpenMLExperienceReplay,
    PrioritizedSliceSampler,
    ReplayBuffer,
    Sequences,
    SliceSampler,
    SliceSamplerWithoutReplacement,
    TensorDictReplayBuffer,
    open_dataset,
    open_storage,
)
from datasets_cli.replay.storages.dataset import DatasetStorage
from datasets_cli.torchrl import (
    HERReplayBuffer,
    PrioritizedReplayBuffer,
    TensorDictPrioritizedReplayBuffer,
)
from datasets_cli.torchrl.data.replay_buffers import samplers
from datasets_cli.torchrl.data.replay_buffers.samplers import RandomSampler


def right() -> None:
    """Call each with what it takes, by name and by place."""
    rows = LazyTensorStorage(10)
    sampler = SliceSampler(slice_len=4, traj_key="episode", strict_length=False)
    assert_type(
        ReplayBuffer(storage=rows, sampler=sampler, batch_size=8, shared=True), ReplayBuffer
    )
    assert_type(
        TensorDictReplayBuffer(storage=rows, prefetch=2, priority_key=("a", "b"), format="numpy"),
        TensorDictReplayBuffer,
    )
    PrioritizedReplayBuffer(alpha=0.7, beta=0.5, sampler=RandomSampler(), dtype=torch.double)
    TensorDictPrioritizedReplayBuffer(alpha=0.7, beta=0.5, reduction="mean", pin_memory=True)
    HERReplayBuffer(lambda batch: batch["next", "reward"], her_ratio=0.5, storage=rows)
    SliceSamplerWithoutReplacement(num_slices=4, drop_last=True, shuffle=False)
    PrioritizedSliceSampler(10, 0.7, 0.5, slice_len=4, device="cpu")
    CatFrames(N=4, dim=-1).make_rb_transform_and_sampler(batch_size=4, end_key=("next", "done"))
    replay = ExperienceReplay("door", 8, options={"a": "b"}, num_slices=2, device="cuda")
    assert_type(replay, ExperienceReplay)
    assert_type(replay.sequences(20, 4, gamma=0.9, seed=1), TensorDictReplayBuffer)
    Sequences(rows, length=20, padding="right")
    assert_type(ExperienceReplay(dataset_id=Path("folder"), batch_size=8), ExperienceReplay)
    assert_type(D4RLExperienceReplay("door", 8, split_trajs=True), D4RLExperienceReplay)
    MinariExperienceReplay("door", load_from_local_minari=False, frame_stack=4)
    OpenMLExperienceReplay(name="iris", replacement=False)
    AtariDQNExperienceReplay("Pong/5", checkpoints="0:2", strict_len=False)
    assert_type(Mixture({replay: 0.5}, 8, epoch="first", rank=0), Mixture)
    assert_type(open_storage(folder="door", text=True, contiguous=True), DatasetStorage)
    assert_type(open_dataset("door", device="cpu", root=Path("root")), DatasetStorage)
    assert_type(open_dataset("NAME", project="rlds.toml"), TensorDictReplayBuffer)
    assert_type(samplers.RandomSampler(), RandomSampler)


def wrong() -> None:
    """Call each with what it does not take."""
    ReplayBuffer(storag=None)  # type: ignore[call-arg]
    ReplayBuffer(priority_key="a")  # type: ignore[call-arg]
    TensorDictReplayBuffer(batch_size="8")  # type: ignore[arg-type]
    PrioritizedReplayBuffer(alpha=0.7)  # type: ignore[call-arg]
    TensorDictPrioritizedReplayBuffer(alpha=0.7, beta=0.5, sampler=None)  # type: ignore[call-arg]
    HERReplayBuffer(her_ratio=0.5)  # type: ignore[call-arg]
    SliceSampler(slice_length=4)  # type: ignore[call-arg]
    SliceSampler(None)  # type: ignore[call-arg]
    SliceSamplerWithoutReplacement(droplast=True)  # type: ignore[call-arg]
    PrioritizedSliceSampler(10, 0.7, slice_len=4)  # type: ignore[call-arg]
    CatFrames(4, -1).make_rb_transform_and_sampler(4, num_slices=2)  # type: ignore[call-arg]
    ExperienceReplay(batch_size=8)  # type: ignore[call-arg]
    ExperienceReplay("door", split_trajs=True)  # type: ignore[call-arg]
    ExperienceReplay("door").sequences(20, pin_memory=True)  # type: ignore[call-arg]
    Sequences(LazyTensorStorage(10), 20, padding="both")  # type: ignore[arg-type]
    ExperienceReplay("door", text="mission")  # type: ignore[arg-type]
    D4RLExperienceReplay("door", num_workers=2)  # type: ignore[call-arg]
    OpenMLExperienceReplay("iris", slice_len=2)  # type: ignore[call-arg]
    AtariDQNExperienceReplay("Pong/5", checkpoint="0:2")  # type: ignore[call-arg]
    Mixture([], epoch="second")  # type: ignore[arg-type]
    open_storage("door", pin=True)  # type: ignore[call-arg]
    open_dataset("NAME", project="rlds.toml", text=True)  # type: ignore[call-overload]
    samplers.NoSampler()  # type: ignore[attr-defined]
