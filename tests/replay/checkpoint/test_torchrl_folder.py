"""Folders of TensorDicts that tensordict wrote are read by their content alone."""

from __future__ import annotations

import json
import math
import os
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

from datasets_cli.errors import DamagedDataset, WrongSize
from datasets_cli.replay.checkpoint.torchrl_folder import DTYPES, read_priorities, read_tensordict
from datasets_cli.schema.columns import META_FILENAME
from tests.support.refusals import refused


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
    with pytest.raises(DamagedDataset) as error:
        read()
    assert error.value.path == tmp_path / "sumtree.memmap"


@pytest.mark.parametrize("number", ["1e999", "-0.1", "true", '"0.5"', "null", "9" * 400])
def test_a_power_of_torchrl_that_is_not_a_number_is_refused(number: str, tmp_path: Path) -> None:
    np.zeros(8).tofile(tmp_path / "sumtree.memmap")
    settings = f'"_alpha": {number}, "_beta": 0.4, "_eps": 0.1, "_max_capacity": 8'
    (tmp_path / "sampler_metadata.json").write_text(f"{{{settings}}}")
    with pytest.raises(DamagedDataset) as error:
        read_priorities(tmp_path)
    assert error.value.key == "_alpha"
