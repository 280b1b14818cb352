"""preprocess() repeated: nothing to do, or what differs is named; and what it cuts."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from datasets_cli import ExperienceReplay
from datasets_cli.errors import RldsError, UsageError, WrongSize
from datasets_cli.preprocessing import chunk, origin
from tests.support.derived import preprocess
from tests.support.refusals import refused
from tests.support.text_rows import steps_of, write


@pytest.fixture
def replay(door: str) -> ExperienceReplay:
    return ExperienceReplay(door, batch_size=32)


def same(batch: TensorDict) -> TensorDict:
    return batch


def test_the_same_again_calls_nothing_and_returns_the_storage(
    replay: ExperienceReplay, tmp_path: Path
) -> None:
    log = tmp_path / "log"

    def logged(batch: TensorDict) -> TensorDict:
        with log.open("a") as file:
            file.write("x")
        return batch

    first = replay.preprocess(logged, dest=tmp_path / "out", num_workers=0)
    before, manifest = log.read_text(), (tmp_path / "out" / "manifest.json").read_bytes()
    again = replay.preprocess(logged, dest=tmp_path / "out", num_workers=2)
    assert before and log.read_text() == before
    assert (tmp_path / "out" / "manifest.json").read_bytes() == manifest
    assert again.dataset.manifest == first.dataset.manifest
    assert [path.name for path in tmp_path.iterdir() if path.name[0] == "."] == []


def test_what_a_killed_run_left_is_no_error_where_it_cannot_be_deleted(
    replay: ExperienceReplay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = replay.preprocess(same, dest=tmp_path / "out", num_workers=0)
    left = tmp_path / f".out.{'0' * 16}.partial"
    left.mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(os, "rmdir", lambda *_, **__: Path("/nowhere").stat())
        again = replay.preprocess(same, dest=tmp_path / "out", num_workers=0)
    assert again.dataset.manifest == made.dataset.manifest and left.exists()
    replay.preprocess(same, dest=tmp_path / "out", num_workers=0)
    assert not left.exists()


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"fn": lambda batch: batch}, r"the function .*same, now .*<lambda>"),
        ({"num_frames": 300}, "the argument num_frames=1495, now 300"),
        ({"chunksize": 300}, "the argument chunksize=1495, now 300"),
        ({"per": "transition"}, "the argument per=chunk, now transition"),
        ({"seed": 7}, "the seed 0, now 7"),
    ],
)
def test_what_differs_from_what_is_there_is_named(
    replay: ExperienceReplay, tmp_path: Path, changed: dict[str, Any], named: str
) -> None:
    replay.preprocess(same, dest=tmp_path / "out", num_workers=0)
    with pytest.raises(UsageError) as caught:
        replay.preprocess(**{"fn": same, "num_workers": 0, **changed}, dest=tmp_path / "out")
    assert re.match(named, caught.value.found[0])
    assert str(caught.value.advice).endswith(f"delete it first: rm -r {tmp_path / 'out'}")


def test_only_what_was_given_or_differs_is_named(replay: ExperienceReplay, tmp_path: Path) -> None:
    replay.preprocess(same, dest=tmp_path / "out", num_workers=0)
    with pytest.raises(UsageError) as caught:
        replay.take(2).preprocess(same, dest=tmp_path / "out", num_workers=0)
    changes = caught.value.found
    assert [each for each in changes if each.startswith("the rows all, now take")]
    assert not [each for each in changes if "chunksize" in each]


def test_another_parent_is_named(tmp_path: Path) -> None:
    one = write(tmp_path / "one", "ted", steps_of("ab", (4, 2)))
    other = write(tmp_path / "other", "ted", steps_of("ba", (3, 4)))
    preprocess(one, same, tmp_path / "out", num_workers=0)
    with pytest.raises(UsageError) as caught:
        preprocess(other, same, tmp_path / "out", num_workers=0)
    assert re.match("the data of .*, now other data of", caught.value.found[0])


def test_a_dataset_that_was_not_derived_is_refused(
    replay: ExperienceReplay, tmp_path: Path
) -> None:
    with refused(UsageError, path=replay.data_path):
        preprocess(replay.data_path, same, replay.data_path, num_workers=0)


def return_to_go(batch: TensorDict) -> TensorDict:
    """The usual function of whole trajectories, as people write it."""
    rewards, done = batch["next", "reward"].double(), batch["next", "done"]
    togo = torch.zeros_like(rewards)
    for row in range(len(batch) - 1, -1, -1):
        later = 0 if done[row] or row + 1 == len(batch) else togo[row + 1]
        togo[row] = rewards[row] + later
    return TensorDict({"togo": togo}, batch.batch_size)


@pytest.mark.parametrize("lengths", [(4, 1, 6, 3, 20), (1,) * 9, (40,), (7, 2, 2, 30)])
def test_the_return_to_go_is_right_where_chunks_are_small(
    tmp_path: Path, lengths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(origin, "rows_per_block", lambda row_bytes: 5)
    source = write(tmp_path, "ted", steps_of("abc", lengths))
    storage = preprocess(source, return_to_go, tmp_path / "out", num_workers=0)
    rewards = preprocess(
        source, lambda b: b.select(("next", "reward")), tmp_path / "all", num_workers=0
    ).column(("next", "reward"))
    first = 0
    for length in lengths:
        for row in range(first, first + length):
            expected = rewards[row : first + length].double().sum()
            assert torch.isclose(storage.column(("togo",))[row].sum(), expected)
        first += length


def test_a_trajectory_that_is_too_long_is_refused_before_anything_is_written(
    replay: ExperienceReplay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunk, "MAX_TRAJECTORY_BYTES", 100_000)
    with refused(WrongSize, argument="per", expected=100_000):
        replay.preprocess(same, dest=tmp_path / "out", num_workers=0)
    assert [*tmp_path.glob(".out*")] == []
    replay.preprocess(same, dest=tmp_path / "out", num_workers=0, per="transition")


def test_a_run_that_fails_before_anything_is_done_leaves_no_folder(
    replay: ExperienceReplay, tmp_path: Path
) -> None:
    tried = tmp_path / "tried"

    def fails_after_the_trial(batch: TensorDict) -> TensorDict:
        if tried.exists():
            raise ValueError("now")
        tried.touch()
        return batch

    with pytest.raises(RldsError, match="now"):
        replay.preprocess(fails_after_the_trial, dest=tmp_path / "out", num_workers=0)
    assert tried.exists() and [*tmp_path.glob(".out.*.partial")] == []
