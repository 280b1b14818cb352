"""Transforms that read neighbours: refused where a sampler draws rows one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import pytest
import torch
from tensordict import TensorDict

from datasets_cli import (
    CatFrames,
    Compose,
    D4RLExperienceReplay,
    DoubleToFloat,
    ExcludeTransform,
    ExperienceReplay,
    InitTracker,
    LazyTensorStorage,
    ListStorage,
    MultiStep,
    OfflineToOnline,
    RandomSampler,
    ReplayBuffer,
    ReplayBufferEnsemble,
    Reward2Go,
    RewardSum,
    SliceSampler,
    StepCounter,
    TensorDictReplayBuffer,
    Transform,
)
from datasets_cli.errors import UsageError
from datasets_cli.replay import MultiStepTransform, RandomCropTensorDict
from datasets_cli.replay.transforms.transform import Inverted
from tests.support.refusals import check_refused

KEY = ["observation"]
READING: list[Transform] = [
    StepCounter(),
    InitTracker(),
    RewardSum(),
    MultiStep(0.9, 2),
    CatFrames(2, -1, KEY),
    CatFrames(2, -1, KEY).make_rb_transform_and_sampler(4)[0],
    RandomCropTensorDict(2),
    Inverted(Reward2Go()),
    Inverted(Compose(Reward2Go())),
    Compose(DoubleToFloat(), Compose(RewardSum())),
]
WRITING: list[Transform] = [
    Reward2Go(),
    MultiStepTransform(2, 0.9),
    CatFrames(2, -1, KEY, as_inverse=True),
    ExcludeTransform("action", inverse=True),
    Inverted(StepCounter()),
    Compose(StepCounter(), Reward2Go()),
]


def steps(num_rows: int = 6) -> TensorDict:
    done = torch.zeros(num_rows, 1, dtype=torch.bool)
    after = {"done": done, "reward": torch.ones(num_rows, 1)}
    return TensorDict({"next": after}, [num_rows])


@pytest.mark.parametrize("transform", READING, ids=lambda one: type(one).__name__)
def test_steps_in_a_row_are_asked_for_wherever_rows_are_drawn_one_by_one(
    transform: Transform, door: str
) -> None:
    slices = ExperienceReplay(door, 8, slice_len=4, transform=transform)
    single = ExperienceReplay(door, 8)
    online = TensorDictReplayBuffer(storage=LazyTensorStorage(9))
    written = ReplayBuffer(storage=ListStorage(9), transform=transform)
    made: list[Any] = [
        lambda: ExperienceReplay(door, 8, transform=transform),
        lambda: single.append_transform(transform),
        lambda: slices.set_sampler(RandomSampler()),
        lambda: OfflineToOnline(single, online, transform=transform),
        lambda: ReplayBufferEnsemble(single, online).append_transform(transform),
        lambda: written.extend(steps()),
    ]
    check_refused(UsageError, [("needs consecutive steps, but RandomSampler", one) for one in made])
    assert not single.transform and slices.sampler.has_slices and not len(written)


@pytest.mark.parametrize("transform", WRITING, ids=lambda one: type(one).__name__)
def test_a_dataset_refuses_what_only_acts_on_rows_that_are_written(
    transform: Transform, door: str
) -> None:
    replay = ExperienceReplay(door, 8, slice_len=4)
    made = [
        lambda: ExperienceReplay(door, 8, slice_len=4, transform=transform),
        lambda: replay.append_transform(transform),
    ]
    check_refused(UsageError, [("when they are written", one) for one in made])
    assert ReplayBuffer(storage=LazyTensorStorage(9), transform=transform).transform


def test_sums_of_slices_begin_with_each_slice(door: str, door_source: str) -> None:
    replay = ExperienceReplay(door, 12, slice_len=4, transform=RewardSum(), seed=0)
    batch = replay.sample()
    with h5py.File(next(Path(door_source).glob("*.hdf5"))) as file:
        rewards = torch.from_numpy(file["rewards"][:])
    kept = batch["next", "reward"].view(3, 4)
    assert torch.isin(kept, rewards).all()
    torch.testing.assert_close(batch["next", "episode_reward"].view(3, 4), kept.cumsum(1))


def test_rows_that_are_trajectories_are_steps_in_a_row(door: str) -> None:
    memory = ReplayBuffer(storage=LazyTensorStorage(3), transform=StepCounter(), batch_size=2)
    memory.extend(torch.stack([steps(), steps()]))
    assert memory.sample()["step_count"].view(2, 6).tolist() == [[*range(6)]] * 2
    crop = RandomCropTensorDict(5)
    whole = D4RLExperienceReplay("door-human-v0", 2, split_trajs=True, transform=crop)
    assert whole.sample().shape == (2, 5) and whole.transform[0] is crop
    sequences = ExperienceReplay(door).sequences(7, 2, transform=StepCounter())
    assert sequences.sample()["step_count"].shape == (2, 7, 1)


def test_rows_are_transformed_in_the_order_in_which_a_collector_writes_them() -> None:
    memory = ReplayBuffer(storage=LazyTensorStorage(9), batch_size=2)
    memory.append_transform(StepCounter(), invert=True).append_transform(MultiStepTransform(1, 0.5))
    memory.extend(steps())
    assert memory[:]["step_count"].view(-1).tolist() == [0, 1, 2, 3, 4]
    sliced = ReplayBuffer(
        storage=LazyTensorStorage(9),
        sampler=SliceSampler(slice_len=3, end_key=("next", "done")),
        transform=StepCounter(),
        batch_size=3,
    )
    sliced.extend(steps())
    assert sliced.sample()["step_count"].view(-1).tolist() == [0, 1, 2]
