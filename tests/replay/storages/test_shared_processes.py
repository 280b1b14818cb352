"""Buffers in several processes: what one writes the others read."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from multiprocessing.connection import Connection
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
    RandomSampler,
    ReplayBuffer,
    TensorDictMaxValueWriter,
    TensorDictReplayBuffer,
)
from datasets_cli.errors import NotWritable, Unsupported
from datasets_cli.replay.loaders import BatchStream
from datasets_cli.replay.storages.shared import SharedStorage
from tests.support.processes import Child
from tests.support.shared_rings import stress

STORAGES = [LazyMemmapStorage, LazyTensorStorage]


def rows(numbers: range, writer: int = 0) -> TensorDict:
    number = torch.tensor([*numbers])
    wide = number.unsqueeze(1).repeat(1, 3).float()
    return TensorDict(
        {"number": number, "writer": torch.full_like(number, writer), "wide": wide}, [len(number)]
    )


def made(kind: Any = LazyTensorStorage, size: int = 20, **arguments: Any) -> TensorDictReplayBuffer:
    return TensorDictReplayBuffer(storage=kind(size), batch_size=4, shared=True, **arguments)


def write_in_parts(_: Connection, buffer: ReplayBuffer, writer: int) -> int:
    for start in range(0, 40, 4):
        buffer.extend(rows(range(start, start + 4), writer))
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
    assert buffer.extend(rows(range(2))).tolist() == [80, 81]


def read_and_write(pipe: Connection, buffer: ReplayBuffer) -> tuple[Any, str]:
    pipe.recv()
    found = buffer[:]["number"].tolist(), sorted(set(buffer.sample(50)["number"].tolist()))
    for change in (
        lambda: buffer.extend(rows(range(2))),
        lambda: buffer.add(rows(range(1))[0]),
        lambda: buffer.__setitem__(0, rows(range(1))[0]),
        buffer.empty,
        lambda: buffer.load_state_dict(buffer.state_dict()),
    ):
        with pytest.raises(NotWritable) as refused:
            change()
    return found, str(refused.value)


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_a_buffer_that_is_not_shared_reads_a_snapshot_and_refuses_to_write(method: str) -> None:
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(3), batch_size=4)
    buffer.extend(rows(range(3)))
    child = Child(method, read_and_write, buffer)
    buffer.extend(rows(range(7, 10)))
    child.pipe.send("written over")
    found, message = child.result()
    assert found == ([0, 1, 2], [0, 1, 2])
    assert "shared=True" in message and "state_dict()" in message
    assert buffer[:]["number"].tolist() == [7, 8, 9]


def test_a_list_that_is_not_shared_reads_a_snapshot_and_refuses_to_write() -> None:
    buffer = TensorDictReplayBuffer(storage=ListStorage(3))
    buffer.extend(rows(range(3)))
    child = Child("fork", read_and_write, buffer)
    buffer.extend(rows(range(7, 10)))
    child.pipe.send("written over")
    assert child.result()[0] == ([0, 1, 2], [0, 1, 2])


def hold_the_lock(pipe: Connection, buffer: ReplayBuffer) -> None:
    with buffer.reader.lock:
        pipe.send("held")
        time.sleep(60)


@pytest.mark.parametrize("kind", STORAGES)
def test_who_is_killed_with_the_lock_does_not_hang_the_others(kind: Any) -> None:
    buffer = made(kind)
    buffer.extend(rows(range(5)))
    child = Child("fork", hold_the_lock, buffer)
    assert child.pipe.recv() == "held"
    os.kill(child.process.pid or 0, signal.SIGKILL)
    assert buffer.extend(rows(range(5, 7))).tolist() == [5, 6]
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
    buffer.extend(rows(numbers, 2))


@pytest.mark.parametrize("kind", STORAGES)
def test_rows_that_were_being_appended_by_who_was_killed_do_not_count(kind: Any) -> None:
    buffer = made(kind)
    buffer.extend(rows(range(5)))
    Child("fork", die_in_the_middle, buffer, range(50, 58)).die()
    assert buffer.sample(50)["number"].max() < 5
    assert len(buffer) == 5 and buffer.writer.write_count == 5
    assert buffer.extend(rows(range(5, 8), 3)).tolist() == [5, 6, 7]
    assert buffer[:]["number"].tolist() == [*range(8)]
    assert buffer[:]["writer"].tolist() == [0] * 5 + [3] * 3


@pytest.mark.parametrize("kind", STORAGES)
def test_rows_that_were_being_written_over_by_who_was_killed_are_dropped(
    kind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    buffer = made(kind)
    buffer.extend(rows(range(20)))
    Child("fork", die_in_the_middle, buffer, range(50, 58)).die()
    found = buffer.sample(400)
    assert set(found["number"].tolist()) == {*range(8, 20)}
    assert torch.equal(found["wide"], found["number"].unsqueeze(1).repeat(1, 3).float())
    assert "the write to the rows 0 to 7 was incomplete" in caplog.text
    assert len(buffer) == 12 and buffer.extend(rows(range(1))).tolist() == [12]


def draw_and_update(_: Connection, buffer: TensorDictReplayBuffer) -> list[str]:
    written = rows(range(100, 110), 2)
    buffer.extend(written.set("td_error", torch.arange(10.0)))
    messages = []
    for refused in (buffer.sample, lambda: buffer.update_priority(torch.tensor([0]), 5.0)):
        with pytest.raises(Unsupported) as error:
            refused()
        messages.append(str(error.value))
    buffer.set_sampler(RandomSampler())
    assert buffer.sample().shape == (4,)
    return messages


def test_priorities_stay_with_the_maker_which_finds_those_of_rows_that_others_write() -> None:
    buffer = made(LazyTensorStorage, sampler=PrioritizedSampler(20, alpha=1.0, beta=1.0, eps=0.0))
    buffer.extend(rows(range(20)).set("td_error", torch.ones(20)))
    assert buffer.sample().shape == (4,)
    messages = Child("fork", draw_and_update, buffer).result()
    assert len({*messages}) == 1 and "process that created the buffer" in messages[0]
    buffer.sample()
    known = buffer.sampler.draw.priorities.known
    assert known.tolist() == [*range(10), *[1.0] * 10]


def clear_and_write(_: Connection, buffer: TensorDictReplayBuffer) -> None:
    buffer.empty()
    buffer.extend(rows(range(3)).set("td_error", torch.tensor([7.0, 8.0, 9.0])))


def test_rows_written_after_another_process_cleared_have_their_own_priorities() -> None:
    buffer = made(LazyTensorStorage, sampler=PrioritizedSampler(20, alpha=1.0, beta=1.0, eps=0.0))
    buffer.extend(rows(range(20)).set("td_error", torch.ones(20)))
    Child("fork", clear_and_write, buffer).result()
    buffer.sample()
    assert buffer.sampler.draw.priorities.known.tolist() == [7.0, 8.0, 9.0]


def write_by_rank(_: Connection, buffer: ReplayBuffer) -> Any:
    with pytest.raises(NotWritable):
        buffer.empty()
    return buffer.extend(rows(range(3)))


def test_a_writer_that_ranks_rows_writes_in_one_process() -> None:
    buffer = made(LazyMemmapStorage, writer=TensorDictMaxValueWriter("number"))
    buffer.extend(rows(range(3)))
    refused = Child("fork", write_by_rank, buffer).result()
    assert isinstance(refused, NotWritable) and "RoundRobinWriter" in str(refused)
    assert len(buffer) == 3


def test_workers_of_a_loader_sample_while_the_buffer_is_written() -> None:
    buffer = made(LazyMemmapStorage, 1000)
    buffer.extend(rows(range(10)))
    seen = 0
    for number, batch in enumerate(BatchStream(buffer, num_batches=400).loader(num_workers=1)):
        assert torch.equal(batch["wide"], batch["number"].unsqueeze(1).repeat(1, 3).float())
        seen = max(seen, int(batch["number"].max()))
        buffer.extend(rows(range(10 + number, 11 + number)))
    assert seen >= 10


@pytest.mark.parametrize("kind", ["LazyMemmapStorage", "LazyTensorStorage"])
def test_no_row_is_torn_that_is_sampled_while_it_is_written(kind: str) -> None:
    found = stress(kind, seconds=2, samplers=3, method="fork")
    assert found["batches"] > 20 and found["rows written a second"] > 400
    assert found["torn rows"] == 0 and found["exit codes"] == 0


def test_a_forked_process_deletes_nothing_that_its_parent_uses(tmp_path: Path) -> None:
    buffer = made(LazyMemmapStorage)
    buffer.extend(rows(range(3)))
    folder = buffer.storage.scratch_dir
    process: Any = multiprocessing.get_context("fork").Process(target=buffer.__dict__.clear)
    process.start()
    process.join()
    assert folder.exists()
    del buffer
    assert not folder.exists()
