"""Storages whose rows several processes write and read."""

from __future__ import annotations

import copy
import logging
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections import namedtuple
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from tensordict import NonTensorStack, TensorDict

from datasets_cli import (
    ExperienceReplay,
    LazyMemmapStorage,
    LazyTensorStorage,
    ListStorage,
    PrioritizedSampler,
    RandomSampler,
    ReplayBuffer,
    SamplerWithoutReplacement,
    SliceSampler,
    SliceSamplerWithoutReplacement,
    TensorDictMaxValueWriter,
    TensorDictReplayBuffer,
    TensorStorage,
)
from datasets_cli.errors import DiskFull, EmptyBuffer, ImmutableError, NotWritable, Unsupported
from datasets_cli.replay.loaders import BatchStream
from datasets_cli.replay.storages.shared import SharedStorage
from datasets_cli.sources import temporary_folders
from datasets_cli.torchrl import TensorDictPrioritizedReplayBuffer
from tests.support.processes import Child
from tests.support.refusals import refused
from tests.support.shared_rings import stress

# Shared rows as two holders of one storage see them: a pickle makes another holder.


STORAGES = [LazyMemmapStorage, LazyTensorStorage]
Pair = namedtuple("Pair", "left right")


def rows(numbers: range) -> TensorDict:
    number = torch.tensor([*numbers])
    done = (number % 5 == 4).unsqueeze(1)
    following = TensorDict({"done": done, "number": number + 1}, [len(number)])
    return TensorDict({"number": number, "next": following}, [len(number)])


def made(kind: Any = LazyTensorStorage, size: int = 20, **arguments: Any) -> TensorDictReplayBuffer:
    return TensorDictReplayBuffer(storage=kind(size), batch_size=4, shared=True, **arguments)


def other(buffer: Any) -> Any:
    return pickle.loads(pickle.dumps(buffer))


def numbers(buffer: ReplayBuffer) -> list[int]:
    found: list[int] = buffer[:]["number"].tolist()
    return found


@pytest.mark.parametrize("kind", STORAGES)
def test_a_pickle_is_a_place_and_both_write_where_the_other_stopped(kind: Any) -> None:
    buffer = made(kind, 10_000)
    buffer.extend(rows(range(4000)))
    assert len(pickle.dumps(buffer)) < 6000
    second = other(buffer)
    assert second.extend(rows(range(3))).tolist() == [4000, 4001, 4002]
    assert buffer.add(rows(range(9, 10))[0]) == 4003
    assert len(second) == 4004 and second[4003]["number"] == 9
    assert buffer.writer.write_count == second.writer.write_count == 4004
    assert buffer.writer.cursor == second.storage.cursor == 4004


@pytest.mark.parametrize(
    "data",
    [
        torch.arange(6),
        (torch.arange(6), {"deep": [torch.arange(6.0)]}),
        TensorDict({"a": torch.arange(6).to(torch.uint16), ("b", "c"): torch.ones(6, 0)}, [6]),
    ],
    ids=["tensor", "structure", "tensordict"],
)
def test_who_was_there_before_the_first_rows_learns_their_form(data: Any) -> None:
    first = ReplayBuffer(storage=LazyTensorStorage(8), shared=True)
    second = other(first)
    first.extend(data)
    one, same = first[2:4], second[2:4]
    assert type(one) is type(same) and len(second) == 6
    if isinstance(data, TensorDict):
        assert {*one.keys(True, True)} == {*same.keys(True, True)}
        assert same["a"].dtype == torch.uint16
        assert same["a"].long().tolist() == [2, 3] and same["b", "c"].shape == (2, 0)
    else:
        assert repr(one) == repr(same)
    assert second.extend(data).tolist() == [6, 7, 0, 1, 2, 3]


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch's, of its own pickles
def test_a_form_that_cannot_be_told_is_refused_where_it_is_not_known() -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(8), shared=True)
    early = other(buffer)
    buffer.extend(Pair(torch.arange(3), torch.ones(3)))
    with pytest.raises(Unsupported):
        len(early)
    assert torch.equal(other(buffer)[:].left, torch.arange(3))


