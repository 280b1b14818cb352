"""Storages of rows that a program writes: in memory, in files, in lists."""

from __future__ import annotations

import ctypes
import pickle
import subprocess
import warnings
from collections import namedtuple
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import LazyStackedTensorDict, NonTensorData, NonTensorStack, TensorDict, tensorclass
from torch.utils import _pytree

from datasets_cli import (
    LazyMemmapStorage,
    LazyTensorStorage,
    ListStorage,
    ReplayBuffer,
    SamplerWithoutReplacement,
    SliceSampler,
    TensorDictMaxValueWriter,
    TensorDictReplayBuffer,
    TensorStorage,
)
from datasets_cli.errors import (
    DiskFull,
    EmptyBuffer,
    NotWritable,
    UnknownKey,
    WrongRows,
)
from datasets_cli.replay.storages.collate import stack_rows
from tests.support.processes import Child
from tests.support.refusals import refused

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchrl.data import replay_buffers as peer

LAZY = [LazyTensorStorage, LazyMemmapStorage]


def steps(num_rows: int, start: int = 0) -> TensorDict:
    """Rows that say which one they are."""
    number = torch.arange(start, start + num_rows)
    done = (number % 5 == 4).unsqueeze(-1)
    return TensorDict(
        {"number": number, ("next", "done"): done, ("next", "pixels"): number.view(-1, 1, 1) % 7},
        [num_rows],
    )


@pytest.mark.parametrize("kind", ["LazyTensorStorage", "LazyMemmapStorage", "ListStorage"])
@settings(max_examples=12)
@given(capacity=st.integers(1, 12), sizes=st.lists(st.integers(1, 15), min_size=1, max_size=5))
def test_rows_land_where_torchrl_puts_them(kind: str, capacity: int, sizes: list[int]) -> None:
    ours = ReplayBuffer(storage=globals()[kind](capacity))
    theirs = peer.ReplayBuffer(storage=getattr(peer, kind)(capacity))
    start = 0
    for size in sizes:
        found, right = ours.extend(steps(size, start)), theirs.extend(steps(size, start))
        assert torch.equal(found, right)
        start += size
    assert len(ours) == len(theirs)
    assert bool((ours[:] == theirs[:]).all())


@settings(max_examples=12)
@given(
    environments=st.integers(1, 4),
    capacity=st.integers(4, 40),
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4),
)
def test_environments_side_by_side_are_rows_of_two_dimensions(
    environments: int, capacity: int, sizes: list[int]
) -> None:
    ours = ReplayBuffer(storage=LazyTensorStorage(capacity, ndim=2))
    theirs = peer.ReplayBuffer(storage=peer.LazyTensorStorage(capacity, ndim=2))
    for size in sizes:
        if size > capacity // environments:
            continue  # TorchRL's own storage refuses more steps than it has
        data = torch.stack([steps(size, 100 * number) for number in range(environments)])
        assert torch.equal(ours.extend(data), theirs.extend(data))
        assert len(ours) == len(theirs)
        assert bool((ours[:] == theirs[:]).all())


@pytest.mark.parametrize("kind", LAZY)
def test_a_batch_holds_copies_of_the_rows_its_index_names(kind: Any) -> None:
    buffer = TensorDictReplayBuffer(storage=kind(20), batch_size=64, seed=0)
    buffer.extend(steps(30))
    batch = buffer.sample()
    kept = steps(30)[10:][(batch["index"] - 10) % 20]
    assert bool((batch.exclude("index") == kept).all())
    batch["number"].zero_()
    assert bool((buffer[:]["number"] > 0).all())


@pytest.mark.parametrize("ndim", [1, 2])
@pytest.mark.parametrize("kind", LAZY)
def test_rows_with_a_shape_of_their_own_are_indexed_in_any_shape(kind: Any, ndim: int) -> None:
    number = torch.arange(3 * 8 * 5).view(3, 8, 5)
    rows = number if ndim == 2 else number[0]
    group = TensorDict({"number": rows}, rows.shape)
    for data in (rows, (rows, {"also": rows}), group):
        buffer = ReplayBuffer(storage=kind(24 if ndim == 2 else 8, ndim=ndim))
        buffer.extend(data)
        index = torch.tensor([[0, 1, 2], [7, 6, 5]])
        right = rows if ndim == 2 else rows[index]
        found = buffer[:] if ndim == 2 else buffer[index]
        for leaf in _pytree.tree_leaves(found["number"] if data is group else found):
            assert torch.equal(leaf, right)


