"""Functions that raise, change their columns or return NaN: named, and no half dataset."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from datasets_cli import ExperienceReplay
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import RldsError, UsageError, WrongRows
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.check import check_digests
from tests.support.forked import Forked
from tests.support.listing import listing
from tests.support.refusals import refused


@pytest.fixture
def replay(door: str) -> ExperienceReplay:
    return ExperienceReplay(door, download=False)


def raises(batch: TensorDict) -> TensorDict:
    if int(batch["episode"][0]) == 3:
        raise ValueError("the fourth")
    return batch


def changes(batch: TensorDict) -> TensorDict:
    return batch if int(batch["episode"][0]) != 3 else batch.exclude("action")


def narrows(batch: TensorDict) -> TensorDict:
    if int(batch["episode"][0]) == 3:
        batch["action"] = batch["action"][:, :3].double()
    return batch


def ends_the_program(batch: TensorDict) -> TensorDict:
    return sys.exit(5) if int(batch["episode"][0]) == 3 else batch


def halves(batch: TensorDict) -> TensorDict:
    batch["next", "terminated"] = torch.full((len(batch), 1), 0.5)
    return batch


BAD: dict[str, tuple[Any, str]] = {
    "raises": (raises, r"rows 897 to 1195 .*\(trajectory 3\): ValueError: .* line \d+, in raises"),
    "a lambda": (lambda batch: raises(batch.clone()), r"\(trajectory 3\): ValueError: the fourth"),
    "changes": (
        changes,
        r"for rows 897 to 1195 of .* \(trajectory 3\), action is missing, but for the first rows "
        r"it was float32 \[28\]\.",
    ),
    "narrows": (narrows, r"action is float64 \[3\], but for the first .* was float32 \[28\]\."),
    "halves": (halves, r"next\.terminated for each of .*, found 0\.5 \(float32\) in row 0\."),
    "ends": (ends_the_program, r"\(trajectory 3\): SystemExit: 5 .* in ends_the_program"),
}


@pytest.mark.parametrize(("function", "message"), BAD.values(), ids=BAD.keys())
def test_a_bad_function_in_a_process_is_named_and_leaves_no_dataset(
    function: Any, message: str, replay: ExperienceReplay, tmp_path: Path
) -> None:
    for num_workers in (0, 1):
        with pytest.raises(RldsError, match=message):
            replay.preprocess(function, dest=tmp_path / "out", num_workers=num_workers, chunksize=1)
    assert not (tmp_path / "out").exists()
    check_digests(replay.data_path, replay.manifest)  # the source is as it was


def test_nan_is_a_value_and_leaves_the_other_statistics_right(
    replay: ExperienceReplay, tmp_path: Path
) -> None:
    def broken_reward(batch: TensorDict) -> TensorDict:
        if int(batch["episode"][0]) == 3:
            batch["next", "reward"][7] = torch.nan
        return batch

    storage = replay.preprocess(broken_reward, dest=tmp_path / "out", num_workers=0, chunksize=1)
    reward = storage.column(("next", "reward"))
    assert torch.isnan(reward).nonzero().tolist() == [[897 + 7, 0]]
    statistics = storage.dataset.manifest.statistics
    lengths = np.diff(replay.storage.offsets)
    assert statistics["length"]["mean"] == lengths.mean()
    nothing = dict.fromkeys(("min", "max", "mean", "std"))
    assert statistics["reward"] == statistics["return"] == nothing  # JSON has no NaN


def endless(batch: TensorDict) -> TensorDict:
    batch["next", "done"][-1] = False
    return batch


def without_ends(batch: TensorDict) -> TensorDict:
    return batch.set(("next", "done"), torch.zeros(len(batch), 1, dtype=torch.bool))


@pytest.mark.parametrize(
    "function",
    [endless, without_ends, lambda batch: batch.flip(0)],
    ids=["end", "all ends", "order"],
)
def test_an_end_of_a_trajectory_that_vanishes_is_refused(
    function: Any, replay: ExperienceReplay, tmp_path: Path
) -> None:
    with refused(WrongRows, key=("next", "done"), row=298):
        replay.preprocess(function, dest=tmp_path / "out", num_workers=0)


def test_numbers_of_both_signs_at_the_ends_of_float64_are_compared(
    replay: ExperienceReplay, tmp_path: Path
) -> None:
    def starts_low(batch: TensorDict) -> TensorDict:
        far = torch.full((len(batch),), 1.7e308, dtype=torch.float64)
        far[0] *= -1
        return TensorDict({"far": far}, batch.batch_size)

    with refused(WrongRows, argument="per", key="far", row=299, expected="-1.7e+308"):
        replay.preprocess(starts_low, dest=tmp_path / "out", num_workers=0)


def test_a_function_that_cannot_be_given_to_a_worker_is_refused(
    replay: ExperienceReplay, tmp_path: Path
) -> None:
    lock = threading.Lock()

    def locked(batch: TensorDict) -> TensorDict:
        with lock:
            return batch

    with pytest.raises(UsageError, match=r"cannot be pickled for a worker process .*lock"):
        replay.preprocess(locked, dest=tmp_path / "out", num_workers=0)


FUNCTIONS = """
def raises(batch):
    if int(batch["episode"][0]) == 3:
        raise ValueError("the fourth")
    return batch

def repeats(batch):
    return torch.cat([batch, batch])

def same(batch):
    return batch

import torch
"""


@pytest.mark.parametrize(
    ("function", "code", "words"),
    [("raises", 1, "rows 897 to 1195"), ("repeats", 2, "with one row for each of rows 0 to 298")],
)
def test_a_bad_function_of_the_command_has_its_exit_code_and_leaves_what_was_there(
    function: str, code: int, words: str, door: str, config: Config, tmp_path: Path
) -> None:
    (tmp_path / "bad_functions.py").write_text(FUNCTIONS)
    before = listing(config.root / "datasets")
    call = ["preprocess", door, "--name", "out", "--workers", "0", "--chunksize", "1", "-q", "--fn"]

    def run(name: str) -> tuple[int, str]:
        return Forked(lambda: main([*call, f"bad_functions:{name}"]), tmp_path).finish()

    found, error = run(function)
    assert found == code and words in error and "Traceback" not in error
    assert list(CacheRoot(config.root).installed()) == [door]
    assert [path for path in listing(config.root / "datasets") if "derived" not in path] == before
    assert run("same")[0] == 0 and main(["verify"]) == 0