def test_batch_sizes_of_nested_rows_are_told() -> None:
    buffer = made(size=8)
    second = other(buffer)
    agents = TensorDict({"seen": torch.rand(6, 3, 2)}, [6, 3])
    buffer.extend(TensorDict({"agents": agents}, [6]))
    assert second[:4]["agents"].batch_size == (4, 3)
    assert torch.equal(second[:]["agents", "seen"], agents["seen"])


def test_text_stays_in_one_process() -> None:
    texts = TensorDict({"number": torch.arange(3), "text": NonTensorStack(*"abc")}, [3])
    alone = TensorDictReplayBuffer(storage=LazyMemmapStorage(8), batch_size=2)
    alone.extend(texts)
    assert not alone.shared and alone[:]["text"] == [*"abc"]
    assert alone.writer.cursor == alone.writer.write_count == 3
    copied = other(alone)
    alone.extend(texts)
    assert len(copied) == 3 and copied[:]["text"] == [*"abc"] and len(alone) == 6
    with pytest.raises(Unsupported):
        alone.share()
    for buffer in (made(), TensorDictReplayBuffer(storage=LazyMemmapStorage(8))):
        other(buffer)
        with pytest.raises(Unsupported):
            buffer.extend(texts)
        assert len(buffer) == 0 and buffer.extend(rows(range(2))).tolist() == [0, 1]


@pytest.mark.parametrize("kind", STORAGES)
def test_several_dimensions_are_shared_too(kind: Any) -> None:
    buffer = ReplayBuffer(storage=kind(12, ndim=2), shared=True)
    second = other(buffer)
    grid = torch.arange(8).view(2, 4)  # two environments, four steps
    buffer.extend(TensorDict({"number": grid}, [2, 4]))
    second.extend(TensorDict({"number": grid + 100}, [2, 4]))
    assert buffer.storage.cursor == second.storage.cursor == 2
    assert buffer[:]["number"].tolist() == [
        [102, 103, 2, 3, 100, 101],
        [106, 107, 6, 7, 104, 105],
    ]


def test_sharing_keeps_the_rows_that_are_there_and_where_the_next_one_goes() -> None:
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(6), batch_size=2)
    buffer.extend(rows(range(8)))
    assert not buffer.shared
    assert buffer.share() is buffer and buffer.shared
    assert numbers(buffer) == [6, 7, 2, 3, 4, 5] and buffer.writer.write_count == 8
    assert other(buffer).extend(rows(range(20, 21))).tolist() == [2]
    assert numbers(buffer) == [6, 7, 20, 3, 4, 5]


def test_a_copy_in_this_process_is_a_copy(tmp_path: Path) -> None:
    for kind in (LazyTensorStorage(9), LazyMemmapStorage(9, scratch_dir=tmp_path / "rows")):
        buffer = ReplayBuffer(storage=kind)
        buffer.extend(rows(range(4)))
        copied = copy.deepcopy(buffer)
        copied.extend(rows(range(50, 52)))
        assert numbers(copied) == [0, 1, 2, 3, 50, 51] and not copied.shared
        assert numbers(buffer) == [0, 1, 2, 3] and buffer.writer.cursor == 4


@pytest.mark.parametrize(
    "storage",
    [
        lambda: ListStorage(5),
        lambda: TensorStorage(torch.zeros(3)),
        lambda: LazyTensorStorage(5, device="meta"),
    ],
)
def test_a_storage_that_cannot_be_shared_is_refused(storage: Any) -> None:
    with pytest.raises(Unsupported):
        ReplayBuffer(storage=storage(), shared=True)


def test_memory_that_is_not_there_is_refused_before_a_write_kills_the_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(temporary_folders, "IN_MEMORY", tmp_path)
    buffer = ReplayBuffer(storage=LazyTensorStorage(2**40), shared=True)
    with pytest.raises(DiskFull) as full:
        buffer.extend(rows(range(3)))
    assert full.value.expected == 18_691_697_672_192 and "--shm-size" in str(full.value.advice)
    assert len(buffer) == 0