def test_tensors_and_structures_of_tensors_are_rows_too() -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(10), batch_size=4)
    buffer.extend((torch.arange(6), {"b": torch.arange(6.0)}))
    number, named = buffer.sample()
    assert torch.equal(number.float(), named["b"])
    assert buffer.add((torch.tensor(9), {"b": torch.tensor(9.0)})) == 6
    plain = ReplayBuffer(storage=TensorStorage(torch.arange(5)), batch_size=3)
    assert set(plain.sample().tolist()) <= set(range(5))


def test_a_list_keeps_anything_and_its_collate_fn_makes_the_batch() -> None:
    buffer = ReplayBuffer(storage=ListStorage(4), batch_size=3, collate_fn=lambda rows: rows)
    buffer.extend(["a", {"b": 1}, None])
    assert buffer.add("c") == 3 and buffer.add("d") == 0
    assert len(buffer) == 4 and all(row != "a" for row in buffer.sample(50))
    with refused(WrongRows, found="NoneType, dict, str"):
        ReplayBuffer(storage=buffer.storage).sample(20)


@pytest.mark.parametrize(
    ("data", "key", "found"),
    [
        (TensorDict({"number": torch.zeros(2)}, [2]), None, ["number"]),
        (steps(2).set("number", torch.zeros(2, 3).long()), "number", [3]),
        (steps(2).set("number", torch.zeros(2)), "number", torch.float32),
        (
            steps(2).set("text", NonTensorData("x", [2])),
            None,
            ["number", "next.done", "next.pixels", "text"],
        ),
        (torch.zeros(2), None, "Tensor"),
    ],
)
def test_rows_of_another_form_are_refused_and_nothing_is_written(
    data: Any, key: str | None, found: Any
) -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(10))
    buffer.extend(steps(3))
    with refused(WrongRows, key=key, found=found):
        buffer.extend(data)
    assert len(buffer) == 3 and buffer.extend(steps(1)).tolist() == [3]


def test_files_of_another_storage_are_not_written_over(tmp_path: Path) -> None:
    ReplayBuffer(storage=LazyMemmapStorage(5, scratch_dir=tmp_path / "rows")).extend(steps(2))
    with refused(NotWritable, argument="scratch_dir"):
        ReplayBuffer(storage=LazyMemmapStorage(5, scratch_dir=tmp_path / "rows")).extend(steps(2))
    again = LazyMemmapStorage(5, scratch_dir=tmp_path / "rows", existsok=True)
    ReplayBuffer(storage=again).extend(steps(1))
    assert (tmp_path / "rows" / "number.memmap").stat().st_size == 5 * 8


def test_writing_renews_an_epoch_and_what_was_prefetched() -> None:
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(40), sampler=SamplerWithoutReplacement(), batch_size=5, prefetch=3
    )
    buffer.extend(steps(20))
    buffer.sample()
    buffer.extend(steps(20, 20))
    seen = torch.cat([batch["number"] for batch in buffer])
    assert sorted(seen.tolist()) == list(range(40))


@pytest.mark.parametrize("kind", [*LAZY, ListStorage])
def test_rows_are_written_behind_those_that_a_storage_has(kind: Any) -> None:
    storage = kind(6)
    ReplayBuffer(storage=storage).extend(steps(4))
    assert ReplayBuffer(storage=storage).extend(steps(1, 4)).tolist() == [4]
    other = ReplayBuffer()
    other.set_storage(storage)
    assert other.extend(steps(3, 5)).tolist() == [5, 0, 1]
    assert other[:]["number"].tolist() == [6, 7, 2, 3, 4, 5]


@pytest.mark.parametrize("kind", [*LAZY, ListStorage])
def test_a_buffer_pickles_with_its_rows(kind: Any) -> None:
    writer = TensorDictMaxValueWriter("number")
    buffer = ReplayBuffer(storage=kind(10), batch_size=4, seed=3, writer=writer)
    buffer.extend(steps(8))
    copy = pickle.loads(pickle.dumps(buffer))
    assert bool((copy[:] == buffer[:]).all())
    assert bool((copy.sample() == buffer.sample()).all())


# Rows in a list: what they are is what a batch of them is; and what no tensor storage takes.


