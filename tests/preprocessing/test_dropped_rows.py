"""preprocess() of functions that drop rows, against a reference that goes row by row."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict

import datasets_cli
from datasets_cli import ExperienceReplay
from datasets_cli.cli.main import main
from datasets_cli.preprocessing import execution
from datasets_cli.store.check import check_digests
from datasets_cli.store.dataset import open_dataset
from datasets_cli.store.manifest import read_manifest
from tests.replay.views.conftest import install
from tests.support.derived import preprocess
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
