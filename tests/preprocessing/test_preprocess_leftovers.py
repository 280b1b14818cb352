"""What a failed run leaves, and what a function may not return."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tensordict import TensorDict

from datasets_cli.errors import RldsError, WrongRows
from datasets_cli.preprocessing import origin
from tests.support.derived import preprocess
from tests.support.refusals import refused
from tests.support.text_rows import steps_of, write


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(origin, "rows_per_block", lambda row_bytes: 2)
    return write(tmp_path, "ted", steps_of("abc", (2, 2, 2)))


def fails_late(batch: TensorDict) -> TensorDict:
    if int(batch["episode"][-1]) == 2:
        raise ValueError("on purpose")
    return batch.select("episode")


def test_a_failed_run_into_a_temporary_folder_leaves_nothing_beside_it(
    source: Path, tmp_path: Path
) -> None:
    """No later call has that name, and so none could continue or sweep what is left."""
    before = sorted(tmp_path.iterdir())
    with (
        tempfile.TemporaryDirectory(dir=tmp_path) as dest,
        pytest.raises(RldsError, match="on purpose"),
    ):
        preprocess(source, fails_late, Path(dest), num_workers=0)
    assert sorted(tmp_path.iterdir()) == before


def test_a_failed_run_to_a_new_folder_leaves_what_the_same_call_continues(
    source: Path, tmp_path: Path
) -> None:
    before = {*tmp_path.iterdir()}
    with pytest.raises(RldsError, match="on purpose"):
        preprocess(source, fails_late, tmp_path / "out", num_workers=0)
    (left,) = {*tmp_path.iterdir()} - before
    assert left.name.endswith(".partial"), "and no lock"


class Odd:
    pass


@pytest.mark.parametrize(
    ("put", "found"),
    [
        (lambda batch: batch.set_non_tensor("odd", Odd()), "Odd"),
        (lambda batch: batch.set("odd", [Odd() for _ in batch]), "Odd"),
        (lambda batch: batch.set_non_tensor("odd", 3), "int"),
        (lambda batch: batch.set("odd", torch.zeros(len(batch)).to_sparse()), "Tensor"),
    ],
)
def test_what_cannot_be_stored_is_named_with_its_type_and_what_can_be(
    source: Path, tmp_path: Path, put: Callable[[TensorDict], object], found: str
) -> None:
    def function(batch: TensorDict) -> TensorDict:
        put(batch)
        return batch

    with refused(WrongRows, key=("odd",), found=found):
        preprocess(source, function, tmp_path / "out", num_workers=0)
