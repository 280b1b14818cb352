"""Every element type in every storage that is written."""

from __future__ import annotations

import pickle
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
from datasets_cli.errors import UsageError
from datasets_cli.replay.trajectories.boundaries import TrajectoryKeys
from tests.support.element_types import KNOWN_TO_TENSORDICT, NUMPY, SHAPES, random_tensor, same

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
KINDS: dict[str, Any] = {
    "tensors": LazyTensorStorage,
    "files": LazyMemmapStorage,
    "list": ListStorage,
}
LENGTH = 12


def rows_of(name: str, num_rows: int, seed: int) -> TensorDict:
    """Rows with a leaf of each shape of a type; of a list's rows no leaf can be empty."""
    leaves = {
        tag: random_tensor(name, (num_rows, *shape), seed + number)
        for number, (tag, shape) in enumerate(SHAPES.items())
    }
    return TensorDict({"leaf": leaves, "step": torch.arange(num_rows)}, [num_rows])


def compare(found: Any, expected: Any, index: list[int], name: str) -> None:
    for tag in SHAPES:
        rows = expected["leaf", tag]
        wanted = [rows[number] for number in index]
        for has, must in zip(found["leaf", tag].unbind(0), wanted, strict=True):
            same(has, must, name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NUMPY)
def test_every_type_is_written_and_read(kind: str, name: str) -> None:
    rows = rows_of(name, LENGTH, 0)
    buffer = TensorDictReplayBuffer(storage=KINDS[kind](LENGTH), batch_size=16)
    buffer.extend(rows[:7])
    for number in range(7, LENGTH):
        buffer.add(rows[number])
    every = list(range(LENGTH))
    compare(buffer[:], rows, every, name)
    compare(buffer[[3, 0, 3]], rows, [3, 0, 3], name)
    same(buffer[4]["leaf", "2"], rows["leaf", "2"][4], name)
    same(buffer["leaf", "0"], rows["leaf", "0"], name)
    batch = buffer.sample()
    compare(batch, rows, batch["index"].tolist(), name)
    others = rows_of(name, 2, 90)
    buffer[torch.tensor([5, 1])] = others
    compare(buffer[[5, 1]], others, [0, 1], name)
    buffer[8] = others[0]
    compare(buffer[[8]], others, [0], name)
    compare(buffer[[0, 2, 3, 4, 6, 7, 9]], rows, [0, 2, 3, 4, 6, 7, 9], name)
    buffer.extend(others)  # a ring: over the first two
    compare(buffer[:2], others, [0, 1], name)
    storage = buffer.storage
    assert storage.has(("leaf", "0"))
    found = storage.entry(("leaf", "2"), torch.tensor([1, 0]))
    for has, must in zip(found.unbind(0), reversed(others["leaf", "2"].unbind(0)), strict=True):
        same(has, must, name)
    if kind != "list":  # torch cannot unpickle a tensor of these types by itself
        compare(pickle.loads(pickle.dumps(buffer))[:2], others, [0, 1], name)


@pytest.mark.parametrize("kind", ["tensors", "files"])
@pytest.mark.parametrize("name", NUMPY)
def test_contents_of_environments_side_by_side_have_the_types(kind: str, name: str) -> None:
    flat = rows_of(name, 8, 0)
    storage = KINDS[kind](8, ndim=2)
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=4)
    data = TensorDict(
        {"leaf": {tag: flat["leaf", tag].view(2, 4, *shape) for tag, shape in SHAPES.items()}},
        [2, 4],
    )
    buffer.extend(data)
    contents = storage.contents()
    for tag in SHAPES:
        for side in range(2):
            for step in range(4):
                has = contents["leaf", tag][side].unbind(0)[step]
                same(has, data["leaf", tag][side].unbind(0)[step], name)


@pytest.mark.parametrize("name", NUMPY)
def test_tensors_that_are_there_already_are_not_copied(name: str) -> None:
    rows = rows_of(name, LENGTH, 0)
    storage = TensorStorage(rows)
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=8)
    batch = buffer.sample()
    compare(batch, rows, batch["index"].tolist(), name)
    others = rows_of(name, 1, 50)
    buffer[3] = others[0]
    compare(rows[3:4], others, [0], name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["uint16", "uint64", "float4_e2m1fn_x2", "float8_e8m0fnu"])
