"""preprocess() of functions that drop rows, right and wrong, against a loop over the rows."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict

import datasets_cli
from datasets_cli import ExperienceReplay
from datasets_cli.cli.main import main
from datasets_cli.errors import DamagedDataset, DiskFull, WrongRows
from datasets_cli.preprocessing import execution
from datasets_cli.store.check import check_digests
from datasets_cli.store.dataset import open_dataset
from datasets_cli.store.manifest import read_manifest
from tests.replay.views.conftest import install
from tests.support.derived import preprocess
from tests.support.refusals import refused
from tests.support.text_rows import steps_of, write


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


WORDS = ["go left", "", "stop", "новая цель"]


def keep(mask: list[bool]) -> Callable[[TensorDict], TensorDict]:
    kept = torch.tensor(mask)
    return lambda batch: batch[kept[batch["action"]]]


def pieces_of(lengths: tuple[int, ...], mask: list[bool]) -> list[list[int]]:
    """Return the rows of each trajectory that is left: consecutive rows of one trajectory."""
    pieces: list[list[int]] = []
    first = 0
    for length in lengths:
        is_open = False
        for row in range(first, first + length):
            if mask[row] and not is_open:
                pieces.append([])
            if mask[row]:
                pieces[-1].append(row)
            is_open = mask[row]
        first += length
    return pieces


def leaf(folder: Path, name: str, dtype: str) -> list[Any]:
    found: list[Any] = np.fromfile(folder / f"{name}.memmap", dtype).tolist()
    return found


def text_of(folder: Path, *key: str) -> list[Any]:
    texts = open_dataset(folder, text=True).texts
    assert texts is not None
    return texts.column(key)


def assert_rows(folder: Path, lengths: tuple[int, ...], mask: list[bool]) -> None:
    """Check every row of a result, whose source has terminated trajectories."""
    pieces = pieces_of(lengths, mask)
    rows = [row for piece in pieces for row in piece]
    last = {piece[-1] for piece in pieces}
    terminated = set((np.cumsum(lengths) - 1).tolist())
    assert leaf(folder, "action", "<i8") == rows
    assert leaf(folder, "next/reward", "<f8") == [row / 2 for row in rows]
    assert leaf(folder, "next/done", "bool") == [row in last for row in rows]
    assert leaf(folder, "next/terminated", "bool") == [row in terminated for row in rows]
    truncated = [row in last - terminated for row in rows]
    assert leaf(folder, "next/truncated", "bool") == truncated
    offsets = np.load(folder / "trajectories.npy").tolist()
    assert offsets == [0, *np.cumsum([len(piece) for piece in pieces]).tolist()]
    check_digests(folder, read_manifest(folder))


@st.composite
def masks(draw: st.DrawFn) -> tuple[tuple[int, ...], list[bool]]:
    lengths = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=6)))
    size = sum(lengths)
    mask = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    return lengths, mask if any(mask) else [*mask[:-1], True]


@settings(max_examples=8)
@given(masks(), st.integers(1, 12), st.sampled_from(["trajectory", "transition"]))
def test_the_rows_that_are_left_are_those_of_the_mask_for_every_size_of_chunks(
    drawn: tuple[tuple[int, ...], list[bool]], chunksize: int, per: Any
) -> None:
    lengths, mask = drawn
    with tempfile.TemporaryDirectory() as folder:
        source = write(Path(folder), "compact", steps_of(WORDS, lengths))
        files = []
        for name, size in (("out", chunksize), ("whole", 1000)):
            dest = Path(folder) / name
            options = {"chunksize": size, "per": per, "layout": "ted"}
            preprocess(source, keep(mask), dest, num_workers=0, **options)
            assert_rows(dest, lengths, mask)
            files.append(read_manifest(dest).files)
        assert files[0] == files[1]


LENGTHS = (4, 1, 6, 3, 20)
ODD = [row % 3 != 1 and not 4 <= row < 6 for row in range(sum(LENGTHS))]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path, "compact", steps_of(WORDS, LENGTHS))


@pytest.mark.parametrize(
    ("workers", "chunksize"),
    [
        (2, 4),
        pytest.param(1, 3, marks=pytest.mark.slow),
        pytest.param(5, 5, marks=pytest.mark.slow),
    ],
)
def test_the_bytes_are_the_same_for_every_number_of_workers(
    workers: int, chunksize: int, source: Path, tmp_path: Path
) -> None:
    options = {"num_workers": workers, "chunksize": chunksize}
    preprocess(source, keep(ODD), tmp_path / "here", num_workers=0, layout="ted")
    preprocess(source, keep(ODD), tmp_path / "out", **options, layout="ted")
    assert_rows(tmp_path / "out", LENGTHS, ODD)
    assert read_manifest(tmp_path / "out").files == read_manifest(tmp_path / "here").files


def test_text_is_that_of_the_rows_that_are_left(source: Path, tmp_path: Path) -> None:
    kept = [row % 4 == 2 for row in range(sum(LENGTHS))]
    preprocess(source, keep(kept), tmp_path / "out", num_workers=0, chunksize=4)
    assert text_of(tmp_path / "out", "observation", "mission") == ["stop"] * sum(kept)
    values = (tmp_path / "out" / "text.utf8").read_bytes()
    assert WORDS[3].encode() in values and b"go left" not in values, "it is in no row that is left"


def test_text_of_several_values_a_row_is_known_from_the_first_row_that_is_left(
    source: Path, tmp_path: Path
) -> None:
    def late(batch: TensorDict) -> TensorDict:
        batch["info", "pair"] = [["a", "b"]] * len(batch)
        return batch[batch["action"] > 12]

    preprocess(source, late, tmp_path / "out", num_workers=0, chunksize=1)
    assert text_of(tmp_path / "out", "info", "pair") == [["a", "b"]] * 21


def test_whole_trajectories_may_go_and_other_columns_come(source: Path, tmp_path: Path) -> None:
    """The keys, shapes and element types of the result are the function's."""

    def long(batch: TensorDict) -> TensorDict:
        sizes = batch["episode"].bincount()[batch["episode"]]
        rows = batch[sizes > 3]
        new = {"x": rows["observation", "x"].float()[:, :1], "_row": rows["_row"]}
        return TensorDict(new, rows.batch_size)

    preprocess(source, long, tmp_path / "out", num_workers=0, chunksize=3, layout="ted")
    kept = [row for row in range(sum(LENGTHS)) if not (row == 4 or 11 <= row < 14)]
    assert leaf(tmp_path / "out", "x", "<f4") == [2.0 * row for row in kept]
    assert np.load(tmp_path / "out" / "trajectories.npy").tolist() == [0, 4, 10, 30]
    assert not (tmp_path / "out" / "_row.memmap").exists()


