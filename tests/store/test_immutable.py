"""Nothing a user does to what a dataset handed out reaches the disk, also when run as root."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from datasets_cli import ExperienceReplay, Mixture
from datasets_cli.core import system_errors
from datasets_cli.errors import DamagedDataset, WrongSize
from tests.support.refusals import refused


def digests(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def double(batch: TensorDict) -> TensorDict:
    for key in batch.keys(include_nested=True, leaves_only=True):
        if batch[key].is_floating_point():
            batch[key].mul_(2)
    return batch


WRITES: dict[str, Callable[[ExperienceReplay], Any]] = {
    "fill a sampled leaf": lambda replay: replay.sample(8)["observation"].fill_(0),
    "zero a slice's leaf": lambda replay: replay[:3]["action"].zero_(),
    "set_ a slice": lambda replay: replay[0:5].set_("action", torch.zeros(5, 28)),
    "update_ rows": lambda replay: replay[[1, 2]].update_(replay[[3, 4]]),
    "zero one row": lambda replay: replay[0].zero_(),
    "zero a column": lambda replay: replay["next", "reward"].zero_(),
    "zero a nested column": lambda replay: replay["next"].zero_(),
    "zero the Q-learning arrays": lambda replay: replay.qlearning_dataset()["rewards"].fill(0),
    "transform in place": lambda replay: replay.append_transform(double)[0:100],
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_writing_into_what_was_handed_out_changes_no_file(
    door: str, write: Callable[[ExperienceReplay], Any]
) -> None:
    replay = ExperienceReplay(door)
    before, first = digests(replay.data_path), ExperienceReplay(door)[:10]
    write(replay)
    assert digests(replay.data_path) == before
    assert bool((ExperienceReplay(door)[:10] == first).all())


def test_writing_into_offsets_or_a_manifest_changes_no_draw_and_no_fact(door: str) -> None:
    expected = ExperienceReplay(door, slice_len=8, seed=0)
    replay = ExperienceReplay(door, slice_len=8, seed=0)
    stacked = ExperienceReplay(door, frame_stack=2)
    views = replay.take(3), stacked.take(3)
    for storage in (rows.storage for rows in (replay, stacked, *views)):
        for offsets in (storage.offsets, storage.dataset.offsets):
            offsets[1] = 100
        assert 100 not in storage.offsets
        storage.dataset.manifest.metadata["ref_min_score"] = 5
    replay.metadata["ref_min_score"] = replay.manifest.files["manifest.json"] = 5
    assert replay.manifest == expected.manifest and replay.metadata == expected.metadata
    for _ in range(20):
        assert torch.equal(replay.sample(800)["index"], expected.sample(800)["index"])


def test_writing_into_the_bounds_of_a_mixture_changes_no_draw(door: str) -> None:
    replay = ExperienceReplay(door)
    mixture, expected = (Mixture([replay, replay], 99, seed=0) for _ in range(2))
    mixture.storage.bounds[1] = 3
    mixture.storage.lengths[1] = 3
    assert torch.equal(mixture.sample()["member"], expected.sample()["member"])


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_function_that_works_in_place_changes_no_file(
    door: str, tmp_path: Path, num_workers: int
) -> None:
    replay = ExperienceReplay(door)
    before = digests(replay.data_path)
    doubled = replay.preprocess(double, dest=tmp_path / "doubled", num_workers=num_workers)
    assert digests(replay.data_path) == before
    every = torch.arange(len(replay))
    assert torch.equal(doubled.get(every)["action"], 2 * replay["action"])


def test_a_copy_that_would_not_fit_into_memory_is_refused(
    door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay = ExperienceReplay(door)
    monkeypatch.setattr(system_errors, "free_memory", lambda: 1_000_000)
    monkeypatch.setattr(system_errors, "SMALL_BYTES", 0)
    with refused(WrongSize, expected="500,000 bytes at most"):
        replay[:]
    assert len(replay[:100]) == 100


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "missing leaf": lambda folder: (folder / "action.memmap").unlink(),
    "short leaf": lambda folder: (folder / "action.memmap").open("r+b").truncate(100),
    "long leaf": lambda folder: (folder / "action.memmap").open("ab").write(b"x"),
    "linked leaf": lambda folder: (
        (folder / "action.memmap").rename(folder / "x")
        and (folder / "action.memmap").symlink_to(folder / "x")
    ),
    "linked folder": lambda folder: (
        (folder / "next").rename(folder / "y") and (folder / "next").symlink_to(folder / "y")
    ),
    "garbled manifest": lambda folder: (folder / "manifest.json").write_text("{"),
    "short table": lambda folder: (folder / "trajectories.npy").write_bytes(b"x" * 176),
}


def test_a_file_that_the_manifest_does_not_name_is_never_opened(door: str) -> None:
    folder = ExperienceReplay(door).data_path
    before = ExperienceReplay(door)[:10]
    for name in ("other.pickle", "next/extra.memmap", "next/pickle.pkl"):
        os.mkfifo(folder / name)  # whoever opens one waits for ever
    assert bool((ExperienceReplay(door, download=False)[:10] == before).all())
    assert len(ExperienceReplay(door, num_slices=2).sample(4)) == 4


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_damaged_dataset_is_refused_and_left_as_it_is(
    door: str, damage: Callable[[Path], Any]
) -> None:
    folder = ExperienceReplay(door).data_path
    damage(folder)
    before = digests(folder)
    with pytest.raises(DamagedDataset, match=r"rlds repair|trajectory table|manifest"):
        ExperienceReplay(door, num_slices=2).sample(4)
    assert digests(folder) == before
