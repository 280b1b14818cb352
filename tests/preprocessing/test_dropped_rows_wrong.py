"""What a function that drops rows must not return, and runs that end while gaps are closed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from tensordict import TensorDict

from datasets_cli.errors import DamagedDataset, DiskFull, WrongRows
from datasets_cli.preprocessing import execution
from datasets_cli.store.manifest import read_manifest
from tests.support.derived import preprocess
from tests.support.refusals import refused
from tests.support.text_rows import steps_of, write

LENGTHS = (4, 1, 6, 3, 20)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    steps = steps_of(["go left"], LENGTHS)
    del steps["observation", "mission"]
    return write(tmp_path, "ted", steps)


def some(batch: TensorDict) -> TensorDict:
    return batch[batch["action"] % 3 > 0]


def nested(batch: TensorDict) -> TensorDict:
    """A function that goes over all entries."""
    rows = some(batch)
    return rows.set("copy", rows.clone())


ROW = {"key": ("_row",)}
WRONG: dict[str, tuple[Callable[[TensorDict], Any], dict[str, Any]]] = {
    "not which": (lambda b: some(b).select("action"), {**ROW, "found": "nothing"}),
    "another type": (
        lambda b: some(b).apply(torch.Tensor.float),
        {**ROW, "found": "float32 [2]"},
    ),
    "other numbers": (lambda b: some(b) * 5, {**ROW, "found": "numbers from 5 to 10"}),
    "text": (lambda b: some(b).set("_row", ["a", "b"]), {**ROW, "found": "a NonTensorStack"}),
    "another order": (lambda b: b[[2, 0]], {**ROW, "row": 0}),
    "twice": (lambda b: b[[1, 1, 2]], {**ROW, "row": 1}),
    "more rows": (lambda b: torch.cat([b, b]), {"found": "a TensorDict [8]"}),
    "no rows": (lambda b: TensorDict({"action": b["action"]}, []), {"found": "a TensorDict []"}),
    "another order of all": (
        lambda b: b[(b["_row"] - b["_row"][0]).flip(0)],
        {**ROW, "row": 2},
    ),
    "all entries": (nested, {"key": "copy._row", "found": "int64 []"}),
    "all go": (lambda b: b[b["action"] < 0], {"found": 0}),
}


@pytest.mark.parametrize("name", WRONG)
def test_rows_that_are_not_told_are_refused(name: str, source: Path, tmp_path: Path) -> None:
    function, attributes = WRONG[name]
    with refused(WrongRows, **attributes):
        preprocess(source, function, tmp_path / "out", num_workers=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def test_a_function_that_drops_nothing_meets_no_numbers(source: Path, tmp_path: Path) -> None:
    def joined(batch: TensorDict) -> TensorDict:
        """Take all there is, as functions do that know nothing of numbers."""
        leaves = batch.values(include_nested=True, leaves_only=True)
        return batch.set(
            "all", torch.cat([leaf.double().view(len(batch), -1) for leaf in leaves], 1)
        )

    storage = preprocess(source, joined, tmp_path / "out", num_workers=0, chunksize=3)
    assert storage.column(("all",)).shape == (34, 13)
    assert (("_row",) in storage.dataset.keys) is False


def test_a_function_may_look_for_the_numbers(source: Path, tmp_path: Path) -> None:
    def odd(batch: TensorDict) -> TensorDict:
        return batch.select("action", "_row")[batch["_row"] % 2 == 1]

    storage = preprocess(source, odd, tmp_path / "out", num_workers=0, chunksize=3)
    assert storage.column(("action",)).tolist() == [*range(1, 34, 2)]
    assert storage.dataset.keys == (("action",),)


def test_a_column_of_the_same_name_is_refused_where_rows_are_dropped(
    source: Path, tmp_path: Path
) -> None:
    def named(batch: TensorDict) -> TensorDict:
        return batch.set("_row", batch["action"] * 2)

    own = tmp_path / "own"
    preprocess(source, named, own, num_workers=0)
    kept = preprocess(own, lambda batch: batch, tmp_path / "kept", num_workers=0)
    assert kept.column(("_row",)).tolist() == [*range(0, 68, 2)]
    with refused(WrongRows, key=("_row",)):
        preprocess(own, some, tmp_path / "out", num_workers=0)


def test_other_columns_later_are_told_with_rows_and_trajectories(
    source: Path, tmp_path: Path
) -> None:
    def late(batch: TensorDict) -> TensorDict:
        return (
            some(batch).set("action", some(batch)["action"].to(torch.int32))
            if (int(batch["episode"][0]) == 2)
            else some(batch)
        )

    with refused(WrongRows, key="action", expected="int64 []", found="int32 []"):
        preprocess(source, late, tmp_path / "out", num_workers=0, chunksize=1)


def test_statistics_of_values_that_are_no_numbers_are_left_out(
    source: Path, tmp_path: Path
) -> None:
    def broken(batch: TensorDict) -> TensorDict:
        reward = batch["next", "reward"]
        reward[batch["action"] == 0] = float("nan")
        reward[batch["action"] == 6] = float("inf")
        reward[batch["action"] == 7] = -float("inf")
        return batch[batch["action"] != 2]

    storage = preprocess(source, broken, tmp_path / "out", num_workers=0)
    statistics = storage.dataset.manifest.statistics
    assert statistics["reward"]["mean"] is None and statistics["return"]["min"] is None
    assert statistics["length"]["mean"] == 33 / 6


STEPS = [
    *((execution, name) for name in ("copy_bytes", "flush", "replace_file")),
    *((execution, name) for name in ("_put", "complete_leaves")),
]


@pytest.mark.parametrize(("module", "name"), STEPS, ids=[name for _, name in STEPS])
def test_a_run_that_ends_while_gaps_are_closed_continues_to_the_same_bytes(
    module: Any, name: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try ends after one more of its steps."""
    done, tries, original = 0, -3, getattr(module, name)

    def ends(*arguments: Any) -> Any:
        nonlocal done
        done += 1
        found = original(*arguments)
        if done > tries:
            raise OSError("killed")
        return found

    monkeypatch.setattr(module, name, ends)
    while not (tmp_path / "out").exists():
        done, tries = 0, tries + 3
        with suppress(OSError):
            preprocess(source, some, tmp_path / "out", num_workers=0, chunksize=3)
    assert tries >= 3
    monkeypatch.undo()
    preprocess(source, some, tmp_path / "right", num_workers=0)
    assert read_manifest(tmp_path / "out").files == read_manifest(tmp_path / "right").files
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "out", "right"]


def test_a_mark_of_another_length_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(OSError, match="killed"):
        patch.setattr(execution, "close_gaps", Mock(side_effect=OSError("killed")))
        preprocess(source, some, tmp_path / "out", num_workers=0, chunksize=3)
    (mark,) = tmp_path.glob(".out.*.partial/parts/0.done")
    mark.write_bytes(b"too long")
    with refused(DamagedDataset, path=mark, expected=1, found=8):
        preprocess(source, some, tmp_path / "out", num_workers=0, chunksize=3)


def test_where_the_disk_has_no_room_to_close_gaps_the_rows_are_kept(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: Path, size_bytes: int, what: str) -> None:
        raise DiskFull(f"{what} needs {size_bytes}")

    with (
        monkeypatch.context() as patch,
        pytest.raises(DiskFull),
    ):
        patch.setattr(execution, "check_free_space", full)
        preprocess(source, some, tmp_path / "out", num_workers=0, chunksize=3)
    assert not (tmp_path / "out").exists()
    assert len(preprocess(source, some, tmp_path / "out", num_workers=0, chunksize=3)) == 22
