"""Batches by threads, for devices, in buffers of rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torch.utils._python_dispatch import TorchDispatchMode

import datasets_cli as rlds
from datasets_cli import (
    BatchStream,
    LazyMemmapStorage,
    LazyTensorStorage,
    ListStorage,
    PrioritizedSampler,
    RandomSampler,
    ReplayBuffer,
    SelectTransform,
    SliceSampler,
    TensorDictReplayBuffer,
    TensorStorage,
    open_storage,
)
from datasets_cli.errors import NotWritable, UsageError, WrongRows, WrongSize, WrongState
from datasets_cli.replay.storages.sequences import Sequences
from datasets_cli.schema import mapping
from datasets_cli.store.layouts.compact_writer import CompactWriter
from datasets_cli.store.layouts.ted_writer import TedWriter
from tests.store.test_compact import pixel_rows, transitions, write
from tests.support.refusals import refused
from tests.support.stand_in_device import DEVICE, StandInDevice

# No operation on the way to a batch is one that torch shares among its threads and waits for.


SHARED_FROM = 32_768
"""Elements of an operation from which on torch's threads take part in it."""
NUM_ROWS, WIDTH, BATCH = 3000, 40, 2048
NOTHING_COPIED = {"aten.empty.memory_format", "aten.unsafe_split_with_sizes.default"}
Operations = list[tuple[str, int]]


