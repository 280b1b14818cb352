"""What is not there: an error of this package, which is also the builtin one would expect."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch

from datasets_cli import BatchStream, ExperienceReplay, open_dataset
from datasets_cli.errors import MissingFile, OutOfRange, RldsError, UnknownKey, UsageError
from tests.support.refusals import check_refused, refused


def test_rows_and_trajectories_beyond_the_end_are_an_index_error(door: str) -> None:
    replay, rows = ExperienceReplay(door, 8), open_dataset(door)
    calls: list[Any] = [
        partial(replay.__getitem__, len(replay)),
        partial(replay.__getitem__, torch.ones(3, dtype=torch.bool)),
        partial(replay.episodes_at, [5]),
        partial(replay.episode, 5),
        partial(replay.rows, 10, 5),
        partial(replay.rows, 0, 10**6),
        partial(replay.storage.run, -1, 3),
        partial(rows.run, 5, 3),
        partial(rows.run, 0, 10**6),
        partial(rows.get, torch.tensor([len(rows)])),
    ]
    for error in check_refused(OutOfRange, [("", call) for call in calls]):
        assert isinstance(error, RldsError) and isinstance(error, IndexError)
        assert "bound" not in str(error) and "torch" not in str(error)


def test_columns_that_are_not_there_are_a_key_error(door: str) -> None:
    replay = ExperienceReplay(door, 8)
    calls: list[Any] = [
        partial(replay.__getitem__, "nosuch"),
        partial(replay.trajectories.__getitem__, "retrun"),
        partial(replay.trajectories.reduce, "nosuch", "max"),
        partial(replay.take, 1, "nosuch"),
        partial(replay.specs.__getitem__, "nosuch"),
    ]
    for error in check_refused(UnknownKey, [("nosuch|retrun", call) for call in calls]):
        assert isinstance(error, RldsError) and isinstance(error, KeyError)


def test_files_that_are_not_there_are_a_file_not_found_error(door: str, tmp_path: Path) -> None:
    replay = ExperienceReplay(door, 8)
    calls: list[Any] = [
        partial(replay.loads, tmp_path / "nodump"),
    ]
    for error in check_refused(MissingFile, [("nodump", call) for call in calls]):
        assert isinstance(error, RldsError) and isinstance(error, FileNotFoundError)


def test_fewer_workers_than_none_are_refused_by_name(door: str) -> None:
    with refused(UsageError, argument="num_workers", found=-1):
        BatchStream(ExperienceReplay(door, 8)).loader(num_workers=-1)
