"""Write counts of rows, which detect stale handles, against TorchRL's."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from datasets_cli import LazyTensorStorage, RoundRobinWriter, TensorDictReplayBuffer
from tests.support.parity import ours, theirs

SLOTS = torch.tensor([[0, 1, 2], [3, 9, -1]])


def rows(count: int) -> TensorDict:
    return TensorDict({"a": torch.arange(count)}, [count])


def filled(library: Any, storage: str, writer: str, buffer: str) -> Any:
    made = getattr(library, buffer)(
        storage=getattr(library, storage)(4),
        writer=getattr(library, writer)(track_generations=True),
        batch_size=8,
    )
    for count in (3, 2, 9):
        made.extend(rows(count))
    made.add(rows(1)[0])
    made[:2] = rows(2)  # in place of others: not counted
    return made


@pytest.mark.parametrize("buffer", ["ReplayBuffer", "TensorDictReplayBuffer"])
@pytest.mark.parametrize("writer", ["RoundRobinWriter", "TensorDictRoundRobinWriter"])
@pytest.mark.parametrize("storage", ["ListStorage", "LazyTensorStorage", "LazyMemmapStorage"])
def test_rows_are_counted_as_torchrl_counts_them(storage: str, writer: str, buffer: str) -> None:
    mine, right = (filled(library, storage, writer, buffer) for library in (ours, theirs))
    for _ in range(2):
        told = mine.writer.generations_of(SLOTS)
        assert torch.equal(told, right.writer.generations_of(SLOTS)) and told[0, 0] > 1
        batch, info = mine.sample(return_info=True)
        assert torch.equal(info["index_generation"], mine.writer.generations_of(info["index"]))
        keys = {*right.sample().keys()} - {"index"}  # ours comes where the buffer says so
        assert {*batch.keys()} - {"index"} == keys
        for made in (mine, right):
            made.empty()
            made.extend(rows(3))


def test_steps_of_several_environments_are_counted_once() -> None:
    told = []
    for library in (ours, theirs):
        writer = library.RoundRobinWriter(track_generations=True)
        buffer = library.TensorDictReplayBuffer(
            storage=library.LazyTensorStorage(8, ndim=2), writer=writer, batch_size=99
        )
        grid = TensorDict({"a": torch.arange(6).view(2, 3)}, [2, 3])
        index = buffer.extend(grid)
        buffer.extend(grid)
        assert torch.equal(buffer.sample()["index_generation"].unique(), torch.tensor([0, 1]))
        steps = tuple(index.unbind(-1))
        told.append((writer.generations_of(index), writer.generations_of(steps)))
    for mine, right in zip(*told, strict=True):
        assert mine.tolist() == right.tolist() == [1, 1, 1, 1, 0, 0]


def test_two_buffers_of_one_storage_see_what_the_other_writes() -> None:
    storage, writer = LazyTensorStorage(4), RoundRobinWriter(track_generations=True)
    first = TensorDictReplayBuffer(storage=storage, writer=writer, batch_size=2)
    index = first.extend(rows(4))
    copied = copy.deepcopy(first)
    TensorDictReplayBuffer(storage=storage).extend(rows(3))
    assert writer.generations_of(index).tolist() == [1, 1, 1, 0]
    copied.extend(rows(4))
    assert copied.writer.generations_of(index).tolist() == [1, 1, 1, 1]
    assert writer.generations_of(index).tolist() == [1, 1, 1, 0]


def tracked() -> TensorDictReplayBuffer:
    writer = RoundRobinWriter(track_generations=True)
    return TensorDictReplayBuffer(storage=LazyTensorStorage(4), writer=writer, batch_size=2)


def test_counts_continue_from_a_state_and_a_dump(tmp_path: Path) -> None:
    first, by_state, by_dump = tracked(), tracked(), tracked()
    first.extend(rows(6))
    first.dumps(tmp_path / "dump")
    by_state.load_state_dict(first.state_dict())
    by_dump.loads(tmp_path / "dump")
    for buffer in (by_state, by_dump):
        buffer.extend(rows(1))
        assert buffer.writer.generations_of(torch.arange(5)).tolist() == [1, 1, 1, 0, -1]
