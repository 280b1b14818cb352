"""Prefetching: the same batches in the same order, made while the caller is busy."""

from __future__ import annotations

import copy
import pickle
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from datasets_cli import (
    LazyTensorStorage,
    PrioritizedSampler,
    RandomSampler,
    SamplerWithoutReplacement,
    SliceSampler,
    TensorDictReplayBuffer,
    open_storage,
)
from datasets_cli.errors import UsageError
from datasets_cli.schema.mapping import DeviceOptions, choose_device_options
from datasets_cli.store.layouts.compact_writer import CompactWriter
from datasets_cli.store.layouts.ted_writer import TedWriter
from tests.store.test_compact import pixel_rows, transitions, write
from tests.support.refusals import refused


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(CompactWriter, tmp_path / "rows", pixel_rows([20, 30]))
    return tmp_path / "rows"


def buffer(folder: Path, prefetch: int | None, **arguments: Any) -> TensorDictReplayBuffer:
    return TensorDictReplayBuffer(
        storage=open_storage(folder),
        sampler=SamplerWithoutReplacement(),
        batch_size=8,
        seed=0,
        prefetch=prefetch,
        **arguments,
    )


def indexes(batches: Any) -> list[list[int]]:
    return [batch["index"].tolist() for batch in batches]


@pytest.mark.parametrize("rows", [pixel_rows([20, 30]), transitions([20, 30], 0)], ids=range(2))
@pytest.mark.parametrize("kind", [RandomSampler, SamplerWithoutReplacement, SliceSampler])
@pytest.mark.parametrize("transform", [None, lambda batch: batch])
def test_batches_and_states_are_the_same_wherever_each_is_made(
    kind: Any, rows: Any, transform: Any, tmp_path: Path
) -> None:
    write(CompactWriter, tmp_path / "rows", rows)
    storage = open_storage(tmp_path / "rows")
    common = {"storage": storage, "batch_size": 8, "seed": 1, "transform": transform}
    arguments = {"num_slices": 2} if kind is SliceSampler else {}
    plain, ahead = (
        TensorDictReplayBuffer(**common, sampler=kind(**arguments), prefetch=prefetch)
        for prefetch in (None, 3)
    )
    for number in range(100):
        assert indexes([ahead.sample()]) == indexes([plain.sample()])
        if number % 9 == 0:  # what is under way is given back
            right, seen = (buffer.state_dict()["generator"] for buffer in (plain, ahead))
            assert torch.equal(right, seen)
            ahead.reader.rewind()


def test_rows_that_are_only_gathered_are_gathered_in_place(folder: Path) -> None:
    buffer = TensorDictReplayBuffer(storage=open_storage(folder), batch_size=4, prefetch=2, seed=0)
    buffer.sample()
    assert buffer.reader.num_ahead == 0
    buffer.append_transform(lambda batch: batch)
    buffer.sample()
    assert buffer.reader.num_ahead == 2


def test_rows_that_change_are_drawn_as_early_as_prefetch_says() -> None:
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(9), batch_size=3, prefetch=1)
    buffer.extend(TensorDict({"number": torch.arange(9)}, [9]))
    buffer.sample()
    assert buffer.reader.num_ahead == 1


def test_transforms_run_in_one_other_thread(folder: Path) -> None:
    seen: list[int] = []

    def note(batch: TensorDict) -> TensorDict:
        seen.append(threading.get_ident())
        return batch

    for _ in buffer(folder, 4, transform=note):
        pass
    assert len(set(seen)) == 1 and threading.get_ident() not in seen


def test_a_state_is_that_of_the_next_batch_and_not_of_those_under_way(folder: Path) -> None:
    first = buffer(folder, 3)
    for _ in range(2):
        first.sample()
    state = pickle.loads(pickle.dumps(first.state_dict()))
    rest = indexes(first)
    other = buffer(folder, 2)
    other.sample()
    other.load_state_dict(state)
    assert indexes(other) == rest


def test_a_new_transform_acts_on_the_very_next_batch_and_loses_none(folder: Path) -> None:
    ahead, plain = buffer(folder, 3), buffer(folder, None)
    seen = indexes([ahead.sample(), ahead.sample()])
    ahead.append_transform(lambda batch: batch.set("mark", batch["index"]))
    for batch in ahead:
        assert "mark" in batch
        seen += indexes([batch])
    assert seen == indexes(plain)


