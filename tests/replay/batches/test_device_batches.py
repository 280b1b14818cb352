"""Batches of rows on a device, counted on one that stands in: what is sent, done and waited for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from datasets_cli import (
    BatchStream,
    LazyTensorStorage,
    SliceSampler,
    TensorDictReplayBuffer,
    open_storage,
)
from datasets_cli.errors import UsageError, WrongSize
from datasets_cli.schema import mapping
from datasets_cli.store.layouts.compact_writer import CompactWriter
from datasets_cli.store.layouts.ted_writer import TedWriter
from tests.store.test_compact import pixel_rows, transitions, write
from tests.support.refusals import refused
from tests.support.stand_in_device import DEVICE, StandInDevice

LAYOUTS = pytest.mark.parametrize("kind", [TedWriter, CompactWriter])


def vector_rows(lengths: list[int]) -> Any:
    return transitions(lengths, 0)


@pytest.fixture
def device() -> Iterator[StandInDevice]:
    with StandInDevice() as device:
        yield device


def buffer(folder: Path, **options: Any) -> TensorDictReplayBuffer:
    storage = open_storage(folder / "rows", **options)
    sampler = SliceSampler(num_slices=4, strict_length=False)
    return TensorDictReplayBuffer(storage=storage, sampler=sampler, batch_size=32, seed=0)


def values(batch: Any) -> dict[Any, torch.Tensor]:
    return {key: leaf.cpu() for key, leaf in batch.items(True, True)}


def check_same(batch: Any, right: Any) -> None:
    torch.testing.assert_close(values(batch), values(right), rtol=0, atol=0, equal_nan=True)


@LAYOUTS
def test_the_numbers_of_a_batch_are_sent_once_and_nothing_is_waited_for(
    tmp_path: Path, device: StandInDevice, kind: Any
) -> None:
    write(kind, tmp_path / "rows", transitions([200, 90], 0))
    storage = open_storage(tmp_path / "rows", device=DEVICE)
    ours = TensorDictReplayBuffer(storage=storage, batch_size=32, seed=0)
    theirs = TensorDictReplayBuffer(storage=open_storage(tmp_path / "rows"), batch_size=32, seed=0)
    check_same(ours.sample(), theirs.sample())
    device.clear()
    batch = ours.sample()
    assert (device.sent, device.waits) == ([32 * 8], [])
    assert {leaf.device for leaf in batch.values(True, True)} == {DEVICE}
    if kind is CompactWriter:  # whatever the number of keys: numbers, records, flags, constants
        assert len(device.operations) <= 6


@LAYOUTS
@pytest.mark.parametrize("rows", [pixel_rows, vector_rows])
def test_slices_and_frames_are_those_of_the_cpu_and_nothing_is_waited_for(
    tmp_path: Path, device: StandInDevice, kind: Any, rows: Any
) -> None:
    write(kind, tmp_path / "rows", rows([40, 30]))
    ours, theirs = buffer(tmp_path, device=DEVICE), buffer(tmp_path)
    for _ in range(2):
        device.clear()
        batch = ours.sample()
        waits = [*device.waits]  # the first batch of frames copies the row map to the CPU
        check_same(batch, theirs.sample())
    assert waits == []


def test_a_written_row_is_read_on_its_device(device: StandInDevice) -> None:
    storage = LazyTensorStorage(10, device="meta")
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=4)
    buffer.extend(TensorDict({"x": torch.arange(10.0)}, [10]))
    device.clear()
    batch = buffer.sample()
    assert (device.sent, device.waits) == ([4 * 8], [])
    assert torch.equal(batch["x"].cpu(), batch["index"].cpu().float())


def test_flags_of_rows_on_the_disk_are_made_on_the_device(
    tmp_path: Path, device: StandInDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    dataset = write(CompactWriter, tmp_path / "rows", transitions([200, 90], 0))
    storage = open_storage(tmp_path / "rows", device=DEVICE, pin_memory=True)
    device.clear()
    storage.gather(torch.arange(9))
    record: Any = dataset.manifest.record
    assert sorted(device.sent) == [9 * 8, 9 * 2 * record["record_bytes"]]  # episode, and records


@LAYOUTS
@pytest.mark.parametrize("rows", [pixel_rows, vector_rows])
@pytest.mark.parametrize("contiguous", [True, False])
def test_without_a_device_every_leaf_is_in_page_locked_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any, rows: Any, contiguous: bool
) -> None:
    locked: list[torch.Tensor] = []

    def lock(tensor: torch.Tensor) -> torch.Tensor:
        locked.append(tensor.clone())
        return locked[-1]

    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lock)
    write(kind, tmp_path / "rows", rows([40, 30]))
    batch = buffer(tmp_path, pin_memory=True, contiguous=contiguous).sample()
    memory = {tensor.untyped_storage().data_ptr() for tensor in locked}
    for key, leaf in batch.items(True, True):
        assert leaf.untyped_storage().data_ptr() in memory, key
        assert leaf.is_contiguous() or not contiguous, key
    check_same(batch, buffer(tmp_path).sample())


def test_rows_that_a_device_has_no_room_for_are_refused_with_both_sizes(
    tmp_path: Path, device: StandInDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int]] = []
    write(CompactWriter, tmp_path / "rows", transitions([200, 90], 0))
    monkeypatch.setattr(
        mapping, "check_device_room", lambda path, size, _: asked.append((Path(path).name, size))
    )
    open_storage(tmp_path / "rows", device=DEVICE)
    sizes = {name: (tmp_path / "rows" / name).stat().st_size for name, _ in asked}
    assert dict(asked) == sizes and sizes.keys() == {"rows.memmap", "row.memmap"}
    assert [*sizes.values()] == device.sent[:2]  # then a constant
    monkeypatch.undo()
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (100, 900))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 50)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 20)
    mapping.check_device_room("rows", 130, torch.device("cuda"))
    with refused(WrongSize, argument="device", expected="130 bytes at most", found=131):
        mapping.check_device_room("rows", 131, torch.device("cuda"))


def test_workers_of_a_loader_are_refused_where_batches_are_on_a_device(tmp_path: Path) -> None:
    write(TedWriter, tmp_path / "rows", transitions([20], 0))
    stream = BatchStream(buffer(tmp_path, device="meta"), num_batches=1)
    stream.loader(0)
    with refused(UsageError, argument="num_workers", found=2):
        stream.loader(2)


class Stream:
    """A stream that lists what it is asked."""

    device = DEVICE

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    def record_event(self) -> str:
        return f"what {self.name} has"

    def wait_event(self, event: str) -> None:
        self.log.append(f"{self.name} waits for {event}")


def test_a_batch_is_made_on_a_side_stream_that_each_stream_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []

    @contextmanager
    def on(stream: Stream) -> Iterator[None]:
        log.append(f"on {stream.name}")
        yield
        log.append("made")

    main, side = Stream("main", log), Stream("side", log)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: main)
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda leaf, by: log.append(by.name))
    write(TedWriter, tmp_path / "rows", transitions([20, 9], 0))
    storage = open_storage(tmp_path / "rows", device="meta")
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=4, prefetch=1)
    reader: Any = buffer.reader
    assert reader._prefetch._stream is None  # "meta" has no streams
    reader._prefetch._stream = side
    leaves = len(list(buffer.sample().keys(True, True)))
    assert log[:3] == ["on side", "side waits for what main has", "made"]
    by_main = [entry for entry in log if entry.startswith("main")]
    assert by_main == ["main waits for what side has", *["main"] * leaves]
