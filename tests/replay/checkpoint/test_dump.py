"""Buffers kept in a folder: only the rows there are, nothing made up."""

from __future__ import annotations

import resource
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

import datasets_cli
from datasets_cli import (
    BlockShuffleSampler,
    DistributedSampler,
    ExperienceReplay,
    FrameStack,
    LazyMemmapStorage,
    LazyTensorStorage,
    PrioritizedSampler,
    PrioritizedSliceSampler,
    RandomSampler,
    ReplayBuffer,
    SamplerWithoutReplacement,
    SliceSampler,
    SliceSamplerWithoutReplacement,
    TensorDictMaxValueWriter,
    TensorDictReplayBuffer,
)
from datasets_cli.config import Config
from datasets_cli.errors import (
    DiskFull,
    ImmutableError,
    MissingFile,
    NotWritable,
    Unsupported,
    UsageError,
    WrongSize,
    WrongState,
)
from datasets_cli.torchrl import PrioritizedReplayBuffer
from tests.replay.storages.test_storages import steps
from tests.support.refusals import refused

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchrl.data import replay_buffers as peer


@pytest.mark.parametrize(
    ("kind", "written"), [(LazyTensorStorage, 10), (LazyTensorStorage, 14), (LazyMemmapStorage, 6)]
)
def test_a_buffer_comes_back_with_its_rows_and_continues(
    tmp_path: Path, kind: Any, written: int
) -> None:
    first = TensorDictReplayBuffer(storage=kind(10), sampler=SamplerWithoutReplacement(), seed=0)
    first.extend(steps(written))
    first.sample(2)
    first.dumps(tmp_path / "new" / "folder")
    other = TensorDictReplayBuffer(storage=kind(10), sampler=SamplerWithoutReplacement(), seed=0)
    other.loads(tmp_path / "new" / "folder")
    assert len(other) == len(first) and bool((other[:] == first[:]).all())
    assert torch.equal(other.sample(3)["index"], first.sample(3)["index"])
    assert torch.equal(other.extend(steps(3, 50)), first.extend(steps(3, 50)))


def test_only_the_rows_there_are_are_written(tmp_path: Path) -> None:
    buffer = ReplayBuffer(storage=LazyMemmapStorage(1_000_000))
    buffer.extend(steps(7))
    buffer.dumps(tmp_path)
    assert (tmp_path / "buffer.pt").stat().st_size < 20_000


def test_a_full_disk_is_named_and_the_older_dump_stays(tmp_path: Path) -> None:
    buffer = PrioritizedReplayBuffer(alpha=0.5, beta=0.5, storage=LazyTensorStorage(100_000))
    buffer.extend(torch.zeros(10))
    buffer.dumps(tmp_path)
    for number in (10_000, 100_000):  # at first it is full for priorities, and then for rows
        buffer.extend(torch.zeros(number))
        _, most = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, most))
        try:
            with refused(DiskFull, path=tmp_path / "buffer.pt"):
                buffer.dumps(tmp_path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    buffer.loads(tmp_path)
    assert len(buffer) == 10 and not [*tmp_path.glob(".*")]


def test_hooks_take_rows_and_return_others(tmp_path: Path) -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(10))
    buffer.extend(steps(4))
    buffer.register_save_hook(lambda rows: rows.select("number"))
    buffer.register_load_hook(lambda rows: TensorDict({"more": rows["number"] + 1}, [len(rows)]))
    buffer.dumps(tmp_path)
    other = ReplayBuffer(storage=LazyTensorStorage(10))
    other.loads(tmp_path)
    assert torch.equal(other[:]["number"], torch.arange(4))
    with pytest.raises(UsageError) as error:
        buffer.loads(tmp_path)
    assert error.value.path == tmp_path and len(buffer) == 4


@pytest.mark.parametrize("when", ["save", "load"])
def test_rows_that_a_hook_leaves_of_others_do_not_get_their_priorities(
    tmp_path: Path, when: str
) -> None:
    first, other = (
        ReplayBuffer(storage=LazyTensorStorage(10), sampler=PrioritizedSampler(10, 1.0, 1.0))
        for _ in range(2)
    )
    first.extend(steps(10))
    first.update_priority(torch.arange(10), torch.arange(10.0))
    first.register_save_hook(lambda rows: rows[2:5] if when == "save" else rows)
    other.register_load_hook(lambda rows: rows[2:5] if when == "load" else rows)
    first.dumps(tmp_path)
    other.loads(tmp_path)
    assert other.sample(100)["number"].unique().tolist() == [2, 3, 4]
    assert other.state_dict()["sampler"]["priorities"].tolist() == [9.0] * 3


def test_a_dump_of_more_rows_than_fit_is_refused(tmp_path: Path) -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(10))
    buffer.extend(steps(4))
    buffer.dumps(tmp_path)
    with refused(WrongSize, expected=4, found=3, path=tmp_path):
        ReplayBuffer(storage=LazyTensorStorage(3)).loads(tmp_path)
    with refused(MissingFile, path=tmp_path / "nothing" / "buffer.pt"):
        buffer.loads(tmp_path / "nothing")


def slices_of(storage: Any) -> TensorDictReplayBuffer:
    sampler = SliceSampler(slice_len=2, end_key=("next", "done"))
    return TensorDictReplayBuffer(storage=storage, sampler=sampler, batch_size=600, seed=0)