def test_priorities_and_slices_of_rows_of_every_type(kind: str, name: str) -> None:
    rows = rows_of(name, LENGTH, 0).set("episode", torch.arange(LENGTH) // 4)
    for sampler in (PrioritizedSampler(LENGTH, 0.7, 0.5), SliceSampler(slice_len=2)):
        storage = KINDS[kind](LENGTH)
        buffer = TensorDictReplayBuffer(storage=storage, sampler=sampler, batch_size=8)
        buffer.extend(rows)
        batch = buffer.sample()
        compare(batch, rows, batch["index"].tolist(), name)


CUTS = [(0, 2), (2, 3), (5, 2), (7, 1)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint32, torch.uint64])
def test_numbers_of_trajectories_may_be_unsigned(kind: str, dtype: torch.dtype) -> None:
    top = torch.iinfo(dtype).max
    half = top // 2 + 1  # the first number that a signed type of this width does not have
    numbers = torch.tensor([top, top, half, half, half, 0, 0, 7], dtype=dtype)
    storage = KINDS[kind](8)
    sampler = SliceSampler(slice_len=2, traj_key="number", strict_length=False)
    buffer = TensorDictReplayBuffer(storage=storage, sampler=sampler, batch_size=8)
    buffer.extend(TensorDict({"number": numbers}, [8]))
    found = storage.trajectories(TrajectoryKeys(number=("number",)))
    assert list(zip(found.starts.tolist(), found.lengths.tolist(), strict=True)) == CUTS
    batch = buffer.sample()
    assert batch["number"].dtype == dtype


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
    with pytest.raises(UsageError, match=f"number={2**64 - 1} has step {2**63 - 1} twice"):
        storage.trajectories(keys)


@pytest.mark.parametrize("name", NUMPY)
def test_rollouts_of_every_type_are_split(name: str) -> None:
    rows = rows_of(name, 5, 0)
    rollout = TensorDict(
        {"leaf": rows["leaf"], "traj_ids": torch.tensor([0, 1, 0, 1, 1], dtype=torch.uint16)}, [5]
    )
    found = split_trajectories(rollout)
    for tag in ("0", "2"):
        for row, steps in enumerate([[0, 2], [1, 3, 4]]):
            leaf = found["leaf", tag][row].unbind(0)
            for place, step in enumerate(steps):
                same(leaf[place], rows["leaf", tag][step], name)
            for rest in leaf[len(steps) :]:
                assert not bytes(rest.clone().untyped_storage()).strip(b"\0")


def test_a_flag_that_is_a_pair_of_numbers_is_refused() -> None:
    storage = LazyTensorStorage(4)
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=2)
    buffer.extend(TensorDict({"end": random_tensor("float4_e2m1fn_x2", (4, 1), 0)}, [4]))
    with pytest.raises(UsageError, match=r"end is torch.float4_e2m1fn_x2, which is no flag"):
        storage.trajectories(TrajectoryKeys(ends=(("end",),)))


@pytest.mark.parametrize("kind", ["tensors", "files"])
def test_rows_of_another_type_are_refused(kind: str) -> None:
    buffer = TensorDictReplayBuffer(storage=KINDS[kind](4), batch_size=2)
    buffer.extend(TensorDict({"a": torch.tensor([65535, 1], dtype=torch.uint16)}, [2]))
    with pytest.raises(UsageError, match=r"a is torch.uint16 in the storage and torch.int64"):
        buffer.extend(TensorDict({"a": torch.tensor([7, 40000])}, [2]))
    assert buffer["a"].tolist() == [65535, 1]
    pairs = TensorDictReplayBuffer(storage=KINDS[kind](4), batch_size=2)
    pairs.extend(TensorDict({"a": random_tensor("float4_e2m1fn_x2", (2, 3), 0)}, [2]))
    with pytest.raises(UsageError, match=r"a is torch.float4_e2m1fn_x2 in the storage and torch.f"):
        pairs.extend(TensorDict({"a": torch.zeros(2, 3)}, [2]))
    assert len(pairs) == 2


@pytest.mark.parametrize("kind", ["tensors", "files"])
@pytest.mark.parametrize("dtype", [torch.uint4, torch.int1, torch.bits8])
def test_shell_types_are_refused_by_name(kind: str, dtype: torch.dtype) -> None:
    buffer = TensorDictReplayBuffer(storage=KINDS[kind](4), batch_size=2)
    rows = TensorDict({"a": torch.zeros(2, 3, dtype=torch.uint8).view(dtype)}, [2])
    with pytest.raises(UsageError, match=f"{dtype} cannot be stored"):
        buffer.extend(rows)


@pytest.mark.parametrize("name", KNOWN_TO_TENSORDICT)
def test_tensordict_opens_the_files_of_a_storage(tmp_path: Path, name: str) -> None:
    rows = rows_of(name, 4, 0)
    storage = LazyMemmapStorage(4, scratch_dir=tmp_path / "rows")
    TensorDictReplayBuffer(storage=storage, batch_size=2).extend(rows)
    compare(TensorDict.load_memmap(tmp_path / "rows"), rows, [0, 1, 2, 3], name)