def test_rows_whose_files_were_deleted_are_not_opened(tmp_path: Path) -> None:
    buffer = made(LazyMemmapStorage)
    place, folder = pickle.dumps(buffer), buffer.storage.scratch_dir
    del buffer
    with refused(NotWritable, path=str(folder)):
        pickle.loads(place)
    first = made(partial(LazyMemmapStorage, scratch_dir=tmp_path))
    early, place = other(first), pickle.dumps(first)
    made(partial(LazyMemmapStorage, scratch_dir=tmp_path))  # nothing was written: another begins
    for open_again in (lambda: pickle.loads(place), lambda: early.extend(rows(range(3)))):
        with pytest.raises(NotWritable):
            open_again()


def test_files_are_made_with_the_first_rows(tmp_path: Path) -> None:
    with TemporaryDirectory(dir=tmp_path) as inside:
        folders = [Path(inside), tmp_path / "later"]
        storages = [LazyMemmapStorage(20, scratch_dir=folder) for folder in folders]
        buffers = [TensorDictReplayBuffer(storage=storage) for storage in storages]
        assert not [*Path(inside).iterdir()] and not folders[1].exists() and len(buffers[0]) == 0
        folders[1].mkdir()
        for buffer in buffers:
            assert buffer.shared and buffer.extend(rows(range(3))).tolist() == [0, 1, 2]
            assert buffer.writer.cursor == buffer.writer.write_count == 3
        again = made(partial(LazyMemmapStorage, scratch_dir=tmp_path / "again"))
        again.load_state_dict(buffers[0].state_dict())
    assert buffers[0].extend(rows(range(3, 5))).tolist() == [3, 4]  # its folder is gone
    assert numbers(buffers[0]) == [*range(5)] and numbers(again) == [*range(3)]


def test_threads_that_write_the_first_rows_at_once_write_to_one_storage() -> None:
    buffer, both = made(LazyMemmapStorage), threading.Barrier(2)

    def write(start: int) -> None:
        both.wait()
        buffer.extend(rows(range(start, start + 5)))

    threads = [threading.Thread(target=write, args=(start,)) for start in (0, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers(buffer)) == [*range(10)]


def test_a_process_forked_before_the_first_rows_shares_them(tmp_path: Path) -> None:
    storage = LazyMemmapStorage(20, scratch_dir=tmp_path / "rows")
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=4)
    number = os.fork()
    if not number:
        os._exit(0 if buffer.extend(rows(range(3))).tolist() == [0, 1, 2] else 1)
    assert os.waitpid(number, 0)[1] == 0
    assert numbers(buffer) == [0, 1, 2] and buffer.add(rows(range(3, 4))[0]) == 3


def test_rows_outlive_their_maker_in_a_folder_of_the_users(tmp_path: Path) -> None:
    buffer = ReplayBuffer(storage=LazyMemmapStorage(5, scratch_dir=tmp_path))
    buffer.extend(rows(range(3)))
    place = pickle.dumps(buffer)
    del buffer
    assert numbers(pickle.loads(place)) == [0, 1, 2]


def test_an_epoch_begins_again_when_another_clears_the_rows() -> None:
    buffer = made(sampler=SamplerWithoutReplacement(), prefetch=2)
    buffer.extend(rows(range(10)))
    buffer.sample()
    second = other(buffer)
    second.empty()
    assert len(buffer) == 0 and buffer.writer.cursor == 0
    second.extend(rows(range(30, 40)))
    found = torch.cat([batch["number"] for batch in buffer])
    assert sorted(found.tolist()) == [*range(30, 40)]


def test_rows_of_others_get_their_priorities_as_own_ones_do() -> None:
    buffer = TensorDictPrioritizedReplayBuffer(
        alpha=1.0, beta=1.0, eps=0.0, storage=LazyTensorStorage(6), batch_size=2, shared=True
    )
    second = other(buffer)
    buffer.extend(rows(range(6)))
    buffer.update_priority(torch.arange(6), torch.arange(1.0, 7.0))
    second.extend(rows(range(6, 8)))  # over rows 0 and 1, without a priority: the highest so far
    buffer.sample()
    assert buffer.sampler.draw.priorities.known.tolist() == [6.0, 6.0, 3.0, 4.0, 5.0, 6.0]


