"""What members of an ensemble give to a batch: prefetching, transformed, seeded ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDict

from datasets_cli import (
    CatFrames,
    LazyTensorStorage,
    RandomSampler,
    ReplayBuffer,
    ReplayBufferEnsemble,
    SamplerWithoutReplacement,
    SliceSampler,
    TensorDictReplayBuffer,
)
from datasets_cli.errors import UsageError, WrongRows, WrongSize
from datasets_cli.replay import SamplerEnsemble, StorageEnsemble
from datasets_cli.torchrl import PrioritizedReplayBuffer
from tests.replay.storages.test_storages import steps
from tests.support.refusals import refused


def member(num_rows: int, start: int = 0, kind: Any = ReplayBuffer, **arguments: Any) -> Any:
    made = kind(storage=LazyTensorStorage(num_rows), **arguments)
    made.extend(steps(num_rows, start))
    return made


def everyone(*members: Any, batch_size: int = 8) -> ReplayBufferEnsemble:
    return ReplayBufferEnsemble(*members, batch_size=batch_size, sample_from_all=True)


def test_an_epoch_made_ahead_ends_within_a_part_as_any_other() -> None:
    made = [
        everyone(member(7, sampler=SamplerWithoutReplacement(), batch_size=4, seed=0, prefetch=n))
        for n in (None, 1, 3)
    ]
    for ensemble in made:
        ensemble.batch_size = 4
    for _ in range(9):
        right, *found = [ensemble.sample()["number"].tolist() for ensemble in made]
        assert found == [right, right]


def test_parts_of_any_size_are_drawn_beside_those_made_ahead() -> None:
    members = [member(50, start, batch_size=4, prefetch=2) for start in (0, 100)]
    ensemble = ReplayBufferEnsemble(*members, batch_size=8, seed=0)
    for _ in range(20):
        batch = ensemble.sample_flat()
        index = batch["index"]
        assert torch.equal(batch["number"], index["index"] + 100 * index["buffer_ids"])


def test_a_transform_may_make_other_rows_of_those_a_member_drew() -> None:
    pairs = [
        member(
            20, start, TensorDictReplayBuffer, sampler=sampler, transform=lambda x: x.view(-1, 2)
        )
        for start, sampler in ((0, SliceSampler(slice_len=2)), (50, SamplerWithoutReplacement()))
    ]
    for _ in range(12):  # the second member's epoch ends within a part
        batch, info = everyone(*pairs, batch_size=12).sample(return_info=True)
        assert batch.shape == (2, 3, 2) and info.shape == (2, 6)
        assert torch.equal(
            batch["number"], batch["index", "index"] + 50 * batch["index", "buffer_ids"]
        )
        assert torch.equal(batch["index", "index"].view(2, 6), info["index", "index"])
    with refused(WrongRows, expected=[4]):
        everyone(member(20, transform=lambda x: x.view(-1, 2))).sample(4)


def test_stacks_are_drawn_from_every_member() -> None:
    def stacked(start: int) -> Any:
        frames = CatFrames(N=2, dim=-1, in_keys=["x"], out_keys=["stack"])
        transform, sampler = frames.make_rb_transform_and_sampler(batch_size=4)
        made = TensorDictReplayBuffer(
            storage=LazyTensorStorage(20), sampler=sampler, transform=transform
        )
        x = torch.arange(start, start + 20.0).unsqueeze(-1)
        done = torch.zeros(20, 1, dtype=torch.bool)
        made.extend(TensorDict({"x": x, "next": {"x": x + 1, "done": done}}, [20]))
        return made

    batch = everyone(stacked(0), stacked(100)).sample()
    assert batch.shape == (2, 4) and torch.equal(batch["stack"][..., 1:], batch["x"])
    assert torch.equal(batch["stack"][..., 0] + 1, batch["stack"][..., 1])


def test_what_only_some_members_say_cannot_be_joined_and_names_it() -> None:
    ranked = member(10, kind=PrioritizedReplayBuffer, alpha=1.0, beta=1.0)
    ensemble = everyone(ranked, member(10))
    assert len(ensemble.sample_flat()) == 8
    with refused(WrongRows, key=("priority_weight",)):
        ensemble.sample_flat(return_info=True)
    wide = ReplayBuffer(storage=LazyTensorStorage(4))
    wide.extend(TensorDict({"x": torch.zeros(4, 5)}, [4]))
    narrow = ReplayBuffer(storage=LazyTensorStorage(4))
    narrow.extend(TensorDict({"x": torch.zeros(4, 3)}, [4]))
    with refused(WrongRows, key=("x",)):
        everyone(wide, narrow).sample_flat()


def test_tensors_of_members_with_different_dtypes_are_not_converted() -> None:
    members = [ReplayBuffer(storage=LazyTensorStorage(4)) for _ in range(2)]
    for buffer, dtype in zip(members, (torch.float32, torch.float64), strict=True):
        buffer.extend(torch.ones(4, dtype=dtype))
    for draw in (everyone(*members).sample, everyone(*members).sample_flat):
        with pytest.raises(UsageError):
            draw()


def test_a_seed_of_the_ensemble_gives_every_draw() -> None:
    def draw(seed: int) -> list[Any]:
        storages = [LazyTensorStorage(50), LazyTensorStorage(50)]
        made = ReplayBufferEnsemble(
            storages=StorageEnsemble(*storages),
            samplers=SamplerEnsemble(RandomSampler(), RandomSampler()),
            seed=seed,
        )
        for buffer in made.buffers:
            buffer.extend(steps(50))
        first, second = everyone(*made.buffers, batch_size=40).sample()["number"].tolist()
        assert first != second
        return [first, second, made.sample(4)["number"].tolist()]

    assert draw(0) == draw(0) and draw(0) != draw(1)


def test_a_row_of_a_member_is_named_by_all_of_its_dimensions() -> None:
    number = torch.arange(40).view(4, 10)
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(40, ndim=2))
    buffer.extend(TensorDict({"number": number}, [4, 10]))
    assert int(ReplayBufferEnsemble(buffer)[0, 1, 3]["number"]) == int(number[1, 3])


@pytest.mark.parametrize("drawn", [0, -1])
def test_a_batch_is_drawn_of_at_least_one_member(drawn: int) -> None:
    with refused(WrongSize, argument="num_buffer_sampled", found=drawn):
        ReplayBufferEnsemble(member(4), num_buffer_sampled=drawn)