def test_a_batch_of_tensordicts_keeps_their_shape_and_what_is_no_tensor() -> None:
    rows = steps(12).reshape(4, 3)
    rows["text"] = NonTensorStack(*(NonTensorStack(*"abc") for _ in range(4)))
    buffer = TensorDictReplayBuffer(storage=ListStorage(10), batch_size=2, seed=0)
    buffer.extend(rows)
    batch = buffer.sample()
    assert batch.batch_size == (2, 3) and batch["next"].batch_size == (2, 3)
    assert batch["text"] == [["a", "b", "c"]] * 2
    same = batch.select("number", "next") == torch.stack(
        [steps(12).reshape(4, 3)[i] for i in batch["index"][:, 0]]
    )
    assert bool(same.all())


@pytest.mark.parametrize(
    "items",
    [
        [{"a": torch.ones(1)}, {"a": torch.ones(1), "b": torch.ones(1)}],
        [(torch.ones(1),), (torch.ones(1), torch.ones(1))],
        [TensorDict({"a": torch.ones(1)}, []), TensorDict({"b": torch.ones(1)}, [])],
        [TensorDict({"a": torch.ones(1)}, []), TensorDict({"a": torch.ones(2)}, [])],
        [TensorDict({"a": torch.ones(1)}, []), TensorDict({"a": torch.ones(1)}, [1])],
        [torch.ones(1), torch.ones(2)],
    ],
)
def test_rows_that_differ_make_no_batch(items: list[Any]) -> None:
    with refused(WrongRows):
        stack_rows(items)


def test_a_tensor_storage_keeps_what_is_no_tensor_where_it_was() -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(10))
    buffer.extend(steps(3).set(("next", "text"), NonTensorStack("x", "y", "z")))
    assert buffer[:]["next", "text"] == ["x", "y", "z"]
    with refused(WrongRows, key="next.text", found="Tensor"):
        buffer.extend(steps(3).set(("next", "text"), torch.zeros(3)))
    with refused(WrongRows, key="number", expected="Tensor", found="str"):
        buffer.extend(buffer[:].set("number", NonTensorStack("x", "y", "z")))
    assert len(buffer) == 3


@pytest.mark.parametrize("key", [("collector", "traj_ids"), ("episode",), ("next", "done")])
def test_trajectories_are_found_as_in_a_tensor_storage(key: Any) -> None:
    rows = steps(33)
    ends = rows.pop(("next", "done"))
    rows[key] = ends if key == ("next", "done") else rows["number"] // 5
    drawn = []
    for storage in (ListStorage(20), LazyTensorStorage(20)):
        sampler = SliceSampler(slice_len=3)
        buffer = TensorDictReplayBuffer(storage=storage, sampler=sampler, batch_size=300, seed=0)
        buffer.extend(rows)
        drawn.append(buffer.sample()["number"])
    assert torch.equal(*drawn)


def test_rows_without_trajectories_say_so() -> None:
    buffer = ReplayBuffer(storage=ListStorage(9), sampler=SliceSampler(slice_len=3), batch_size=3)
    with refused(EmptyBuffer):
        buffer.sample()
    buffer.extend(TensorDict({"number": torch.arange(9)}, [9]))
    with refused(UnknownKey, key=("next", "done")):
        buffer.sample()


@tensorclass
class Step:
    number: torch.Tensor


def pickled(rows: Any) -> tuple[int, Any]:
    """Return the size of a pickle of a list storage with rows, and what it comes back with."""
    storage = ListStorage()
    storage.write(slice(0, len(rows)), [list(rows)])
    content = pickle.dumps(storage)
    return len(content), pickle.loads(content).contents()


NUMBERS = torch.arange(1000)
NAMED = TensorDict({"number": NUMBERS, "in": {"wide": torch.ones(1000, 2)}}, [1000])


@pytest.mark.parametrize(
    "rows",
    [
        NUMBERS.unbind(0),
        [{"a": (number, "text")} for number in NUMBERS],
        NAMED.unbind(0),
        Step(NUMBERS, batch_size=[1000]).unbind(0),
        NUMBERS.float().requires_grad_().detach().unbind(0),
    ],
)
def test_a_pickle_grows_with_the_rows_and_not_with_their_square(rows: Any) -> None:
    few, many = pickled(rows[:100])[0], pickled(rows[:1000])[0]
    assert many < 12 * few
    found = pickled(rows[:3])[1]
    assert [type(row) for row in found] == [type(row) for row in rows[:3]]
    assert repr(found) == repr(list(rows[:3]))