def test_writing_rows_keeps_the_priorities_of_the_others() -> None:
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(100),
        sampler=PrioritizedSampler(100, 1.0, 1.0),
        batch_size=4,
        prefetch=2,
    )
    buffer.extend(TensorDict({"number": torch.arange(10)}, [10]))
    buffer.sample()
    buffer.update_priority(torch.arange(10), 5.0)
    buffer.extend(TensorDict({"number": torch.arange(3)}, [3]))
    priorities = buffer.state_dict()["sampler"]["priorities"]
    assert priorities.tolist() == [5.0] * 13


def test_a_transform_that_fails_fails_where_its_batch_is_taken(folder: Path) -> None:
    def fail(batch: TensorDict) -> TensorDict:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        buffer(folder, 2, transform=fail).sample()


def test_another_batch_size_loses_nothing_of_what_is_under_way(folder: Path) -> None:
    plain, ahead = buffer(folder, None), buffer(folder, 2)
    for size in (8, 3, 8, 5, 5, 8):
        assert ahead.sample(size)["index"].tolist() == plain.sample(size)["index"].tolist()
    ahead.batch_size = plain.batch_size = 4
    assert indexes(ahead) == indexes(plain)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_a_copy_goes_on_where_the_epoch_is_and_not_where_it_is_drawn(
    folder: Path, copied: Any
) -> None:
    ahead, plain = buffer(folder, 3), buffer(folder, None)
    ahead.sample(), plain.sample()
    assert indexes(copied(ahead)) == indexes(ahead) == indexes(plain)


def test_a_batch_whose_rows_are_written_over_before_it_is_made_is_drawn_again() -> None:
    busy, go_on = threading.Event(), threading.Event()

    def wait(batch: TensorDict) -> TensorDict:
        calls.append(batch)
        if len(calls) == 2:
            busy.set()
            assert go_on.wait(20)
        return batch

    def read_the_rest() -> None:
        for batch in buffer:
            seen.extend(batch["index"].tolist())

    rows = TensorDict({"number": torch.arange(9)}, [9])
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(9), sampler=SamplerWithoutReplacement(), batch_size=3, prefetch=1
    )
    calls: list[TensorDict] = []
    buffer.extend(rows)
    buffer.append_transform(wait)
    seen = buffer.sample()["index"].tolist()
    assert busy.wait(20)
    buffer.extend(rows)  # gives back the second batch, which still keeps the thread busy
    reader = threading.Thread(target=read_the_rest)
    reader.start()
    while buffer.reader._prefetch.oldest is None:  # type: ignore[union-attr]
        time.sleep(0.001)
    buffer.extend(rows)
    go_on.set()
    reader.join()
    assert sorted(seen) == list(range(9))


def test_a_batch_of_unknown_size_cannot_be_prefetched(folder: Path) -> None:
    with refused(UsageError, argument="prefetch", found=2):
        TensorDictReplayBuffer(storage=open_storage(folder), prefetch=2)


def test_page_locking_without_an_accelerator_warns_and_does_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    with pytest.warns(UserWarning, match="pin_memory=True has no effect"):
        assert choose_device_options(None, True, False) == DeviceOptions()


@pytest.mark.parametrize("kind", [TedWriter, CompactWriter])
def test_a_page_locked_batch_is_locked_once_a_field_or_once_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    locked: list[torch.Size] = []

    def lock(tensor: torch.Tensor) -> torch.Tensor:
        locked.append(tensor.shape)
        return tensor.clone()

    monkeypatch.setattr(torch.Tensor, "pin_memory", lock)
    dataset = write(kind, tmp_path / "rows", pixel_rows([20, 30]))
    plain = open_storage(tmp_path / "rows").get(torch.arange(9))
    batch = open_storage(tmp_path / "rows", pin_memory=True).get(torch.arange(9))
    assert bool((batch == plain).all())
    if kind is TedWriter:
        assert len(locked) == len(dataset.keys)
    else:
        assert locked.count(torch.Size((9, 2 * dataset.manifest.record["record_bytes"]))) == 1
        assert len(locked) < len(dataset.keys)
