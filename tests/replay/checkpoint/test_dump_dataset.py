"""Dumps and states of a dataset's buffer name the data and hold none of them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

import datasets_cli
from datasets_cli import (
    BlockShuffleSampler,
    DistributedSampler,
    ExperienceReplay,
    FrameStack,
    LazyTensorStorage,
    PrioritizedSampler,
    PrioritizedSliceSampler,
    RandomSampler,
    ReplayBuffer,
    SamplerWithoutReplacement,
    SliceSampler,
    SliceSamplerWithoutReplacement,
    TensorDictReplayBuffer,
)
from datasets_cli.config import Config
from datasets_cli.errors import ImmutableError, WrongState
from tests.replay.storages.test_storages import steps

SAMPLERS: dict[str, Any] = {
    "random": RandomSampler,
    "epoch": SamplerWithoutReplacement,
    "slices": lambda: SliceSampler(slice_len=4),
    "slices once": lambda: SliceSamplerWithoutReplacement(slice_len=4),
    "priorities": lambda: PrioritizedSampler(2000, 0.7, 0.5),
    "slices by priority": lambda: PrioritizedSliceSampler(2000, 0.7, 0.5, slice_len=4),
    "distributed": lambda: DistributedSampler(2, 1),
    "blocks": lambda: BlockShuffleSampler(50, 2, num_replicas=2, rank=1),
}


def opened(door: str, sampler: str = "random", **arguments: Any) -> ExperienceReplay:
    return ExperienceReplay(door, 12, sampler=SAMPLERS[sampler](), download=False, **arguments)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("prefetch", [None, 2])
def test_a_dump_has_no_rows_and_its_draws_continue(
    tmp_path: Path, door: str, sampler: str, prefetch: int | None
) -> None:
    first = opened(door, sampler, seed=0, prefetch=prefetch)
    priorities = 0
    if "priorit" in sampler:  # before batches are drawn ahead, which is by what is known then
        first.update_priority(torch.arange(9), torch.arange(9.0))
        priorities = 8 * len(first)
    first.sample()
    first.sample()
    first.dumps(tmp_path / "dump")
    # Most of it is the state of the generator.
    assert (tmp_path / "dump" / "buffer.pt").stat().st_size - priorities < 9000
    other = opened(door, sampler, seed=1)
    other.sample()
    other.loads(tmp_path / "dump")
    for _ in range(3):
        assert torch.equal(first.sample()["index"], other.sample()["index"])


@pytest.mark.parametrize(("dumped", "own"), [*itertools.permutations(SAMPLERS, 2)])
def test_a_dump_is_refused_by_every_other_kind_of_sampler(
    tmp_path: Path, door: str, dumped: str, own: str
) -> None:
    opened(door, dumped, seed=0).dumps(tmp_path / "dump")
    replay = opened(door, own, seed=1)
    before = repr(replay.state_dict())
    with pytest.raises(WrongState):
        replay.loads(tmp_path / "dump")
    assert repr(replay.state_dict()) == before


def test_a_buffer_without_a_seed_continues_too(tmp_path: Path, door: str) -> None:
    first = opened(door)
    first.dumps(tmp_path)
    right = first.sample()["index"]
    other = opened(door)
    other.loads(tmp_path)
    assert torch.equal(other.sample()["index"], right)


@pytest.mark.parametrize("how", ["dump", "state"])
def test_the_same_data_in_another_layout_continue(
    tmp_path: Path, door: str, config: Config, how: str
) -> None:
    first = opened(door, "epoch", seed=0)
    batch = first.sample()
    first.dumps(tmp_path)
    state = first.state_dict()
    right = first.sample()
    layout = "compact" if first.manifest.layout == "ted" else "ted"
    datasets_cli.convert(door, layout, config=config)
    other = opened(door, "epoch", layout=layout)
    assert other.manifest.layout == layout and len(batch) == 12
    other.loads(tmp_path) if how == "dump" else other.load_state_dict(state)
    assert bool((other.sample() == right).all())


def test_stacked_frames_are_of_the_same_dataset(tmp_path: Path, door: str) -> None:
    single = opened(door, "epoch", seed=0)
    stacked = TensorDictReplayBuffer(
        storage=FrameStack(single.storage, 3), sampler=SamplerWithoutReplacement(), batch_size=12
    )
    single.dumps(tmp_path)
    stacked.loads(tmp_path)
    assert torch.equal(stacked.sample()["index"], single.sample()["index"])
    stacked.dumps(tmp_path)
    single.loads(tmp_path)
    assert torch.equal(stacked.sample()["index"], single.sample()["index"])


@pytest.fixture
def derived(tmp_path: Path, door: str) -> ReplayBuffer:
    """A buffer over other data."""
    storage = opened(door).preprocess(lambda rows: rows, dest=tmp_path / "derived", num_workers=0)
    return ReplayBuffer(storage=storage)


def test_other_data_are_refused_with_both_contents(tmp_path: Path, door: str, derived: Any) -> None:
    replay = opened(door)
    replay.dumps(tmp_path / "dump")
    ours, others = replay.manifest, derived.storage.dataset.manifest
    for load in (
        lambda: derived.loads(tmp_path / "dump"),
        lambda: derived.load_state_dict(replay.state_dict()),
    ):
        with pytest.raises(WrongState) as error:
            load()
        assert (error.value.id, error.value.expected) == (ours.id, ours.content)
        assert error.value.found == others.content


def test_a_datasets_dump_is_no_dump_of_rows(tmp_path: Path, door: str) -> None:
    replay = opened(door)
    replay.dumps(tmp_path)
    buffer = ReplayBuffer(storage=LazyTensorStorage(2000))
    buffer.extend(steps(3))
    for load in (
        lambda: buffer.loads(tmp_path),
        lambda: buffer.load_state_dict(replay.state_dict()),
    ):
        with pytest.raises(WrongState) as error:
            load()
        assert error.value.id == door and error.value.expected == replay.manifest.content
    assert len(buffer) == 3
    state = buffer.state_dict()
    buffer.dumps(tmp_path)
    for load in (lambda: replay.loads(tmp_path), lambda: replay.load_state_dict(state)):
        with pytest.raises(ImmutableError):
            load()


def test_a_state_names_the_dataset_and_one_without_a_name_is_taken(door: str) -> None:
    first, other = opened(door, "epoch", seed=0), opened(door, "epoch")
    state = first.state_dict()
    assert state.pop("dataset") == {
        "id": first.manifest.id,
        "content": first.manifest.content,
        "num_rows": len(first),
    }
    assert state.keys() == {"sampler", "generator"}
    other.load_state_dict(state)
    assert torch.equal(first.sample()["index"], other.sample()["index"])
