"""Folders of TensorDicts: ours and tensordict's are read by their content alone."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensordict import (
    LazyStackedTensorDict,
    NonTensorData,
    NonTensorStack,
    TensorDict,
    TensorDictBase,
    tensorclass,
)

from datasets_cli.errors import DamagedDataset, UsageError
from datasets_cli.replay.checkpoint.read_folder import read_tensordict
from datasets_cli.replay.checkpoint.write_folder import DTYPES, plan_files, write_files
from datasets_cli.schema.columns import META_FILENAME


def write(folder: Path, rows: Any) -> None:
    write_files(folder, list(plan_files(rows)))


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


NAMES = st.text(st.characters(codec="utf-8"), max_size=40) | st.sampled_from(
    [
        "shape",
        "shape~",
        "device",
        "_type",
        "_type~~",
        "meta.json",
        "a",
        "a.memmap",
        ".",
        "..",
        "%",
        "a/b",
        "text",
        "TEXT",
        "text~",
        "type",
        "data",
        "0",
        "other.pickle",
        "_tensordict",
    ]
)
LEAF = st.sampled_from([torch.arange(3), torch.zeros(3, 0), torch.ones(3, 2, dtype=torch.bool)])
TREES: Any = st.recursive(
    LEAF | st.builds(lambda: NonTensorStack("a", b"b", None)),
    lambda inner: st.dictionaries(NAMES, inner, max_size=4).map(lambda d: TensorDict(d, [3])),
    max_leaves=6,
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(tree=st.dictionaries(NAMES, TREES, min_size=1, max_size=4))
def test_any_names_come_back(tmp_path_factory: Any, tree: dict[str, Any]) -> None:
    rows = TensorDict(tree, [3])
    folder = tmp_path_factory.mktemp("names") / "root"
    write(folder, rows)
    assert plain(read_tensordict(folder, escaped=True)) == plain(rows)


def test_every_element_type_comes_back(tmp_path: Path) -> None:
    rows = TensorDict({}, [4])
    for name, dtype in DTYPES.items():
        bits = torch.randint(0, 2 if dtype == torch.bool else 256, (4, 16), dtype=torch.uint8)
        rows[name], rows["none of", name] = bits.view(dtype), bits.view(dtype)[:, :0]
    write(tmp_path / "root", rows)
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
def test_what_either_library_wrote_is_read_by_both(tmp_path: Path, kind: str) -> None:
    rows = kinds()[kind]
    write(tmp_path / "ours", rows)
    rows.memmap(tmp_path / "tensordict's")
    assert parts(read_tensordict(tmp_path / "ours")) == parts(rows)
    assert parts(read_tensordict(tmp_path / "tensordict's")) == parts(rows)
    if kind not in ("lazy of others", "conjugate"):
        assert parts(TensorDict.load_memmap(tmp_path / "ours")) == parts(rows)


@pytest.mark.parametrize("at_root", [True, False])
def test_a_tensorclass_comes_as_a_tensordict(tmp_path: Path, at_root: bool) -> None:
    pair = Pair(number=torch.arange(3), note="x", batch_size=[3])
    rows = pair if at_root else TensorDict({"pair": pair}, [3])
    rows.memmap(tmp_path / "root")
    found = read_tensordict(tmp_path / "root")
    inner = found if at_root else found["pair"]
    assert type(inner) is TensorDict and inner["number"].tolist() == [0, 1, 2]
    assert inner["note"] == "x"


def test_values_that_are_lists_are_not_taken_for_dimensions(tmp_path: Path) -> None:
    rows = TensorDict({"a": NonTensorStack(*(NonTensorData([n, n]) for n in range(3)))}, [3])
    write(tmp_path / "root", rows)
    assert plain(read_tensordict(tmp_path / "root")) == plain(rows)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (NonTensorData(object(), batch_size=[3]), r"in\.it is builtins.object"),
        (NonTensorStack("a", {"b": {1}}, "c"), r"in\.it\[1\]\['b'\] is builtins.set"),
        (torch.zeros(3).to_sparse(), r"in\.it is a tensor of torch.float32, torch.sparse_coo"),
    ],
)
def test_what_no_file_can_hold_is_refused_by_name(item: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        list(plan_files(TensorDict({"in": {"it": item}}, [3])))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "root", TensorDict({"a": torch.arange(3), "b": {"c": torch.ones(3)}}, [3]))
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
    with pytest.raises(DamagedDataset, match=r"b/meta\.json"):
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
    with pytest.raises(DamagedDataset, match="folders deep"):
        read_tensordict(tmp_path)


def test_a_file_of_a_claimed_size_is_not_read(folder: Path) -> None:
    with (folder / META_FILENAME).open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(DamagedDataset, match=r"has 1,099,511,627,776 bytes"):
        read_tensordict(folder)
    change_back = {"a": LEAF_META | {"shape": [3, 1 << 36]}, "shape": [3]}
    text = {"_type": "<class 'tensordict._td.TensorDict'>", **change_back}
    (folder / META_FILENAME).write_text(json.dumps(text))
    with (folder / "a.memmap").open("r+b") as file:
        file.truncate(3 << 39)
    with pytest.raises(UsageError, match="more than half"):
        read_tensordict(folder)
