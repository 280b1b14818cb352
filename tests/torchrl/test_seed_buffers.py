"""The examples of TorchRL's pages on buffers, and the parts that its package page names."""

from __future__ import annotations

from tempfile import TemporaryDirectory

import torch
import tqdm
from tensordict import TensorDict

from datasets_cli import (
    D4RLExperienceReplay,
    LazyMemmapStorage,
    LazyTensorStorage,
    ListStorage,
    MultiStep,
    OpenMLExperienceReplay,
    PrioritizedSampler,
    ReplayBuffer,
    RoundRobinWriter,
    SamplerWithoutReplacement,
    TensorDictReplayBuffer,
)
from datasets_cli.replay import RandomCropTensorDict
from datasets_cli.torchrl import PrioritizedReplayBuffer, TensorDictPrioritizedReplayBuffer
from tests.support import public_names


def test_a_transform_that_is_inverted_acts_on_what_is_written() -> None:
    rb = ReplayBuffer(storage=LazyMemmapStorage(10), batch_size=4)
    data = TensorDict({"a": torch.zeros(10)}, [10])

    def t(data):  # type: ignore[no-untyped-def]
        data += 1
        return data

    rb.append_transform(t, invert=True)
    rb.extend(data)
    assert (data == 1).all()
    assert bool((rb.sample()["a"] == 1).all())


def test_a_prioritised_buffer_is_saved_and_loaded() -> None:
    S = 1_000_000  # noqa: N806 (the page's name)
    sampler = PrioritizedSampler(S, 1.1, 1.0)
    # sampler = RandomSampler()
    storage = LazyMemmapStorage(S)
    rb = TensorDictReplayBuffer(storage=storage, sampler=sampler)

    for _ in tqdm.tqdm(range(100)):
        td = TensorDict(
            {
                "obs": torch.randn(100, 3, 4),
                "next": {"obs": torch.randn(100, 3, 4)},
                "td_error": torch.rand(100),
            },
            [100],
        )
        rb.extend(td)
        sample = rb.sample(32)
        rb.update_tensordict_priority(sample)
    # save and load the buffer
    with TemporaryDirectory() as tmpdir:
        rb.dumps(tmpdir)

        sampler = PrioritizedSampler(S, 1.1, 1.0)
        # sampler = RandomSampler()
        storage = LazyMemmapStorage(S)
        rb_load = TensorDictReplayBuffer(storage=storage, sampler=sampler)
        rb_load.loads(tmpdir)
        assert len(rb) == len(rb_load)
    assert bool((rb_load[:] == rb[:]).all())


def test_every_part_of_a_buffer_that_the_package_page_names_is_there(door: str) -> None:
    names = """ReplayBuffer PrioritizedReplayBuffer TensorDictReplayBuffer
    TensorDictPrioritizedReplayBuffer Sampler PrioritizedSampler RandomSampler
    SamplerWithoutReplacement Storage ListStorage
    LazyTensorStorage LazyMemmapStorage Writer RoundRobinWriter D4RLExperienceReplay MultiStep
    OpenMLExperienceReplay RandomCropTensorDict"""
    assert {*names.split()} <= public_names.HOMES.keys()
    rows = TensorDict({"a": torch.arange(20), "td_error": torch.rand(20)}, [20])
    for buffer in (
        PrioritizedReplayBuffer(alpha=0.7, beta=0.5, storage=LazyTensorStorage(20)),
        TensorDictPrioritizedReplayBuffer(alpha=0.7, beta=0.5, storage=LazyMemmapStorage(20)),
        TensorDictReplayBuffer(storage=ListStorage(20), writer=RoundRobinWriter()),
        ReplayBuffer(storage=ListStorage(20), sampler=SamplerWithoutReplacement(drop_last=True)),
    ):
        buffer.extend(rows)
        assert buffer.sample(8)["a"].shape == (8,)
    dataset = D4RLExperienceReplay(door.removeprefix("d4rl/"), 32)
    assert dataset.sample().shape == (32,) and dataset.dataset_id == door
    assert "adult_onehot" in OpenMLExperienceReplay.available_datasets


def test_sub_trajectories_are_cropped_and_steps_joined() -> None:
    time = torch.arange(50).expand(6, 50)
    ends = (time == 49).unsqueeze(-1)
    steps = {"time": time, "next": {"reward": torch.ones(6, 50, 1), "done": ends}}
    memory = ReplayBuffer(
        storage=LazyTensorStorage(6), transform=RandomCropTensorDict(10), batch_size=4
    )
    memory.extend(MultiStep(gamma=0.5, n_steps=2)(TensorDict(steps, [6, 50])))
    assert len(memory) == 6  # trajectories, not steps
    sample = memory.sample()
    assert sample.shape == (4, 10) and bool((sample["time"].diff() == 1).all())
    assert set(sample["next", "reward"].unique().tolist()) <= {1.5, 1.0}