def meddle(monkeypatch: pytest.MonkeyPatch, buffer: ReplayBuffer, times: int) -> list[int]:
    """Let another holder write in the middle of some gathers; return how many there were."""
    second, gather, calls = other(buffer), buffer.storage.gather, [0]

    def gather_late(index: torch.Tensor) -> Any:
        found = gather(index)
        calls[0] += 1
        if calls[0] <= times:
            thread = threading.Thread(target=second.extend, args=(rows(range(40, 60)),))
            thread.start()
            thread.join()
        return found

    monkeypatch.setattr(buffer.storage, "gather", gather_late)
    return calls


@pytest.mark.parametrize("times", [1, 2, 3])
def test_rows_are_read_again_where_a_write_came_between(
    monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    buffer = made()
    buffer.extend(rows(range(20)))
    calls = meddle(monkeypatch, buffer, times)
    assert buffer.sample(50)["number"].min() >= 40
    assert calls == [times + 1]


@pytest.mark.parametrize("slices", [True, False])
def test_an_epoch_loses_nothing_where_a_write_came_between(
    monkeypatch: pytest.MonkeyPatch, slices: bool
) -> None:
    sampler: Any = SamplerWithoutReplacement()
    if slices:
        sampler = SliceSamplerWithoutReplacement(num_slices=2, end_key=("next", "done"))
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(20), sampler=sampler, batch_size=10, shared=True
    )
    buffer.extend(rows(range(20)))
    meddle(monkeypatch, buffer, 1)
    found = torch.cat([buffer.sample()["number"] for _ in range(2)])
    assert sorted(found.tolist()) == [*range(40, 60)] and buffer.ran_out


def test_slices_do_not_cross_what_was_written_between(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = SliceSampler(slice_len=3, end_key=("next", "done"))
    buffer = made(sampler=sampler, size=20)
    buffer.extend(rows(range(2, 22)))
    meddle(monkeypatch, buffer, 1)
    found = buffer.sample(30)["number"].view(-1, 3)
    assert torch.equal(found, found[:, :1] + torch.arange(3)) and found.min() >= 40
    assert (found[:, 0] // 5 == found[:, 2] // 5).all()


def test_an_error_of_rows_that_nobody_changed_is_raised() -> None:
    with pytest.raises(EmptyBuffer):
        made().sample()


def tear(monkeypatch: pytest.MonkeyPatch, write: Any) -> None:
    """Let a write end before its rows are there."""

    def killed(*_: Any) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="killed"):
        patch.setattr(SharedStorage, "_copy", killed)
        write()


@pytest.mark.parametrize("is_known", [True, False])
def test_rows_of_a_write_that_did_not_end_are_dropped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_known: bool
) -> None:
    buffer = made(LazyMemmapStorage)
    second = other(buffer) if is_known else buffer
    buffer.extend(rows(range(20)))
    buffer.extend(rows(range(20, 25)))
    with caplog.at_level(logging.WARNING):
        tear(monkeypatch, lambda: buffer.extend(rows(range(25, 28))))
    assert "the write to the rows 5 to 7 was incomplete" in caplog.text
    assert "17 rows remain" in caplog.text
    assert numbers(second) == [*range(8, 25)]  # the oldest first
    assert second.extend(rows(range(25, 30))).tolist() == [17, 18, 19, 0, 1]
    assert numbers(buffer) == [28, 29, *range(10, 28)]


def test_rows_within_others_are_dropped_and_what_is_torn_at_the_end_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    buffer = made()
    buffer.extend(rows(range(8)))
    tear(monkeypatch, lambda: buffer.extend(rows(range(8, 12))))
    assert numbers(buffer) == [*range(8)]
    tear(monkeypatch, lambda: buffer.__setitem__(slice(2, 5), rows(range(3))))
    assert numbers(buffer) == [0, 1, 5, 6, 7] and buffer.writer.cursor == 5
    assert buffer.extend(rows(range(8, 9))).tolist() == [5]


