"""Buffers kept in a folder: only the rows there are, TorchRL's folders too, nothing made up."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from datasets_cli import (
    LazyMemmapStorage,
    LazyTensorStorage,
    ListStorage,
    PrioritizedSampler,
    ReplayBuffer,
    SamplerWithoutReplacement,
    TensorDictMaxValueWriter,
    TensorDictReplayBuffer,
)
from datasets_cli.errors import DamagedDataset, UsageError
from tests.test_storages import steps

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchrl.data import replay_buffers as peer


@pytest.mark.parametrize("written", [6, 10, 14])
@pytest.mark.parametrize("kind", [LazyTensorStorage, LazyMemmapStorage])
def test_a_buffer_comes_back_with_its_rows_and_goes_on(
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
    assert (tmp_path / "storage" / "number.memmap").stat().st_size == 7 * 8


def test_priorities_come_back(tmp_path: Path) -> None:
    first, other = (
        TensorDictReplayBuffer(
            storage=LazyTensorStorage(10), sampler=PrioritizedSampler(10, 0.7, 0.5), seed=1
        )
        for _ in range(2)
    )
    first.extend(steps(8))
    first.update_priority(torch.arange(8), torch.arange(8.0))
    first.dumps(tmp_path)
    other.loads(tmp_path)
    assert bool((first.sample(50) == other.sample(50)).all())


@pytest.mark.parametrize("written", [6, 14])
def test_what_torchrl_dumped_is_read(tmp_path: Path, written: int) -> None:
    theirs = peer.TensorDictReplayBuffer(storage=peer.LazyTensorStorage(10), batch_size=2)
    theirs.extend(steps(written))
    theirs.dumps(tmp_path)
    ours = TensorDictReplayBuffer(storage=LazyTensorStorage(10))
    ours.loads(tmp_path)
    assert bool((ours[:] == theirs[:].exclude("index")).all())
    assert torch.equal(ours.extend(steps(2)), theirs.extend(steps(2)))


def test_environments_side_by_side_come_back(tmp_path: Path) -> None:
    first, other = (ReplayBuffer(storage=LazyTensorStorage(20, ndim=2)) for _ in range(2))
    for start in (0, 5):
        first.extend(torch.stack([steps(3, start), steps(3, start + 100)]))
    first.dumps(tmp_path)
    other.loads(tmp_path)
    assert bool((other[:] == first[:]).all())
    more = torch.stack([steps(5), steps(5)])
    assert torch.equal(other.extend(more), first.extend(more))


def test_ranks_come_back(tmp_path: Path) -> None:
    first, other = (
        ReplayBuffer(storage=LazyTensorStorage(3), writer=TensorDictMaxValueWriter("number"))
        for _ in range(2)
    )
    first.extend(steps(5))
    first.dumps(tmp_path)
    other.loads(tmp_path)
    assert torch.equal(other.extend(steps(3, 3)), first.extend(steps(3, 3)))


def test_hooks_take_rows_and_return_others(tmp_path: Path) -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(10))
    buffer.extend(steps(4))
    buffer.register_save_hook(lambda rows: rows.select("number"))
    buffer.register_load_hook(lambda rows: TensorDict({"more": rows["number"] + 1}, [len(rows)]))
    buffer.dumps(tmp_path)
    other = ReplayBuffer(storage=LazyTensorStorage(10))
    other.loads(tmp_path)
    assert torch.equal(other[:]["number"], torch.arange(4))
    with pytest.raises(UsageError, match="same keys"):
        buffer.loads(tmp_path)
    assert len(buffer) == 4


@pytest.mark.parametrize("damage", ["short", "missing"])
def test_a_leaf_that_is_not_whole_is_never_filled_with_zeros(tmp_path: Path, damage: str) -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(10))
    buffer.extend(steps(4))
    buffer.dumps(tmp_path)
    leaf = tmp_path / "storage" / "next" / "done.memmap"
    leaf.unlink() if damage == "missing" else leaf.write_bytes(leaf.read_bytes()[:-1])
    with pytest.raises(DamagedDataset, match=r"done\.memmap has"):
        buffer.loads(tmp_path)


def test_rows_that_do_not_fit_or_cannot_be_kept_are_refused(tmp_path: Path) -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(10))
    buffer.extend(steps(4))
    buffer.dumps(tmp_path)
    with pytest.raises(UsageError, match="room for 3"):
        ReplayBuffer(storage=LazyTensorStorage(3)).loads(tmp_path)
    with pytest.raises(UsageError, match="TensorDicts"):
        ReplayBuffer(storage=ListStorage(3)).dumps(tmp_path)
    with pytest.raises(FileNotFoundError):
        buffer.loads(tmp_path / "nothing")