@pytest.mark.parametrize(("num_workers", "flags_at_once"), [(2, 1 << 20), (0, 4)])
def test_rows_of_a_view_and_of_the_first_frames_are_dropped_alike(
    num_workers: int, flags_at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "CHUNK_ROWS", flags_at_once)
    root = tmp_path / "root"
    id = install(root, "compact", LENGTHS)
    view = ExperienceReplay(id, 6, root=root, download=False).episodes_at([2, 0, 2, 4])
    mask = [row not in (1, 6, 7) for row in range(sum(LENGTHS))]
    dest = tmp_path / "out"
    options = {"chunksize": 5, "num_frames": 20, "layout": "ted"}
    view.preprocess(keep(mask), dest=dest, num_workers=num_workers, **options)
    left = [5, 8, 9, 10, 0, 2, 3, 5, 8, 9, 10, 14, 15, 16, 17]
    assert leaf(dest, "action", "<i8") == left
    assert np.load(dest / "trajectories.npy").tolist() == [0, 1, 4, 5, 7, 8, 11, 15]
    ends = {0: True, 3: False, 4: True, 6: False, 7: True, 10: False, 14: True}
    truncated = leaf(dest, "next/truncated", "bool")
    assert truncated == [ends.get(row, False) for row in range(15)]


def test_the_result_passes_verify_and_says_what_is_gone(
    door: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def some(batch: TensorDict) -> TensorDict:
        episode, step = batch["episode"], torch.arange(len(batch)) % 299
        return batch[(episode != 1) & ((episode != 3) | (step != 7))]

    datasets_cli.preprocess(door, some, "fewer")
    note = "dropped 300 of 1,495 rows: 1 of 5 trajectories whole, 1 in part"
    assert f"derived/fewer: the function {note}." in capsys.readouterr().err
    assert datasets_cli.preprocess(door, some, "fewer").unchanged
    (verified,) = datasets_cli.verify("derived/fewer", deep=True)
    assert verified.ok and verified.report is not None
    parent = read_manifest(datasets_cli.dataset_path("derived/fewer").path).parent
    assert parent is not None and note == f"dropped {parent['dropped']}"
    assert main(["info", "derived/fewer"]) == 0
    assert parent["dropped"] in " ".join(capsys.readouterr().out.split())


@pytest.fixture
def without_text(tmp_path: Path) -> Path:
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
def test_rows_that_are_not_told_are_refused(name: str, without_text: Path, tmp_path: Path) -> None:
    function, attributes = WRONG[name]
    with refused(WrongRows, **attributes):
        preprocess(without_text, function, tmp_path / "out", num_workers=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def test_a_function_that_drops_nothing_meets_no_numbers(without_text: Path, tmp_path: Path) -> None:
    def joined(batch: TensorDict) -> TensorDict:
        """Take all there is, as functions do that know nothing of numbers."""
        leaves = batch.values(include_nested=True, leaves_only=True)
        return batch.set(
            "all", torch.cat([leaf.double().view(len(batch), -1) for leaf in leaves], 1)
        )

    storage = preprocess(without_text, joined, tmp_path / "out", num_workers=0, chunksize=3)
    assert storage.column(("all",)).shape == (34, 13)
    assert (("_row",) in storage.dataset.keys) is False


def test_a_function_may_look_for_the_numbers(without_text: Path, tmp_path: Path) -> None:
    def odd(batch: TensorDict) -> TensorDict:
        return batch.select("action", "_row")[batch["_row"] % 2 == 1]

    storage = preprocess(without_text, odd, tmp_path / "out", num_workers=0, chunksize=3)
    assert storage.column(("action",)).tolist() == [*range(1, 34, 2)]
    assert storage.dataset.keys == (("action",),)


def test_a_column_of_the_same_name_is_refused_where_rows_are_dropped(
    without_text: Path, tmp_path: Path
) -> None:
    def named(batch: TensorDict) -> TensorDict:
        return batch.set("_row", batch["action"] * 2)

    own = tmp_path / "own"
    preprocess(without_text, named, own, num_workers=0)
    kept = preprocess(own, lambda batch: batch, tmp_path / "kept", num_workers=0)
    assert kept.column(("_row",)).tolist() == [*range(0, 68, 2)]
    with refused(WrongRows, key=("_row",)):
        preprocess(own, some, tmp_path / "out", num_workers=0)


def test_other_columns_later_are_told_with_rows_and_trajectories(
    without_text: Path, tmp_path: Path
) -> None:
    def late(batch: TensorDict) -> TensorDict:
        return (
            some(batch).set("action", some(batch)["action"].to(torch.int32))
            if (int(batch["episode"][0]) == 2)
            else some(batch)
        )

    with refused(WrongRows, key="action", expected="int64 []", found="int32 []"):
        preprocess(without_text, late, tmp_path / "out", num_workers=0, chunksize=1)


STEPS = [
    *((execution, name) for name in ("copy_bytes", "flush", "replace_file")),
    *((execution, name) for name in ("_put", "complete_leaves")),
]


@pytest.mark.parametrize(("module", "name"), STEPS, ids=[name for _, name in STEPS])
def test_a_run_that_ends_while_gaps_are_closed_continues_to_the_same_bytes(
    module: Any, name: str, without_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
            preprocess(without_text, some, tmp_path / "out", num_workers=0, chunksize=3)
    assert tries >= 3
    monkeypatch.undo()
    preprocess(without_text, some, tmp_path / "right", num_workers=0)
    assert read_manifest(tmp_path / "out").files == read_manifest(tmp_path / "right").files
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "out", "right"]


def test_a_mark_of_another_length_is_refused(without_text: Path, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(OSError, match="killed"):
        patch.setattr(execution, "close_gaps", Mock(side_effect=OSError("killed")))
        preprocess(without_text, some, tmp_path / "out", num_workers=0, chunksize=3)
    (mark,) = tmp_path.glob(".out.*.partial/parts/0.done")
    mark.write_bytes(b"too long")
    with refused(DamagedDataset, path=mark, expected=1, found=8):
        preprocess(without_text, some, tmp_path / "out", num_workers=0, chunksize=3)


def test_where_the_disk_has_no_room_to_close_gaps_the_rows_are_kept(
    without_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: Path, size_bytes: int, what: str) -> None:
        raise DiskFull(f"{what} needs {size_bytes}")

    with (
        monkeypatch.context() as patch,
        pytest.raises(DiskFull),
    ):
        patch.setattr(execution, "check_free_space", full)
        preprocess(without_text, some, tmp_path / "out", num_workers=0, chunksize=3)
    assert not (tmp_path / "out").exists()
    assert len(preprocess(without_text, some, tmp_path / "out", num_workers=0, chunksize=3)) == 22