def test_a_repair_that_did_not_end_drops_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = made()
    buffer.extend(rows(range(20)))

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(SharedStorage, "_copy", lambda *_: 1 / 0)
        patch.setattr("datasets_cli.replay.storages.shared.logger.warning", killed)
        buffer.extend(rows(range(3)))
    assert buffer[:].shape == (0,) and len(buffer) == 0
    assert buffer.extend(rows(range(3))).tolist() == [0, 1, 2]


def test_environments_side_by_side_lose_whole_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(8, ndim=2), shared=True)
    grid = torch.arange(8).view(4, 2).T  # two environments, four steps
    buffer.extend(TensorDict({"number": grid}, [2, 4]))
    tear(monkeypatch, lambda: buffer.extend(TensorDict({"number": grid[:, :1]}, [2, 1])))
    assert buffer[:]["number"].tolist() == [[2, 4, 6], [3, 5, 7]]
    assert buffer.storage.cursor == 3


def test_priorities_and_epochs_begin_again_where_rows_were_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    buffer = made(sampler=SamplerWithoutReplacement())
    buffer.extend(rows(range(20)))
    buffer.sample()
    tear(monkeypatch, lambda: buffer.extend(rows(range(20, 22))))
    found = torch.cat([batch["number"] for batch in buffer])
    assert sorted(found.tolist()) == [*range(2, 20)]


def test_an_interrupt_waits_until_the_row_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = made()
    buffer.extend(rows(range(20)))
    copy_rows, calls = SharedStorage._copy, []

    def interrupted(storage: SharedStorage, *given: Any) -> None:
        calls.append(given)
        if len(calls) == 1:
            raise KeyboardInterrupt
        copy_rows(storage, *given)

    monkeypatch.setattr(SharedStorage, "_copy", interrupted)
    with pytest.raises(KeyboardInterrupt):
        buffer.extend(rows(range(50, 53)))
    assert numbers(buffer)[:4] == [50, 51, 52, 3]


def test_a_dataset_is_not_shared_because_nobody_writes_it(door: str) -> None:
    dataset = ExperienceReplay(door)
    assert not dataset.shared
    with pytest.raises(ImmutableError):
        dataset.share()


def test_a_state_is_loaded_into_shared_rows() -> None:
    source = TensorDictReplayBuffer(storage=LazyTensorStorage(20), batch_size=4)
    source.extend(rows(range(23)))
    buffer = made(LazyMemmapStorage, sampler=None)
    second = other(buffer)
    buffer.load_state_dict(source.state_dict())
    assert numbers(second) == numbers(source) and second.writer.write_count == 23
    assert second.extend(rows(range(1))).tolist() == source.extend(rows(range(1))).tolist() == [3]


def test_priorities_that_were_loaded_stay() -> None:
    sampler = PrioritizedSampler(20, alpha=1.0, beta=1.0, eps=0.0)
    buffer = made(sampler=sampler)
    buffer.extend(rows(range(6)))
    buffer.update_priority(torch.arange(6), torch.arange(6.0))
    buffer.load_state_dict(buffer.state_dict())
    buffer.sample()
    assert buffer.sampler.draw.priorities.known.tolist() == [*map(float, range(6))]


# Buffers in several processes: what one writes the others read.


def rows_of(numbers: range, writer: int = 0) -> TensorDict:
    number = torch.tensor([*numbers])
    wide = number.unsqueeze(1).repeat(1, 3).float()
    return TensorDict(
        {"number": number, "writer": torch.full_like(number, writer), "wide": wide}, [len(number)]
    )


def write_in_parts(_: Connection, buffer: ReplayBuffer, writer: int) -> int:
    for start in range(0, 40, 4):
        buffer.extend(rows_of(range(start, start + 4), writer))
    return len(buffer)


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        pytest.param("spawn", LazyMemmapStorage, marks=pytest.mark.slow),
        *(("fork", kind) for kind in STORAGES),
    ],
)
def test_every_row_of_two_writers_is_there_once(method: str, kind: Any) -> None:
    buffer = made(kind, 100)
    children = [Child(method, write_in_parts, buffer, writer) for writer in (1, 2)]
    assert max(child.result() for child in children) == len(buffer) == 80
    found = buffer[:]
    for writer in (1, 2):
        assert found["number"][found["writer"] == writer].tolist() == [*range(40)]
    assert torch.equal(found["wide"], found["number"].unsqueeze(1).repeat(1, 3).float())
    assert buffer.extend(rows_of(range(2))).tolist() == [80, 81]