@pytest.mark.parametrize(("ndim", "room"), [(1, 16), (1, 40), (2, 16), (2, 40)])
def test_slices_of_a_full_ring_that_was_loaded_never_cross_its_seam(
    tmp_path: Path, ndim: int, room: int
) -> None:
    first, other = (slices_of(LazyTensorStorage(size, ndim=ndim)) for size in (16, room))
    data = steps(23) if ndim == 1 else torch.stack([steps(11), steps(11, 100)])
    first.extend(data)
    first.dumps(tmp_path)
    other.loads(tmp_path)
    drawn = [buffer.sample()["number"].view(-1, 2) for buffer in (first, other)]
    assert all(bool((pairs.diff() == 1).all()) for pairs in drawn)
    assert set(drawn[0].flatten().tolist()) == set(drawn[1].flatten().tolist())
    other.extend(data[..., :2])
    assert len(other) == min(room, 16 + data[..., :2].numel())  # nothing newer is written over


def test_priorities_follow_a_ring_into_a_larger_storage(tmp_path: Path) -> None:
    first, other = (
        TensorDictReplayBuffer(
            storage=LazyTensorStorage(size), sampler=PrioritizedSampler(20, 1.0, 1.0, eps=0.0)
        )
        for size in (10, 20)
    )
    first.extend(steps(13))
    first.update_priority(torch.arange(10), torch.arange(10) == 1)
    first.dumps(tmp_path)
    other.loads(tmp_path)
    assert (
        set(other.sample(20)["number"].tolist()) == {11} == set(first.sample(20)["number"].tolist())
    )


def test_rows_with_a_shape_of_their_own_come_back(tmp_path: Path) -> None:
    first, other = (ReplayBuffer(storage=LazyTensorStorage(10)) for _ in range(2))
    first.extend(steps(20).reshape(4, 5))
    first.dumps(tmp_path)
    other.loads(tmp_path)
    assert bool((other[:] == first[:]).all()) and other[:].batch_size == (4, 5)
    assert other.extend(steps(10).reshape(2, 5)).tolist() == [4, 5]


def test_ranks_that_torchrl_kept_are_computed_again(tmp_path: Path) -> None:
    theirs = peer.ReplayBuffer(
        storage=peer.LazyTensorStorage(4), writer=peer.TensorDictMaxValueWriter(rank_key="number")
    )
    theirs.extend(steps(9))
    theirs.dumps(tmp_path)
    ours = ReplayBuffer(storage=LazyTensorStorage(4), writer=TensorDictMaxValueWriter("number"))
    ours.loads(tmp_path)
    assert ours.extend(steps(1, 4)).tolist() == [-1]
    ours.extend(steps(1, 20))
    assert sorted(ours[:]["number"].tolist()) == [6, 7, 8, 20]


@pytest.mark.parametrize("data", [torch.arange(6), (torch.arange(6), torch.arange(6))])
def test_what_torchrl_dumped_outside_of_tensordicts_is_refused(tmp_path: Path, data: Any) -> None:
    theirs = peer.ReplayBuffer(storage=peer.LazyTensorStorage(10))
    theirs.extend(data)
    theirs.dumps(tmp_path)
    with refused(Unsupported, path=tmp_path / "storage"):
        ReplayBuffer(storage=LazyTensorStorage(10)).loads(tmp_path)


def test_a_datasets_rows_are_dumped_from_a_buffer_that_they_were_copied_into(
    tmp_path: Path, door: str
) -> None:
    replay = ExperienceReplay(door)
    first, other = (ReplayBuffer(storage=LazyTensorStorage(len(replay) + 9)) for _ in range(2))
    first.extend(replay[:])
    first.dumps(tmp_path)
    other.loads(tmp_path)
    assert bool((other[:] == replay[:]).all())
    assert other.extend(replay[:2]).tolist() == [len(replay), len(replay) + 1]
    with pytest.raises(ImmutableError):
        replay.loads(tmp_path)


def test_a_file_cannot_be_the_folder_of_a_dump(tmp_path: Path) -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(5))
    buffer.extend(torch.arange(3))
    file = tmp_path / "file"
    file.write_text("mine")
    for path in (file, file / "below"):
        with refused(NotWritable, expected="a folder", found=str(file)):
            buffer.dumps(path)
    assert file.read_text() == "mine"


# Dumps and states of a dataset's buffer name the data and hold none of them.


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


@pytest.mark.parametrize(
    ("sampler", "prefetch"),
    [*((name, None) for name in SAMPLERS), ("epoch", 2), ("slices by priority", 2)],
)
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


@pytest.mark.parametrize(("dumped", "own"), [("epoch", "slices"), ("priorities", "blocks")])
def test_a_dump_is_refused_by_another_kind_of_sampler(
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


def test_the_same_data_in_another_layout_continue(
    tmp_path: Path, door: str, config: Config
) -> None:
    first = opened(door, "epoch", seed=0)
    batch = first.sample()
    first.dumps(tmp_path)
    right = first.sample()
    layout = "compact" if first.manifest.layout == "ted" else "ted"
    datasets_cli.convert(door, layout, config=config)
    other = opened(door, "epoch", layout=layout)
    assert other.manifest.layout == layout and len(batch) == 12
    other.loads(tmp_path)
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
        with refused(WrongState, id=ours.id, expected=ours.content, found=others.content):
            load()


def test_a_datasets_dump_is_no_dump_of_rows(tmp_path: Path, door: str) -> None:
    replay = opened(door)
    replay.dumps(tmp_path)
    buffer = ReplayBuffer(storage=LazyTensorStorage(2000))
    buffer.extend(steps(3))
    for load in (
        lambda: buffer.loads(tmp_path),
        lambda: buffer.load_state_dict(replay.state_dict()),
    ):
        with refused(WrongState, id=door, expected=replay.manifest.content):
            load()
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
