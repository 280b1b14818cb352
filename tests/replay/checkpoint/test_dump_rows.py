"""Rows that are not all tensors are dumped too: what is read is what was written, or is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import LazyStackedTensorDict, NonTensorData, NonTensorStack, TensorDict, tensorclass

from datasets_cli import (
    LazyMemmapStorage,
    LazyTensorStorage,
    ListStorage,
    PrioritizedSampler,
    ReplayBuffer,
    ReplayBufferEnsemble,
    SamplerWithoutReplacement,
    TensorDictReplayBuffer,
)
from datasets_cli.errors import UsageError, WrongRows, WrongSize, WrongState
from tests.replay.checkpoint.test_torchrl_folder import plain
from tests.replay.storages.test_storages import steps


@tensorclass
class Step:
    number: torch.Tensor
    note: str


def row(batch: tuple[int, ...] = (), **entries: Any) -> TensorDict:
    return TensorDict(entries, batch)


def items(kind: str) -> list[Any]:
    """Four rows."""
    notes = ["a", b"b", None, {"c": [1, math.inf, (True, 2**70)]}]
    number, ones = [*torch.arange(4)], torch.ones(2)
    rows: dict[str, Callable[[int], Any]] = {
        "with values": lambda n: row(n=number[n], inner=row(note=NonTensorData(notes[n]))),
        "of other shapes": lambda n: row(n=torch.arange(n + 1)),
        "of other keys": lambda n: row(n=number[n], **{f"k{n % 2}": ones}),
        "equal values of other types": lambda n: row(v=NonTensorData([1, True, 1.0, 1][n])),
        "with a batch of their own": lambda n: row((2,), n=ones, v=NonTensorStack("x", str(n))),
        "lazy stacks": lambda n: LazyStackedTensorDict(*items("of other shapes")[n : n + 1] * 2),
        "with an index": lambda n: row(n=number[n], index=number[3 - n]),
    }
    return [rows[kind](n) for n in range(4)]


KINDS = [
    "with values",
    "of other shapes",
    "of other keys",
    "equal values of other types",
    "with a batch of their own",
    "lazy stacks",
    "with an index",
]


def shown(rows: list[Any]) -> list[Any]:
    return [
        [plain(part) for part in row.unbind(row.stack_dim)]
        if isinstance(row, LazyStackedTensorDict)
        else plain(row)
        for row in rows
    ]


def typed(rows: Any) -> str:
    return repr(rows)  # 1, 1.0 and True are equal


@pytest.mark.parametrize("kind", KINDS)
def test_a_list_of_tensordicts_comes_back(tmp_path: Path, kind: str) -> None:
    first, other = (
        ReplayBuffer(storage=ListStorage(6), sampler=SamplerWithoutReplacement(), seed=0)
        for _ in range(2)
    )
    first.extend(items(kind))
    first.dumps(tmp_path)
    other.loads(tmp_path)
    assert typed(shown(other.storage.contents())) == typed(shown(items(kind)))
    assert other.extend(items(kind)).tolist() == first.extend(items(kind)).tolist() == [4, 5, 0, 1]


@pytest.mark.parametrize("kind", ["with values", "of other shapes"])
def test_a_full_list_that_is_loaded_into_a_larger_one_begins_with_its_oldest(
    tmp_path: Path, kind: str
) -> None:
    first, other = (ReplayBuffer(storage=ListStorage(size)) for size in (3, 9))
    first.extend(items(kind))
    first.dumps(tmp_path)
    other.loads(tmp_path)
    assert shown(other.storage.contents()) == shown(items(kind)[1:])


def test_rows_that_were_loaded_can_be_written_to(tmp_path: Path) -> None:
    """They are copies: neither a write nor the end of the dump reaches the other."""
    first, other = (ReplayBuffer(storage=ListStorage(4)) for _ in range(2))
    first.extend(items("with values"))
    first.dumps(tmp_path)
    other.loads(tmp_path)
    other.storage.item(1)["n"].add_(10)
    again = ReplayBuffer(storage=ListStorage(4))
    again.loads(tmp_path)
    assert [int(row["n"]) for row in other.storage.contents()] == [0, 11, 2, 3]
    assert [int(row["n"]) for row in again.storage.contents()] == [0, 1, 2, 3]


def test_a_load_hook_may_write_to_the_rows(tmp_path: Path) -> None:
    first, other = (ReplayBuffer(storage=LazyTensorStorage(4)) for _ in range(2))
    first.extend(steps(4))
    first.dumps(tmp_path)
    other.register_load_hook(lambda rows: rows.apply_(lambda leaf: leaf.zero_()))
    other.loads(tmp_path)
    again = ReplayBuffer(storage=LazyTensorStorage(4))
    again.loads(tmp_path)
    assert not other[:]["number"].any() and again[:]["number"].tolist() == [0, 1, 2, 3]


def test_rows_of_a_list_are_loaded_into_tensors_where_these_take_them(tmp_path: Path) -> None:
    listed = ReplayBuffer(storage=ListStorage(4))
    listed.extend(steps(4))
    listed.dumps(tmp_path / "same")
    buffer = ReplayBuffer(storage=LazyTensorStorage(4))
    buffer.loads(tmp_path / "same")
    assert bool((buffer[:] == steps(4)).all())
    for kind in ("of other shapes", "with values"):
        listed = ReplayBuffer(storage=ListStorage(4))
        listed.extend(items(kind))
        listed.dumps(tmp_path / kind)
    with pytest.raises(UsageError) as error:
        ReplayBuffer(storage=LazyTensorStorage(4)).loads(tmp_path / "of other shapes")
    assert error.value.path == tmp_path / "of other shapes"
    valued = ReplayBuffer(storage=LazyTensorStorage(4))
    valued.loads(tmp_path / "with values")
    assert valued[:]["inner", "note"] == [item["inner", "note"] for item in items("with values")]


def test_rows_of_different_batch_sizes_come_back(tmp_path: Path) -> None:
    first, other = (ReplayBuffer(storage=ListStorage(4)) for _ in range(2))
    first.extend([row((2,), n=torch.ones(2)), row((3,), n=torch.ones(3)), 5])
    first.dumps(tmp_path)
    other.loads(tmp_path)
    assert [getattr(item, "batch_size", item) for item in other.storage.contents()] == [
        *((2,), (3,), 5)
    ]


def test_a_hook_that_returns_no_rows_is_refused(tmp_path: Path) -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(4))
    buffer.extend(steps(4))
    for found in (None, steps(4)["number"], steps(4)[0]):
        hooked = ReplayBuffer(storage=buffer.storage)
        hooked.register_save_hook(lambda rows, found=found: found)
        with pytest.raises(WrongRows):
            hooked.dumps(tmp_path / "dump")
    assert not (tmp_path / "dump").exists()


@pytest.mark.parametrize("value", [object(), {1}, [1, print]])
def test_other_values_are_refused_by_name_before_anything_is_written(
    tmp_path: Path, value: Any
) -> None:
    buffer = ReplayBuffer(storage=ListStorage(4))
    buffer.extend(items("with values"))
    buffer.dumps(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    buffer.extend([row(n=torch.tensor(0), inner=row(note=NonTensorData(value)))])
    with pytest.raises(UsageError, match="note"):
        buffer.dumps(tmp_path)
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before


@pytest.mark.parametrize("storage", [ListStorage, LazyTensorStorage, LazyMemmapStorage])
def test_a_tensorclass_is_rebuilt_from_the_class_that_is_passed(
    tmp_path: Path, storage: Any
) -> None:
    @tensorclass
    class Pair:
        one: torch.Tensor
        two: torch.Tensor

    pairs = Pair(one=torch.arange(4), two=torch.ones(4, 2), batch_size=[4])
    first, other = (ReplayBuffer(storage=storage(9)) for _ in range(2))
    first.extend(list(pairs.unbind(0)) if storage is ListStorage else pairs)
    first.dumps(tmp_path)
    other.loads(tmp_path, tensorclass=Pair)
    assert type(other.storage.item(1)) is Pair and int(other.storage.item(1).one) == 1
    with pytest.raises(WrongRows) as error:
        other.loads(tmp_path, tensorclass=Step)
    assert error.value.argument == "tensorclass"
    again = ReplayBuffer(storage=storage(9))
    again.loads(tmp_path)
    assert type(again.storage.item(1)) is TensorDict
    same = ReplayBuffer(storage=storage(9))
    same.load_state_dict(first.state_dict(), tensorclass=Pair)
    assert type(same.storage.item(1)) is Pair and int(same.storage.item(1).one) == 1


def test_names_that_meta_json_keeps_for_itself_come_back(tmp_path: Path) -> None:
    rows = TensorDict(
        {"shape": torch.arange(4), "shape~": torch.ones(4), "a.memmap": {"_type": torch.arange(4)}},
        [4],
    )
    first, other = (ReplayBuffer(storage=LazyTensorStorage(4)) for _ in range(2))
    first.extend(rows)
    first.dumps(tmp_path)
    other.loads(tmp_path)
    assert plain(other[:]) == plain(rows)


@pytest.mark.parametrize("seeded", [True, False])
def test_a_generator_of_the_buffers_own_continues(tmp_path: Path, seeded: bool) -> None:
    first, other = (
        TensorDictReplayBuffer(
            storage=LazyTensorStorage(100),
            generator=torch.Generator().manual_seed(seed) if seeded else None,
            batch_size=20,
            prefetch=2,
        )
        for seed in (1, 2)
    )
    first.extend(steps(100))
    first.sample()
    first.dumps(tmp_path)
    assert (torch.load(tmp_path / "buffer.pt")["generator"] is not None) == seeded
    torch.manual_seed(3)
    mine = torch.random.get_rng_state()
    other.loads(tmp_path)
    assert torch.equal(torch.random.get_rng_state(), mine)
    assert not seeded or torch.equal(first.sample()["index"], other.sample()["index"])


def test_an_ensemble_continues_with_its_draws(tmp_path: Path) -> None:
    def made(seed: int) -> ReplayBufferEnsemble:
        samplers = SamplerWithoutReplacement(), PrioritizedSampler(20, 0.7, 0.5)
        members = [
            TensorDictReplayBuffer(storage=LazyTensorStorage(20), sampler=sampler)
            for sampler in samplers
        ]
        for member in members:
            member.extend(steps(20))
        return ReplayBufferEnsemble(*members, batch_size=8, p=[0.2, 0.8], seed=seed)

    first, other = made(1), made(2)
    first.sample()
    first.dumps(tmp_path)
    other.loads(tmp_path)
    for _ in range(4):
        assert bool((first.sample() == other.sample()).all())


@pytest.mark.parametrize("way", ["dump", "state"])
@pytest.mark.parametrize("storage", [LazyTensorStorage, ListStorage])
def test_where_a_member_is_refused_no_member_of_an_ensemble_changes(
    tmp_path: Path, way: str, storage: Any
) -> None:
    def made(start: int, sizes: tuple[int, int] = (9, 9)) -> ReplayBufferEnsemble:
        members = [TensorDictReplayBuffer(storage=storage(size), seed=1) for size in sizes]
        for member in members:
            member.extend(list(steps(4, start).unbind(0)))
        return ReplayBufferEnsemble(*members, batch_size=8, seed=start)

    first, other = made(0), made(100, (9, 3))
    before = repr(other.state_dict())
    first.dumps(tmp_path / "dump")
    with pytest.raises(WrongSize):
        if way == "dump":
            other.loads(tmp_path / "dump")
        else:
            other.load_state_dict(first.state_dict())
    assert repr(other.state_dict()) == before
    for state in (None, {}, {"members": []}, first.state_dict() | {"generator": 5}):
        with pytest.raises(WrongState):
            made(100).load_state_dict(state)


def test_an_ensemble_makes_rows_a_tensorclass(tmp_path: Path) -> None:
    def made() -> ReplayBufferEnsemble:
        members = [ReplayBuffer(storage=ListStorage(4)) for _ in range(2)]
        return ReplayBufferEnsemble(*members, batch_size=4)

    first = made()
    for member in first.buffers:
        member.extend(list(Numbers(number=torch.arange(3), batch_size=[3]).unbind(0)))
    first.dumps(tmp_path / "dump")
    for load in (
        lambda ensemble: ensemble.loads(tmp_path / "dump", tensorclass=Numbers),
        lambda ensemble: ensemble.load_state_dict(first.state_dict(), tensorclass=Numbers),
    ):
        other = made()
        load(other)
        assert [type(member.storage.item(2)) for member in other.buffers] == [Numbers, Numbers]


@tensorclass
class Numbers:
    number: torch.Tensor