def read_and_write(pipe: Connection, buffer: ReplayBuffer) -> tuple[Any, str]:
    pipe.recv()
    found = buffer[:]["number"].tolist(), sorted(set(buffer.sample(50)["number"].tolist()))
    for change in (
        lambda: buffer.extend(rows_of(range(2))),
        lambda: buffer.add(rows_of(range(1))[0]),
        lambda: buffer.__setitem__(0, rows_of(range(1))[0]),
        buffer.empty,
        lambda: buffer.load_state_dict(buffer.state_dict()),
    ):
        with pytest.raises(NotWritable) as caught:
            change()
    return found, str(caught.value)


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        pytest.param("spawn", LazyTensorStorage, marks=pytest.mark.slow),
        ("fork", LazyTensorStorage),
        ("fork", ListStorage),
    ],
)
def test_a_buffer_that_is_not_shared_reads_a_snapshot_and_refuses_to_write(
    method: str, kind: Any
) -> None:
    buffer = TensorDictReplayBuffer(storage=kind(3), batch_size=4)
    buffer.extend(rows_of(range(3)))
    child = Child(method, read_and_write, buffer)
    buffer.extend(rows_of(range(7, 10)))
    child.pipe.send("written over")
    found, message = child.result()
    assert found == ([0, 1, 2], [0, 1, 2])
    if kind is LazyTensorStorage:
        assert "shared=True" in message and "state_dict()" in message
    assert buffer[:]["number"].tolist() == [7, 8, 9]


def hold_the_lock(pipe: Connection, buffer: ReplayBuffer) -> None:
    with buffer.reader.lock:
        pipe.send("held")
        time.sleep(60)


def test_who_is_killed_with_the_lock_does_not_hang_the_others() -> None:
    buffer = made()
    buffer.extend(rows_of(range(5)))
    child = Child("fork", hold_the_lock, buffer)
    assert child.pipe.recv() == "held"
    os.kill(child.process.pid or 0, signal.SIGKILL)
    assert buffer.extend(rows_of(range(5, 7))).tolist() == [5, 6]
    child.die()