Two = namedtuple("Two", "a b")


@pytest.mark.parametrize(
    "row",
    [
        *(1, "text", b"b", None, 2.5, np.float64(1.5), np.arange(3), {1: [2, (3,)]}, {4}),
        *(Two(torch.ones(1), 2), torch.nn.Parameter(torch.ones(2)), torch.ones(2).to_sparse()),
        *(torch.arange(3).to(torch.uint16), torch.ones(2, dtype=torch.complex64).conj()),
        *(torch.empty(2, 0), TensorDict({"n": NonTensorData({"a": 1})}, [], device="cpu")),
        *(TensorDict({"n": NonTensorStack("a", "b")}, [2], names=["time"]),),
        LazyStackedTensorDict(TensorDict({"a": torch.ones(1)}), TensorDict({"a": torch.ones(2)})),
    ],
    ids=repr,
)
def test_any_row_comes_back_from_a_pickle_as_it_was(row: Any) -> None:
    [found] = pickled([row])[1]
    assert type(found) is type(row) and repr(found) == repr(row)
    assert getattr(found, "names", None) == getattr(row, "names", None)


# Full disks: rows without room are refused, and no process dies of a write to a mapped page.

NEW_MOUNTS = 0x00020000  # CLONE_NEWNS of <sched.h>


def on_a_small_disk(_: Connection, size: str, folder: Path, run: Callable[[Path], None]) -> str:
    """Call a function where this process alone has a disk of this size; return what failed."""
    if ctypes.CDLL(None).unshare(NEW_MOUNTS):
        return "unshare"
    disk = ["-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    for arguments in (["--make-rprivate", "/"], disk):
        done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            return done.stderr
    run(folder)
    return ""


def run_on(size: str, folder: Path, run: Callable[[Path], None]) -> None:
    failure = Child("fork", on_a_small_disk, size, folder, run).result()
    if isinstance(failure, Exception):
        raise failure
    if failure:
        pytest.skip(f"no disk can be mounted here: {failure}")


def wide_rows(count: int, start: int = 0) -> TensorDict:
    number = torch.arange(start, start + count)
    wide = number.unsqueeze(1).expand(count, 1024).int()
    return TensorDict({"number": number, "wide": wide}, [count])


def write_until_it_is_full(folder: Path) -> None:
    buffer = ReplayBuffer(storage=LazyMemmapStorage(10_000, scratch_dir=folder / "rows"))
    with refused(DiskFull, expected=410400):
        for start in range(0, 10_000, 100):
            buffer.extend(wide_rows(100, start))
    assert len(buffer) == buffer.writer.write_count == 2000
    assert torch.equal(buffer[:]["wide"], wide_rows(2000)["wide"])
    for texts in (False, True):  # whose rows are in files, too
        other = LazyMemmapStorage(1000, scratch_dir=folder / str(texts))
        more = wide_rows(100).set("text", ["a"] * 100) if texts else wide_rows(100)
        with pytest.raises(DiskFull):
            ReplayBuffer(storage=other).extend(more)
        assert len(other) == 0


def test_rows_that_a_full_disk_has_no_room_for_are_refused(tmp_path: Path) -> None:
    run_on("8m", tmp_path, write_until_it_is_full)


def reserve_shared_memory(_: Path) -> None:
    first, second = (ReplayBuffer(storage=LazyTensorStorage(10_000), shared=True) for _ in range(2))
    third = ReplayBuffer(storage=LazyTensorStorage(10_000))
    first.extend(wide_rows(10))
    third.extend(wide_rows(10))
    for write in (lambda: second.extend(wide_rows(10)), third.share):
        with refused(DiskFull, expected=41_040_000):
            write()
    assert len(second) == 0 and len(third) == 10 and not third.shared
    third.extend(wide_rows(10, 10))
    assert torch.equal(third[:]["wide"], wide_rows(20)["wide"])
    first.extend(wide_rows(9_990, 10))
    del first
    second.extend(wide_rows(10_000))


def test_shared_memory_is_reserved_before_the_first_row_is_written() -> None:
    run_on("64m", Path("/dev/shm"), reserve_shared_memory)
