"""Rows that are not all tensors are dumped too: what is read is what was written, or is refused."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import (
    LazyStackedTensorDict,
    NonTensorData,
    NonTensorStack,
    TensorDict,
    TensorDictBase,
    tensorclass,
)

from datasets_cli import (
    LazyMemmapStorage,
    LazyTensorStorage,
    ListStorage,
    ReplayBuffer,
    ReplayBufferEnsemble,
    SamplerWithoutReplacement,
    TensorDictReplayBuffer,
)
from datasets_cli.errors import DamagedDataset, UsageError, WrongRows, WrongSize, WrongState
from datasets_cli.replay.checkpoint.torchrl_folder import DTYPES, read_priorities, read_tensordict
from datasets_cli.schema.columns import META_FILENAME
from tests.replay.storages.test_storages import steps
from tests.support.refusals import refused

# Folders of TensorDicts that tensordict wrote are read by their content alone.


def plain(rows: Any) -> Any:
    """What rows hold, as values that ``==`` compares."""
    if isinstance(rows, torch.Tensor):
        numbers = rows.resolve_conj().contiguous().reshape(-1).view(torch.uint8)
        return str(rows.dtype), tuple(rows.shape), numbers.tolist()
    if isinstance(rows, NonTensorData) and not rows.batch_size:
        return rows.data
    if isinstance(rows, NonTensorData | NonTensorStack):
        return [plain(row) for row in rows.unbind(0)]
    return tuple(rows.batch_size), {name: plain(item) for name, item in rows.items()}


@tensorclass
class Pair:
    number: torch.Tensor
    note: str


def test_every_dtype_comes_back(tmp_path: Path) -> None:
    rows = TensorDict({}, [4])
    for name, dtype in DTYPES.items():
        bits = torch.randint(0, 2 if dtype == torch.bool else 256, (4, 16), dtype=torch.uint8)
        rows[name.replace(".", " ")] = bits.view(dtype)
    rows.memmap(tmp_path / "root")
    for mapped in (False, True):
        assert plain(read_tensordict(tmp_path / "root", mapped=mapped)) == plain(rows)


def kinds() -> dict[str, TensorDictBase]:
    number = torch.arange(4)
    odd = [TensorDict({"a": torch.zeros(n), "b": NonTensorData({"n": n})}) for n in (2, 3)]
    texts = NonTensorStack(*(NonTensorStack("x", "y") for _ in range(4)))
    return {
        "nested": TensorDict({"a": {"b c": number}, "e": TensorDict({}, [4])}, [4]),
        "batches": TensorDict({"a": TensorDict({"b": torch.ones(4, 2)}, [4, 2])}, [4]),
        "one value": TensorDict({"a": NonTensorData("x", batch_size=[4]), "n": number}, [4]),
        "values": TensorDict({"a": NonTensorStack(*"wxyz"), "n": number}, [4]),
        "dicts": TensorDict({"a": NonTensorStack({"b": [1]}, {"b": [2]})}, [2]),
        "values of two dimensions": TensorDict({"a": texts}, [4, 2]),
        "no rows": TensorDict({"a": number, "b": NonTensorData(None)}, []),
        "lazy": LazyStackedTensorDict(*(TensorDict({"a": number + n}, [4]) for n in range(3))),
        "lazy of others": LazyStackedTensorDict(*odd),
        "views": TensorDict({"a": torch.arange(12).view(4, 3).T}, [3]),
        "conjugate": TensorDict({"a": torch.randn(4, dtype=torch.complex64).conj()}, [4]),
    }


def parts(rows: Any) -> Any:
    return [plain(row) for row in rows.unbind(0)] if rows.batch_size else plain(rows)


@pytest.mark.parametrize("kind", kinds())
def test_a_folder_of_tensordict_is_read(tmp_path: Path, kind: str) -> None:
    rows = kinds()[kind]
    rows.memmap(tmp_path / "root")
    assert parts(read_tensordict(tmp_path / "root")) == parts(rows)


@pytest.mark.parametrize("at_root", [True, False])
def test_a_tensorclass_comes_as_a_tensordict(tmp_path: Path, at_root: bool) -> None:
    pair = Pair(number=torch.arange(3), note="x", batch_size=[3])
    rows = pair if at_root else TensorDict({"pair": pair}, [3])
    rows.memmap(tmp_path / "root")
    found = read_tensordict(tmp_path / "root")
    inner = found if at_root else found["pair"]
    assert type(inner) is TensorDict and inner["number"].tolist() == [0, 1, 2]
    assert inner["note"] == "x"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = TensorDict({"a": torch.arange(3), "b": {"c": torch.ones(3)}}, [3])
    rows.memmap(tmp_path / "root")
    return tmp_path / "root"


@pytest.mark.parametrize("name", ["a.memmap", "meta.json", "b/c.memmap", "b/meta.json", "b"])
def test_only_regular_files_are_opened(folder: Path, name: str) -> None:
    path, away = folder / name, folder.parent / "away"
    path.rename(away)
    for put in (
        lambda: path.symlink_to(away),
        lambda: path.symlink_to("/dev/zero"),
        lambda: os.mkfifo(path),
        path.mkdir,
    ):
        put()
        with pytest.raises((DamagedDataset, FileNotFoundError), match=str(path)):
            read_tensordict(folder)
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


LEAF_META = {"device": "cpu", "shape": [3], "dtype": "torch.int64", "is_nested": False}


def test_a_level_that_is_wrong_is_damaged(folder: Path) -> None:
    good = json.loads((folder / META_FILENAME).read_text())
    wrong: list[dict[str, Any]] = [
        {"a": LEAF_META | {"shape": [4]}},
        {"a": LEAF_META | {"shape": [3, 2**62]}},
        {"a": LEAF_META | {"shape": [2**70]}},
        {"a": LEAF_META | {"shape": [3, -1]}},
        {"a": LEAF_META | {"shape": [True]}},
        {"a": LEAF_META | {"shape": "3"}},
        {"a": LEAF_META | {"shape": [0, 2**63]}},
        {"a": LEAF_META | {"shape": []}},
        {"a": LEAF_META | {"dtype": "torch.load"}},
        {"a": LEAF_META | {"dtype": ["torch.int64"]}},
        {"a": LEAF_META | {"dtype": None}},
        {"a": {}},
        {"a": []},
        {"a": 3},
        {"../a": LEAF_META},
        {"x" * 5000: LEAF_META},
        {"\ud800": LEAF_META},
        {"b": {"type": 3}, "shape": [3, 3]},
        {"missing": {"type": "TensorDict"}},
        {"shape": [2]},
        {"shape": None},
        {"shape": [[3]]},
        {"_type": None},
        {"_type": ["TensorDict"]},
        {"_type": "<class 'tensordict._lazy.LazyStackedTensorDict'>", "stack_dim": 0},
        {"_type": "<class 'tensordict._lazy.LazyStackedTensorDict'>", "stack_dim": "0"},
        {"_type": "<class 'tensordict.tensorclass.NonTensorStack'>", "data": [1, 2]},
    ]
    for entries in wrong:
        (folder / META_FILENAME).write_text(json.dumps(good | entries))
        with pytest.raises((DamagedDataset, FileNotFoundError), match=str(folder)):
            read_tensordict(folder)


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "1", "nul", "{", "\x80", "9" * 9999, '{"a": ' + "[" * 100_000),
        *("[" * 10_000 + "]" * 10_000, '{"a":' * 5_000 + "1" + "}" * 5_000),
        '{"a": ' + "[" * 200 + "]" * 200 + "}",
    ],
)
def test_json_that_is_wrong_is_damaged(folder: Path, text: str) -> None:
    (folder / "b" / META_FILENAME).write_bytes(text.encode("latin1"))
    with refused(DamagedDataset, path=folder / "b/meta.json"):
        read_tensordict(folder)


def test_folders_without_end_are_damaged(tmp_path: Path) -> None:
    folder = tmp_path
    for _ in range(150):
        (folder / META_FILENAME).write_text(
            json.dumps(
                {
                    "a": {"type": "TensorDict"},
                    "shape": [],
                    "_type": "<class 'tensordict._td.TensorDict'>",
                }
            )
        )
        folder = folder / "a"
        folder.mkdir()
    with refused(DamagedDataset, expected="100 levels at most"):
        read_tensordict(tmp_path)


def test_a_file_of_a_claimed_size_is_not_read(folder: Path) -> None:
    with (folder / META_FILENAME).open("r+b") as file:
        file.truncate(1 << 40)
    with refused(DamagedDataset, path=folder / META_FILENAME, found=1 << 40):
        read_tensordict(folder)
    change_back = {"a": LEAF_META | {"shape": [3, 1 << 36]}, "shape": [3]}
    text = {"_type": "<class 'tensordict._td.TensorDict'>", **change_back}
    (folder / META_FILENAME).write_text(json.dumps(text))
    with (folder / "a.memmap").open("r+b") as file:
        file.truncate(3 << 39)
    with refused(WrongSize, found=3 << 39):
        read_tensordict(folder)


def test_the_priorities_of_torchrl_are_read(tmp_path: Path) -> None:
    priority, alpha, eps = np.array([4.0, 0.25, 9.0]), 0.5, 1e-8
    leaves = np.zeros(8)
    leaves[:3] = np.float32((priority + eps) ** alpha)
    leaves.tofile(tmp_path / "sumtree.memmap")
    metadata = {"_alpha": alpha, "_beta": 0.4, "_eps": eps, "_max_priority": [12.0, 2.0]}
    metadata |= {"_max_capacity": 8.0, "_schema_version": 1}

    def read(**changes: Any) -> dict[str, Any]:
        text = json.dumps({key: value for key, value in (metadata | changes).items() if value})
        (tmp_path / "sampler_metadata.json").write_text(text)
        return read_priorities(tmp_path)

    found = read()
    np.testing.assert_allclose(found["priorities"], priority, rtol=1e-6)
    assert (found["alpha"], found["beta"], found["max_priority"]) == (0.5, 0.4, 12.0)
    assert read(_max_priority=0.5)["max_priority"] == 0.5
    untrusted = read(_schema_version=None)["max_priority"]  # rl#3925
    assert math.isclose(untrusted, 9.0, rel_tol=1e-6)
    np.zeros(8).tofile(tmp_path / "sumtree.memmap")  # before the first update
    assert len(read()["priorities"]) == 0
    (tmp_path / "sumtree.memmap").write_bytes(bytes(72))
    with refused(DamagedDataset, path=tmp_path / "sumtree.memmap"):
        read()


@pytest.mark.parametrize("number", ["1e999", "-0.1", "true", '"0.5"', "null", "9" * 400])
def test_a_power_of_torchrl_that_is_not_a_number_is_refused(number: str, tmp_path: Path) -> None:
    np.zeros(8).tofile(tmp_path / "sumtree.memmap")
    settings = f'"_alpha": {number}, "_beta": 0.4, "_eps": 0.1, "_max_capacity": 8'
    (tmp_path / "sampler_metadata.json").write_text(f"{{{settings}}}")
    with refused(DamagedDataset, key="_alpha"):
        read_priorities(tmp_path)


# Rows that are not all tensors are dumped too: what is read is what was written, or is refused.


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


@pytest.mark.parametrize("kind", KINDS)
def test_a_list_of_tensordicts_comes_back(tmp_path: Path, kind: str) -> None:
    first, by_dump, by_state = (
        ReplayBuffer(storage=ListStorage(6), sampler=SamplerWithoutReplacement(), seed=0)
        for _ in range(3)
    )
    first.extend(items(kind))
    first.dumps(tmp_path)
    by_dump.loads(tmp_path)
    by_state.load_state_dict(first.state_dict())
    for other in (by_dump, by_state):
        assert repr(shown(other.storage.contents())) == repr(shown(items(kind)))
        assert other.extend(items(kind)).tolist() == [4, 5, 0, 1]


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
    with refused(UsageError, path=tmp_path / "of other shapes"):
        ReplayBuffer(storage=LazyTensorStorage(4)).loads(tmp_path / "of other shapes")
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
    with refused(WrongRows, argument="tensorclass"):
        other.loads(tmp_path, tensorclass=Step)
    again = ReplayBuffer(storage=storage(9))
    again.loads(tmp_path)
    assert type(again.storage.item(1)) is TensorDict
    same = ReplayBuffer(storage=storage(9))
    same.load_state_dict(first.state_dict(), tensorclass=Pair)
    assert type(same.storage.item(1)) is Pair and int(same.storage.item(1).one) == 1


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