class Counted(TorchDispatchMode):
    """Notes the operations that read or write memory, with the elements of each."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: Operations = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        returns = func._schema.returns
        is_view = any(each.alias_info and not each.alias_info.is_write for each in returns)
        if not is_view and str(func) not in NOTHING_COPIED:
            parts = result if isinstance(result, tuple | list) else [result]
            sizes = [part.numel() for part in parts if isinstance(part, torch.Tensor)]
            self.operations.append((str(func), max(sizes, default=0)))
        return result


def operations_of(sample: Callable[[], Any], calls: int = 40) -> list[Operations]:
    each = []
    for _ in range(calls):
        with Counted() as counted:
            sample()
        each.append(counted.operations)
    return each


def shared(calls: list[Operations]) -> set[str]:
    return {name for call in calls for name, size in call if size >= SHARED_FROM}


def vectors() -> dict[tuple[str, ...], np.ndarray]:
    rng = np.random.default_rng(0)
    done = (np.arange(NUM_ROWS) % 100 == 99)[:, None]
    none = np.zeros_like(done)
    rows = {
        ("action",): rng.normal(size=(NUM_ROWS, WIDTH)).astype(np.float32),
        ("next", "reward"): rng.normal(size=(NUM_ROWS, 1)).astype(np.float32),
        ("done",): none,
        ("terminated",): none,
        ("truncated",): none,
        ("next", "done"): done,
        ("next", "terminated"): none,
        ("next", "truncated"): done,
    }
    for name in ("observation", "info"):
        steps = rng.normal(size=(NUM_ROWS + 1, WIDTH)).astype(np.float32)
        rows[name,], rows["next", name] = steps[:-1], steps[1:].copy()
    rows["constant",] = np.full((NUM_ROWS, WIDTH), 3, np.float32)
    return rows


@pytest.fixture(scope="module")
def storages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("rows")
    frames = pixel_rows([700, 1, 900])
    for name, kind in {"ted": TedWriter, "compact": CompactWriter}.items():
        write(kind, folder / name, vectors(), 500)
        write(kind, folder / f"{name} frames", frames, 500)
    opened = {path.name: rlds.open_storage(path) for path in sorted(Path(folder).iterdir())}
    memory = rlds.LazyTensorStorage(NUM_ROWS)
    rlds.TensorDictReplayBuffer(storage=memory, batch_size=1).extend(
        TensorDict(
            {key: torch.from_numpy(rows) for key, rows in vectors().items()},
            [NUM_ROWS],
        )
    )
    return opened | {"memory": memory}


SAMPLERS: dict[str, Callable[[int], Any]] = {
    "uniform": lambda size: rlds.RandomSampler(),
    "each once": lambda size: rlds.SamplerWithoutReplacement(),
    "in blocks": lambda size: rlds.BlockShuffleSampler(block_len=64),
    "slices": lambda size: rlds.SliceSampler(slice_len=32, end_key=("next", "done")),
    "slices once": lambda size: rlds.SliceSamplerWithoutReplacement(slice_len=32),
    "priorities": lambda size: rlds.PrioritizedSampler(size, 0.7, 0.5),
}


@pytest.mark.parametrize(
    ("name", "sampler"),
    [
        *(("compact", sampler) for sampler in SAMPLERS),
        *((name, "slices") for name in ("ted", "ted frames", "compact frames", "memory")),
    ],
)
def test_no_batch_waits_for_threads_of_torch(
    name: str, sampler: str, storages: dict[str, Any]
) -> None:
    storage = storages[name]
    size = 64 if "frames" in name else BATCH
    replay = rlds.TensorDictReplayBuffer(
        storage=storage, sampler=SAMPLERS[sampler](len(storage)), batch_size=size
    )
    calls = operations_of(replay.sample, 8)
    assert shared(calls) == set()


def buffer_of(kind: str, storages: dict[str, Any]) -> Any:
    """Return a buffer whose batches are put together of several parts."""
    each = {name: {"storage": storage, "batch_size": BATCH} for name, storage in storages.items()}
    members = [rlds.TensorDictReplayBuffer(**each[name]) for name in ("compact", "ted", "memory")]
    match kind:
        case "mixture of records":
            return rlds.Mixture([members[0], members[0]], weights=[1, 2], batch_size=BATCH)
        case "mixture of layouts":
            return rlds.Mixture(members[:2], weights=[1, 2], batch_size=BATCH)
        case "list":
            rows = rlds.ReplayBuffer(storage=rlds.ListStorage(100), batch_size=64)
            rows.extend([TensorDict({"frame": torch.zeros(84, 84)}) for _ in range(100)])
            return rows
        case "ensemble":
            return rlds.ReplayBufferEnsemble(*members, batch_size=3 * BATCH)
        case "frame stacks":
            stacks = rlds.FrameStack(storages["ted frames"], 4, padding="zeros")
            return rlds.TensorDictReplayBuffer(storage=stacks, batch_size=32)
        case "packed frame stacks":
            stacks = rlds.FrameStack(storages["compact frames"], 4, padding="zeros")
            return rlds.TensorDictReplayBuffer(storage=stacks, batch_size=32)
        case "sequences":
            sequences = Sequences(storages["ted"], 20)
            return rlds.TensorDictReplayBuffer(storage=sequences, batch_size=64)
    return rlds.TensorDictReplayBuffer(**each["ted"], format="numpy")


@pytest.mark.parametrize(
    "kind",
    [
        *("mixture of records", "mixture of layouts", "ensemble"),
        *("frame stacks", "packed frame stacks", "sequences", "numpy", "list"),
    ],
)
def test_no_batch_that_is_put_together_waits(kind: str, storages: dict[str, Any]) -> None:
    assert shared(operations_of(buffer_of(kind, storages).sample, 8)) == set()


@pytest.mark.parametrize("name", ["ted", "compact", "memory"])
def test_torch_draws_the_rows_of_a_batch_and_does_nothing_else(
    name: str, storages: dict[str, Any]
) -> None:
    replay = rlds.TensorDictReplayBuffer(storage=storages[name], batch_size=BATCH)
    replay.sample()  # a generator of the buffer's own is seeded
    for call in operations_of(replay.sample, 4):
        assert {name for name, _ in call} <= {"aten.randint.generator"}


# Batches of rows on a device, counted on one that stands in: what is sent, done and waited for.


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


# Rows of a buffer: indexed and replaced as in TorchRL, and part of its state.


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchrl.data import replay_buffers as peer


def steps(*shape: int, start: int = 0) -> TensorDict:
    number = torch.arange(start, start + torch.Size(shape).numel()).view(shape)
    return TensorDict({"number": number, ("next", "reward"): number.unsqueeze(-1).float()}, shape)


@pytest.mark.parametrize(
    "index", [0, -1, slice(0, 2), slice(None), (0, 3), (slice(None), 1), (slice(2), 1), [3, 0]]
)
def test_rows_of_environments_are_indexed_as_they_are_written(index: Any) -> None:
    ours = ReplayBuffer(storage=LazyTensorStorage(20, ndim=2))
    theirs = peer.ReplayBuffer(storage=peer.LazyTensorStorage(20, ndim=2))
    for buffer in (ours, theirs):
        buffer.extend(steps(4, 5))
    assert torch.equal(ours[index]["number"], steps(4, 5)[index]["number"])
    if not isinstance(index, int):  # TorchRL cannot take one environment
        assert torch.equal(ours[index]["number"], theirs[index]["number"])


@pytest.mark.parametrize("kind", [LazyTensorStorage, LazyMemmapStorage])
@pytest.mark.parametrize("index", [slice(0, 3), [4, 1, 2], torch.tensor([-1, 0, 3])])
def test_rows_are_replaced_by_their_index(kind: Any, index: Any) -> None:
    ours, theirs = ReplayBuffer(storage=kind(6)), peer.ReplayBuffer(storage=peer.ListStorage(6))
    for buffer in (ours, theirs):
        buffer.extend(steps(6))
    ours[index] = steps(3, start=100)
    expected = torch.arange(6)
    expected[index] = torch.arange(100, 103)
    assert torch.equal(ours["number"], expected)
    ours[2] = steps(1, start=7)[0]
    assert ours[2]["number"] == 7 and ours[...]["number"].shape == (6,)


def test_rows_that_do_not_fit_replace_none() -> None:
    buffer = ReplayBuffer(storage=ListStorage(6))
    buffer.extend(steps(6))
    buffer[1:3] = steps(2, start=50)
    assert buffer["number"].tolist() == [0, 50, 51, 3, 4, 5]
    for index in (slice(0, 3), [0]):
        with refused(WrongRows, argument="data", found=2):
            buffer[index] = steps(2)
    with refused(NotWritable, key="number"):
        buffer["number"] = torch.zeros(6)
    with pytest.raises(IndexError):
        buffer[6] = steps(1)[0]


def test_a_state_of_something_else_is_refused() -> None:
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(8))
    for state in ({}, peer.ReplayBuffer(storage=peer.LazyTensorStorage(8)).state_dict()):
        with refused(
            WrongState, expected="sampler, generator", found=", ".join(state) or "nothing"
        ):
            buffer.load_state_dict(state)
    larger = TensorDictReplayBuffer(storage=LazyTensorStorage(9))
    larger.extend(steps(9))
    with refused(WrongSize, argument="max_size", expected=9, found=8):
        buffer.load_state_dict(larger.state_dict())
    assert len(buffer) == 0


def test_a_batch_keeps_its_index_whatever_transforms_select() -> None:
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(8),
        sampler=PrioritizedSampler(8, 1.0, 1.0),
        transform=SelectTransform("number"),
        batch_size=4,
    )
    buffer.extend(steps(8))
    batch = buffer.sample()
    assert torch.equal(batch["index"], batch["number"])
    assert batch["priority_weight"].tolist() == [1.0] * 4
    buffer.append_transform(lambda batch: batch.reshape(2, 2).exclude("index"))
    assert "index" not in buffer.sample()  # it would not say which row is which


@pytest.mark.parametrize(("row", "found"), [("abc", "str"), (1.0, "float"), ({"a": 1.0}, "float")])
def test_a_row_of_no_tensors_is_refused(row: Any, found: str) -> None:
    with refused(WrongRows, expected="Tensor", found=found):
        ReplayBuffer(storage=LazyTensorStorage(3)).add(row)


def test_a_list_of_tensors_is_a_structure_where_the_storage_says_so() -> None:
    rows = [torch.zeros(4), torch.ones(4)]
    batch = ReplayBuffer(storage=TensorStorage(rows), batch_size=3).sample()
    assert [leaf.tolist() for leaf in batch] == [[0.0] * 3, [1.0] * 3]


def test_priorities_for_a_sampler_without_any_are_passed_over() -> None:
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(8), batch_size=4)
    buffer.extend(steps(8))
    batch = buffer.sample()
    buffer.update_tensordict_priority(batch)
    assert "td_error" not in batch and not hasattr(buffer.sampler, "update_priority")


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"batch_size": 3.5}, "batch_size"),
        ({"batch_size": "3"}, "batch_size"),
        ({"prefetch": 2.5, "batch_size": 2}, "prefetch"),
        ({"storage": LazyTensorStorage}, "storage"),
        ({"storage": TensorDict({}, [])}, "storage"),
        ({"sampler": PrioritizedSampler}, "sampler"),
        ({"storage": RandomSampler}, "storage"),
        ({"sampler": LazyMemmapStorage}, "sampler"),
        ({"sampler": "random"}, "sampler"),
        ({"writer": "x"}, "writer"),
        ({"transform": 3}, "transform"),
        ({"collate_fn": 3}, "collate_fn"),
    ],
)
def test_a_part_that_is_none_is_refused_at_once(arguments: dict[str, Any], argument: str) -> None:
    with refused(UsageError, argument=argument):
        ReplayBuffer(**{"storage": LazyTensorStorage(3), **arguments})


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 4, 3)])
def test_entries_of_rows_are_replaced_by_the_numbers_that_extend_returns(
    shape: tuple[int, ...],
) -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(100, ndim=len(shape)))
    rows = TensorDict({"a": steps(*shape)["number"]}, shape)
    buffer.extend(rows)
    numbers = buffer.extend(rows)
    last = rows["a"].transpose(0, -1).flatten()[-2]  # time first, as rows are stored
    buffer.set_at_("a", torch.tensor([-1]), numbers[-2][None])
    written = torch.where(rows["a"] == last, -1, rows["a"])
    assert torch.equal(buffer["a"], torch.cat([rows["a"], written], -1))


def test_a_number_is_not_written_as_a_row() -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(3))
    buffer.extend(torch.zeros(2))
    with refused(WrongRows, key="data", found=[]):
        buffer.extend(torch.tensor(1.0))
    assert len(buffer) == 2
