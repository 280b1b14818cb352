"""What TorchRL's users read, set and call on a buffer beside drawing and writing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDict

from datasets_cli import (
    D4RLExperienceReplay,
    LazyTensorStorage,
    ListStorage,
    RenameTransform,
    ReplayBuffer,
    ReplayBufferEnsemble,
    RoundRobinWriter,
    SamplerWithoutReplacement,
    TensorDictMaxValueWriter,
    TensorDictReplayBuffer,
    TensorStorage,
)
from datasets_cli.errors import ImmutableError, UnknownKey, WrongRows
from tests.support.parity import ours, theirs

STORAGES = ["ListStorage", "LazyTensorStorage", "LazyMemmapStorage"]


def rows(start: int, count: int) -> TensorDict:
    number = torch.arange(start, start + count)
    return TensorDict({"a": number, "next": {"b": number.float().unsqueeze(-1)}}, [count])


def filled(library: Any, storage: str, prefetch: int | None = None) -> Any:
    buffer = library.TensorDictReplayBuffer(
        storage=getattr(library, storage)(8), batch_size=4, prefetch=prefetch
    )
    buffer.extend(rows(0, 5))
    buffer.extend(rows(5, 6))
    return buffer


@pytest.mark.parametrize("storage", STORAGES)
def test_stats_and_the_count_of_writes_are_torchrls(storage: str) -> None:
    mine, right = filled(ours, storage), filled(theirs, storage)
    assert mine.stats() == right.stats() and mine.write_count == right.write_count == 11
    for keeps in (False, True):
        for buffer in (mine, right):
            buffer.empty(empty_write_count=not keeps)
            buffer.extend(rows(0, 2))
        assert mine.stats() == right.stats()


def test_stats_count_what_is_made_ahead_and_a_dataset_is_full(door: str) -> None:
    buffer = filled(ours, "LazyTensorStorage", prefetch=2)
    buffer.sample()
    assert buffer.stats()["prefetch_queue_size"] == 2
    dataset = D4RLExperienceReplay(door.removeprefix("d4rl/"))
    assert (dataset.write_count, dataset.stats()["utilization"]) == (0, 1.0)


def test_rows_that_were_taken_by_rank_are_counted_as_torchrl_counts_them() -> None:
    found = []
    for library in (ours, theirs):
        writer = library.TensorDictMaxValueWriter(rank_key="a")
        buffer = library.TensorDictReplayBuffer(storage=library.LazyTensorStorage(4), writer=writer)
        for start in (5, 0, 7):
            buffer.extend(rows(start, 3))
        found.append(buffer.write_count)
    assert found == [9, 9]


def test_the_count_of_writes_is_in_a_checkpoint() -> None:
    for writer in (RoundRobinWriter, lambda: TensorDictMaxValueWriter(rank_key="a")):
        buffer, other = (
            TensorDictReplayBuffer(storage=LazyTensorStorage(4), writer=writer()) for _ in "ab"
        )
        buffer.extend(rows(0, 3)), buffer.extend(rows(3, 3))
        other.load_state_dict(buffer.state_dict())
        assert other.write_count == buffer.write_count == 6


@pytest.mark.parametrize("storage", STORAGES[1:])
def test_entries_are_replaced_as_torchrl_replaces_them(storage: str) -> None:
    mine, right = filled(ours, storage), filled(theirs, storage)
    for buffer in (mine, right):
        buffer.set_("a", torch.arange(8) * 10)
        buffer.set_at_("a", torch.tensor([-1, -2]), torch.tensor([6, 2]))
        new = {"next": {"b": torch.ones(8, 1)}, "a": torch.zeros(8)}
        assert buffer.update_(new, keys_to_update=[("next", "b")]) is buffer
    assert mine[:]["a"].tolist() == right[:]["a"].tolist() == [0, 10, -2, 30, 40, 50, -1, 70]
    assert mine[:]["next", "b"].tolist() == right[:]["next", "b"].tolist() == [[1.0]] * 8


def test_many_rows_are_replaced_in_blocks_and_in_a_list_too() -> None:
    for storage in (LazyTensorStorage(10_000), ListStorage(10_000)):
        buffer = TensorDictReplayBuffer(storage=storage, batch_size=4)
        buffer.extend(rows(0, 9000))
        buffer.update_(rows(5, 9000).select("a"))
        assert torch.equal(buffer[:]["a"], torch.arange(5, 9005))
        assert torch.equal(buffer[:]["next", "b"].flatten(), torch.arange(9000.0))


@pytest.mark.parametrize(
    ("entries", "kind", "key", "found"),
    [
        ({"a": torch.arange(8), "c": torch.zeros(8)}, UnknownKey, "c", None),
        ({"a": torch.arange(8.0)}, WrongRows, "a", (torch.float32, [8])),
        ({"a": torch.arange(7)}, WrongRows, "a", (torch.int64, [7])),
    ],
)
def test_entries_of_another_form_are_rejected_before_any_is_written(
    entries: dict[str, torch.Tensor], kind: Any, key: str, found: Any
) -> None:
    buffer = filled(ours, "LazyTensorStorage")
    before = buffer[:]
    with pytest.raises(kind) as error:
        buffer.update_({"next": {"b": torch.zeros(8, 1)}, **entries})
    assert (error.value.key, error.value.found) == ((key,), found)
    with pytest.raises(UnknownKey):
        buffer.update_({"a": torch.arange(8)}, keys_to_update=["z"])
    assert bool((buffer[:] == before).all())


def test_a_dataset_keeps_its_entries(door: str) -> None:
    dataset = D4RLExperienceReplay(door.removeprefix("d4rl/"))
    with pytest.raises(ImmutableError):
        dataset.set_("action", dataset[:]["action"])


def test_parts_are_read_and_set_by_the_names_of_the_tutorials() -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(8), batch_size=2, transform=dict)
    assert (buffer._storage, buffer._sampler) == (buffer.storage, buffer.sampler)
    assert (buffer._writer, buffer._transform) == (buffer.writer, buffer.transform)
    buffer._sampler = SamplerWithoutReplacement(shuffle=False)
    buffer._storage = TensorStorage(rows(3, 4))
    buffer._writer = RoundRobinWriter()
    assert [sorted(dict(batch)["a"].tolist()) for batch in buffer] == [[3, 4], [5, 6]]
    assert buffer.writer.state_dict()["cursor"] == 0
    buffer.extend(rows(9, 1))
    assert buffer.storage.column(("a",)).tolist() == [9, 4, 5, 6]


def test_an_ensemble_counts_the_writes_of_its_members_and_inverts_a_transform() -> None:
    members = [filled(ours, "LazyTensorStorage") for _ in range(2)]
    ensemble = ReplayBufferEnsemble(*members, batch_size=4)
    stored_as_x = RenameTransform([], [], ["x"], ["a"])
    batch = ensemble.append_transform(stored_as_x, invert=True).sample()
    assert {"x"} == {"a", "x"} & set(batch.keys())
    ensemble.empty(empty_write_count=False)
    assert (ensemble.write_count, len(ensemble)) == (22, 0)
    ensemble.empty()
    assert ensemble.write_count == 0