def die_in_the_middle(_: Connection, buffer: ReplayBuffer, numbers: range) -> None:
    """Write one column, and half of the next one."""

    def copy(storage: SharedStorage, rows: Any, columns: list[torch.Tensor]) -> None:
        own = storage.rows.columns  # type: ignore[union-attr]
        own[0][rows] = columns[0]
        half = slice(rows.start, (rows.start + rows.stop) // 2)
        own[1][half] = columns[1][: half.stop - half.start]
        os.kill(os.getpid(), signal.SIGKILL)

    SharedStorage._copy = copy  # type: ignore[method-assign]
    buffer.extend(rows_of(numbers, 2))


def test_rows_that_were_being_appended_by_who_was_killed_do_not_count() -> None:
    buffer = made()
    buffer.extend(rows_of(range(5)))
    Child("fork", die_in_the_middle, buffer, range(50, 58)).die()
    assert buffer.sample(50)["number"].max() < 5
    assert len(buffer) == 5 and buffer.writer.write_count == 5
    assert buffer.extend(rows_of(range(5, 8), 3)).tolist() == [5, 6, 7]
    assert buffer[:]["number"].tolist() == [*range(8)]
    assert buffer[:]["writer"].tolist() == [0] * 5 + [3] * 3


def test_rows_that_were_being_written_over_by_who_was_killed_are_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    buffer = made(LazyMemmapStorage)
    buffer.extend(rows_of(range(20)))
    Child("fork", die_in_the_middle, buffer, range(50, 58)).die()
    found = buffer.sample(400)
    assert set(found["number"].tolist()) == {*range(8, 20)}
    assert torch.equal(found["wide"], found["number"].unsqueeze(1).repeat(1, 3).float())
    assert "the write to the rows 0 to 7 was incomplete" in caplog.text
    assert len(buffer) == 12 and buffer.extend(rows_of(range(1))).tolist() == [12]


def draw_and_update(_: Connection, buffer: TensorDictReplayBuffer) -> list[str]:
    written = rows_of(range(100, 110), 2)
    buffer.extend(written.set("td_error", torch.arange(10.0)))
    messages = []
    for call in (buffer.sample, lambda: buffer.update_priority(torch.tensor([0]), 5.0)):
        with pytest.raises(Unsupported) as error:
            call()
        messages.append(str(error.value))
    buffer.set_sampler(RandomSampler())
    assert buffer.sample().shape == (4,)
    return messages


def test_priorities_stay_with_the_maker_which_finds_those_of_rows_that_others_write() -> None:
    buffer = made(LazyTensorStorage, sampler=PrioritizedSampler(20, alpha=1.0, beta=1.0, eps=0.0))
    buffer.extend(rows_of(range(20)).set("td_error", torch.ones(20)))
    assert buffer.sample().shape == (4,)
    messages = Child("fork", draw_and_update, buffer).result()
    assert len({*messages}) == 1 and "process that created the buffer" in messages[0]
    buffer.sample()
    known = buffer.sampler.draw.priorities.known
    assert known.tolist() == [*range(10), *[1.0] * 10]


def clear_and_write(_: Connection, buffer: TensorDictReplayBuffer) -> None:
    buffer.empty()
    buffer.extend(rows_of(range(3)).set("td_error", torch.tensor([7.0, 8.0, 9.0])))


def test_rows_written_after_another_process_cleared_have_their_own_priorities() -> None:
    buffer = made(LazyTensorStorage, sampler=PrioritizedSampler(20, alpha=1.0, beta=1.0, eps=0.0))
    buffer.extend(rows_of(range(20)).set("td_error", torch.ones(20)))
    Child("fork", clear_and_write, buffer).result()
    buffer.sample()
    assert buffer.sampler.draw.priorities.known.tolist() == [7.0, 8.0, 9.0]


def write_by_rank(_: Connection, buffer: ReplayBuffer) -> Any:
    with pytest.raises(NotWritable):
        buffer.empty()
    return buffer.extend(rows_of(range(3)))


def test_a_writer_that_ranks_rows_writes_in_one_process() -> None:
    buffer = made(LazyMemmapStorage, writer=TensorDictMaxValueWriter("number"))
    buffer.extend(rows_of(range(3)))
    error = Child("fork", write_by_rank, buffer).result()
    assert isinstance(error, NotWritable) and "RoundRobinWriter" in str(error)
    assert len(buffer) == 3


def test_workers_of_a_loader_sample_while_the_buffer_is_written() -> None:
    buffer = made(LazyMemmapStorage, 1000)
    buffer.extend(rows_of(range(10)))
    seen = 0
    for number, batch in enumerate(BatchStream(buffer, num_batches=150).loader(num_workers=1)):
        assert torch.equal(batch["wide"], batch["number"].unsqueeze(1).repeat(1, 3).float())
        seen = max(seen, int(batch["number"].max()))
        buffer.extend(rows_of(range(10 + number, 11 + number)))
    assert seen >= 10


@pytest.mark.parametrize(
    "kind",
    ["LazyMemmapStorage", pytest.param("LazyTensorStorage", marks=pytest.mark.slow)],
)
def test_no_row_is_torn_that_is_sampled_while_it_is_written(kind: str) -> None:
    found = stress(kind, seconds=0.5, samplers=3, method="fork")
    assert found["batches"] >= 20 and found["rows written a second"] > 0
    assert found["torn rows"] == 0 and found["exit codes"] == 0


def test_a_forked_process_deletes_nothing_that_its_parent_uses(tmp_path: Path) -> None:
    buffer = made(LazyMemmapStorage)
    buffer.extend(rows_of(range(3)))
    folder = buffer.storage.scratch_dir
    process: Any = multiprocessing.get_context("fork").Process(target=buffer.__dict__.clear)
    process.start()
    process.join()
    assert folder.exists()
    del buffer
    assert not folder.exists()
