"""preprocess() with text: the function gets it, what it returns is kept, in bytes that repeat."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict

from datasets_cli import open_storage
from datasets_cli.errors import WrongRows
from datasets_cli.preprocessing import execution, origin
from datasets_cli.store.check import check_digests
from tests.support.derived import preprocess
from tests.support.refusals import refused
from tests.support.text_rows import ODD_TEXTS, steps_of, write

MISSION = ("observation", "mission")
LENGTHS = (4, 1, 6, 3, 20)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origin, "rows_per_block", lambda row_bytes: 5)


@pytest.fixture
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write(tmp_path, getattr(request, "param", "ted"), steps_of(ODD_TEXTS, LENGTHS))


in_both_layouts = pytest.mark.parametrize("source", ["ted", "compact"], indirect=True)


def words(batch: TensorDict) -> TensorDict:
    """Keep everything, and add text of each row, of two words a row, and of all rows at once."""
    missions = batch["observation", "mission"]
    batch["info", "upper"] = NonTensorStack(*(mission.upper() for mission in missions))
    batch["info", "halves"] = [[mission[:3], mission[3:]] for mission in missions]
    batch["info", "same"] = NonTensorData("all", batch_size=batch.batch_size)
    return batch


def text_of(folder: Path) -> dict[Any, Any]:
    texts = open_storage(folder, text=True).dataset.texts
    assert texts is not None
    return {key: texts.column(key) for key in texts.keys}


def hashes(folder: Path) -> dict[str, str]:
    files = open_storage(folder).dataset.manifest.files
    return {name: entry["sha256"] for name, entry in files.items() if name.startswith("text")}


@in_both_layouts
def test_the_text_of_every_row_is_what_the_function_returned(source: Path, tmp_path: Path) -> None:
    right = text_of(source)
    out = tmp_path / "out"
    storage = preprocess(source, words, out, num_workers=0)
    assert storage.dataset.texts is None  # as open_storage: text is read where it is asked for
    missions = right[MISSION]
    assert text_of(out) == right | {
        ("info", "upper"): [mission.upper() for mission in missions],
        ("info", "halves"): [[mission[:3], mission[3:]] for mission in missions],
        ("info", "same"): ["all"] * len(missions),
    }
    check_digests(out, storage.dataset.manifest)
    assert not [*tmp_path.glob(".out*")]


@in_both_layouts
def test_the_identity_keeps_the_bytes_of_the_text(source: Path, tmp_path: Path) -> None:
    preprocess(source, lambda batch: batch, tmp_path / "out", num_workers=0)
    assert hashes(tmp_path / "out") == hashes(source)


def test_the_bytes_are_the_same_for_every_number_of_workers_and_rows(
    source: Path, tmp_path: Path
) -> None:
    ways = {"alone": (0, 5), "two": (2, 5), "whole": (0, 1000), "single": (0, 1)}
    for name, (num_workers, chunksize) in ways.items():
        preprocess(source, words, tmp_path / name, num_workers=num_workers, chunksize=chunksize)
    found = [open_storage(tmp_path / name).dataset.manifest.files for name in ways]
    assert all(files == found[0] for files in found)


def test_text_is_that_of_each_row_where_rows_come_alone(source: Path, tmp_path: Path) -> None:
    def upper(row: TensorDict) -> TensorDict:
        row["info", "upper"] = row["observation", "mission"].upper()
        return row

    preprocess(source, upper, tmp_path / "out", num_workers=0, chunksize=0)
    right = text_of(source)
    right["info", "upper"] = [mission.upper() for mission in right[MISSION]]
    assert text_of(tmp_path / "out") == right


@in_both_layouts
def test_a_run_that_was_cut_off_while_text_was_joined_continues(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*arguments: Any) -> None:
        raise OSError("killed")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="killed"):
        patch.setattr(execution, "commit_folder", killed)
        preprocess(source, words, tmp_path / "out", num_workers=0)
    preprocess(source, words, tmp_path / "out", num_workers=0)
    preprocess(source, words, tmp_path / "right", num_workers=0)
    assert hashes(tmp_path / "out") == hashes(tmp_path / "right")


def test_only_the_first_rows_keep_only_their_text(source: Path, tmp_path: Path) -> None:
    preprocess(source, words, tmp_path / "out", num_workers=0, num_frames=3)
    assert text_of(tmp_path / "out")[MISSION] == text_of(source)[MISSION][:3]
    assert b"lines" not in (tmp_path / "out" / "text.utf8").read_bytes()


def without_text(batch: TensorDict) -> TensorDict:
    return batch.exclude("observation", "next").set("x", torch.zeros(len(batch)))


def test_a_function_may_leave_text_out(source: Path, tmp_path: Path) -> None:
    storage = preprocess(source, without_text, tmp_path / "out", num_workers=0)
    assert storage.dataset.manifest.texts == ()
    assert not hashes(tmp_path / "out")


def other_later(batch: TensorDict) -> TensorDict:
    if int(batch["episode"][0]) > 1:
        batch["info", "late"] = ["x"] * len(batch)
    return batch


def fewer_later(batch: TensorDict) -> TensorDict:
    return batch if int(batch["episode"][0]) < 2 else batch.exclude(MISSION)


def numbers_later(batch: TensorDict) -> TensorDict:
    if int(batch["episode"][0]) > 1:
        batch[MISSION] = torch.zeros(len(batch))
    return batch


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (other_later, "info.late"),
        (fewer_later, "observation.mission"),
        (numbers_later, "observation.mission"),
    ],
)
def test_other_text_for_later_rows_is_refused(
    function: Any, named: str, source: Path, tmp_path: Path
) -> None:
    with refused(WrongRows, key=named):
        preprocess(source, function, tmp_path / "out", num_workers=0)


class Odd:
    pass


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        (lambda n: NonTensorData({"a": 1}, batch_size=[n]), "dict"),
        (lambda n: NonTensorData(b"bytes", batch_size=[n]), "bytes"),
        (lambda n: NonTensorData(3, batch_size=[n]), "int"),
        (lambda n: NonTensorData(Odd(), batch_size=[n]), "Odd"),
        (lambda n: [Odd() for _ in range(n)], "Odd"),
        (lambda n: torch.zeros(n).to_sparse(), "Tensor"),
        (lambda n: NonTensorStack(*[None] * n), "NoneType"),
        (lambda n: NonTensorStack(*["a"] * (n - 1), 3), "int"),
        (
            lambda n: NonTensorStack.from_list([["a"] * (2 + row) for row in range(n)]),
            "rows of different shapes",
        ),
    ],
)
def test_another_non_tensor_is_refused_by_name(
    entry: Any, found: str, source: Path, tmp_path: Path
) -> None:
    def function(batch: TensorDict) -> TensorDict:
        batch["info", "odd"] = entry(len(batch))
        return batch

    with refused(WrongRows, key=("info", "odd"), found=found):
        preprocess(source, function, tmp_path / "out", num_workers=0)


def test_a_lone_surrogate_is_refused(source: Path, tmp_path: Path) -> None:
    def function(batch: TensorDict) -> TensorDict:
        return batch.set(("info", "odd"), ["\ud800"] * len(batch))

    with pytest.raises(WrongRows):
        preprocess(source, function, tmp_path / "out", num_workers=0)


def test_text_alone_is_refused(source: Path, tmp_path: Path) -> None:
    with refused(WrongRows, expected="a column of numbers"):
        preprocess(source, lambda b: b.select(MISSION), tmp_path / "out", num_workers=0)
