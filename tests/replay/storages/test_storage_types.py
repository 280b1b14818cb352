"""Every element type in every storage that is written."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
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
    SliceSampler,
    TensorDictReplayBuffer,
    TensorStorage,
    split_trajectories,
)
from datasets_cli.errors import UsageError, WrongRows
from datasets_cli.replay.trajectories.bounds import TrajectoryKeys
from tests.support.element_types import KNOWN_TO_TENSORDICT, NUMPY, keys_of, random_tensor, same
from tests.support.refusals import refused

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
KINDS: dict[str, Any] = {
    "tensors": LazyTensorStorage,
    "files": LazyMemmapStorage,
    "list": ListStorage,
}
LENGTH = 12


def rows_of(num_rows: int, seed: int) -> TensorDict:
    """Return rows with a leaf of every type and shape."""
    rows = TensorDict({"step": torch.arange(num_rows)}, [num_rows])
    for number, (key, name, shape) in enumerate(keys_of("leaf")):
        rows[key] = random_tensor(name, (num_rows, *shape), seed + number)
    return rows


def compare(found: Any, expected: Any, index: list[int], names: Iterable[str] = NUMPY) -> None:
    for key, name, _ in keys_of("leaf"):
        if name in names:
            wanted = [expected[key][number] for number in index]
            for has, must in zip(found[key].unbind(0), wanted, strict=True):
                same(has, must, name)


@pytest.mark.parametrize("kind", KINDS)
def test_every_type_is_written_and_read(kind: str) -> None:
    rows = rows_of(LENGTH, 0)
    buffer = TensorDictReplayBuffer(storage=KINDS[kind](LENGTH), batch_size=16)
    buffer.extend(rows[:7])
    for number in range(7, LENGTH):
        buffer.add(rows[number])
    compare(buffer[:], rows, list(range(LENGTH)))
    compare(buffer[[3, 0, 3]], rows, [3, 0, 3])
    batch = buffer.sample()
    compare(batch, rows, batch["index"].tolist())
    others = rows_of(2, 900)
    buffer[torch.tensor([5, 1])] = others
    compare(buffer[[5, 1]], others, [0, 1])
    buffer[8] = others[0]
    compare(buffer[[8]], others, [0])
    compare(buffer[[0, 2, 3, 4, 6, 7, 9]], rows, [0, 2, 3, 4, 6, 7, 9])
    buffer.extend(others)  # a ring: over the first two
    compare(buffer[:2], others, [0, 1])
    for key, name, _ in keys_of("leaf"):
        assert buffer.storage.has(key)
        same(buffer[4][key], rows[key][4], name)
        same(buffer[key][4], rows[key][4], name)
        found = buffer.storage.entry(key, torch.tensor([1, 0]))
        for has, must in zip(found.unbind(0), reversed(others[key].unbind(0)), strict=True):
            same(has, must, name)
    if kind != "list":  # torch cannot unpickle a tensor of these types by itself
        compare(pickle.loads(pickle.dumps(buffer))[:2], others, [0, 1])


@pytest.mark.parametrize("kind", ["tensors", "files"])
def test_contents_of_environments_side_by_side_have_the_types(kind: str) -> None:
    flat = rows_of(8, 0)
    storage = KINDS[kind](8, ndim=2)
    leaves = {key: flat[key].view(2, 4, *shape) for key, _, shape in keys_of("leaf")}
    TensorDictReplayBuffer(storage=storage, batch_size=4).extend(TensorDict(leaves, [2, 4]))
    contents = storage.contents()
    for key, name, _ in keys_of("leaf"):
        for has, must in zip(contents[key].unbind(0), leaves[key].unbind(0), strict=True):
            same(has, must, name)


def test_tensors_that_are_there_already_are_not_copied() -> None:
    rows = rows_of(LENGTH, 0)
    buffer = TensorDictReplayBuffer(storage=TensorStorage(rows), batch_size=8)
    batch = buffer.sample()
    compare(batch, rows, batch["index"].tolist())
    others = rows_of(1, 500)
    buffer[3] = others[0]
    compare(rows[3:4], others, [0])


@pytest.mark.parametrize("kind", KINDS)
def test_priorities_and_slices_of_rows_of_every_type(kind: str) -> None:
    rows = rows_of(LENGTH, 0).set("episode", torch.arange(LENGTH) // 4)
    for sampler in (PrioritizedSampler(LENGTH, 0.7, 0.5), SliceSampler(slice_len=2)):
        storage = KINDS[kind](LENGTH)
        buffer = TensorDictReplayBuffer(storage=storage, sampler=sampler, batch_size=8)
        buffer.extend(rows)
        batch = buffer.sample()
        compare(batch, rows, batch["index"].tolist())


CUTS = [(0, 2), (2, 3), (5, 2), (7, 1)]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint32, torch.uint64])
def test_numbers_of_trajectories_may_be_unsigned(dtype: torch.dtype) -> None:
    top = torch.iinfo(dtype).max
    half = top // 2 + 1  # the first number that a signed type of this width does not have
    numbers = torch.tensor([top, top, half, half, half, 0, 0, 7], dtype=dtype)
    for kind in KINDS.values():
        storage = kind(8)
        sampler = SliceSampler(slice_len=2, traj_key="number", strict_length=False)
        buffer = TensorDictReplayBuffer(storage=storage, sampler=sampler, batch_size=8)
        buffer.extend(TensorDict({"number": numbers}, [8]))
        found = storage.trajectories(TrajectoryKeys(number=("number",)))
        assert list(zip(found.starts.tolist(), found.lengths.tolist(), strict=True)) == CUTS
        assert buffer.sample()["number"].dtype == dtype


@pytest.mark.parametrize("kind", KINDS)
def test_steps_that_are_apart_may_be_beyond_int64(kind: str) -> None:
    step = torch.tensor([2**63 + 1, 2**63 - 1, 2**63, 5, 4], dtype=torch.uint64)
    number = torch.tensor([2**64 - 1] * 3 + [1] * 2, dtype=torch.uint64)
    storage = KINDS[kind](5)
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=2)
    buffer.extend(TensorDict({"number": number, "step": step}, [5]))
    keys = TrajectoryKeys(number=("number",), step=("step",))
    found = storage.trajectories(keys)
    assert found.order is not None
    assert found.lengths.tolist() == [2, 3] and found.order.tolist() == [4, 3, 1, 2, 0]
    buffer[0] = TensorDict({"number": number[1], "step": step[1]}, [])
    with refused(WrongRows, key=("number",), found=2**63 - 1):
        storage.trajectories(keys)


def test_rollouts_of_every_type_are_split() -> None:
    rows = rows_of(5, 0).set("traj_ids", torch.tensor([0, 1, 0, 1, 1], dtype=torch.uint16))
    found = split_trajectories(rows)
    for key, name, shape in keys_of("leaf"):
        for row, steps in enumerate([[0, 2], [1, 3, 4]]):
            leaf = found[key][row].unbind(0)
            for place, step in enumerate(steps):
                same(leaf[place], rows[key][step], name)
            for rest in leaf[len(steps) :] if 0 not in shape else ():
                assert not bytes(rest.clone().untyped_storage()).strip(b"\0")


def test_a_flag_that_is_a_pair_of_numbers_is_refused() -> None:
    storage = LazyTensorStorage(4)
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=2)
    buffer.extend(TensorDict({"end": random_tensor("float4_e2m1fn_x2", (4, 1), 0)}, [4]))
    with refused(WrongRows, key=("end",)):
        storage.trajectories(TrajectoryKeys(ends=(("end",),)))


@pytest.mark.parametrize("kind", ["tensors", "files"])
def test_rows_of_another_type_are_refused(kind: str) -> None:
    buffer = TensorDictReplayBuffer(storage=KINDS[kind](4), batch_size=2)
    buffer.extend(TensorDict({"a": torch.tensor([65535, 1], dtype=torch.uint16)}, [2]))
    with refused(WrongRows, key="a", expected=torch.uint16, found=torch.int64):
        buffer.extend(TensorDict({"a": torch.tensor([7, 40000])}, [2]))
    assert buffer["a"].tolist() == [65535, 1]
    pairs = TensorDictReplayBuffer(storage=KINDS[kind](4), batch_size=2)
    pairs.extend(TensorDict({"a": random_tensor("float4_e2m1fn_x2", (2, 3), 0)}, [2]))
    with refused(WrongRows, key="a", found=torch.float32):
        pairs.extend(TensorDict({"a": torch.zeros(2, 3)}, [2]))
    assert len(pairs) == 2


def test_shell_types_are_refused_by_name() -> None:
    for storage in (LazyTensorStorage(4), LazyMemmapStorage(4)):
        buffer = TensorDictReplayBuffer(storage=storage, batch_size=2)
        for dtype in (torch.uint4, torch.int1, torch.bits8):
            rows = TensorDict({"a": torch.zeros(2, 3, dtype=torch.uint8).view(dtype)}, [2])
            with pytest.raises(UsageError, match=f"{dtype} cannot be stored"):
                buffer.extend(rows)


def test_tensordict_opens_the_files_of_a_storage(tmp_path: Path) -> None:
    rows = rows_of(4, 0)
    rows = rows.select("step", *(("leaf", name) for name in KNOWN_TO_TENSORDICT))
    storage = LazyMemmapStorage(4, scratch_dir=tmp_path / "rows")
    TensorDictReplayBuffer(storage=storage, batch_size=2).extend(rows)
    found = TensorDict.load_memmap(tmp_path / "rows")
    compare(found, rows, [0, 1, 2, 3], KNOWN_TO_TENSORDICT)
