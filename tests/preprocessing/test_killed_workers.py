"""preprocess() with workers that are killed: named, tried again, and the same bytes."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest
from tensordict import TensorDict

import datasets_cli
from datasets_cli import ExperienceReplay
from datasets_cli.errors import RldsError
from datasets_cli.preprocessing.function import RowFunction
from datasets_cli.store.manifest import read_manifest
from tests.support.events import Events


def dies_at(first_actions: list[bytes], marks: Path, times: int = 1) -> RowFunction:
    """A function that kills its process at the chunks that begin with some actions."""

    def doubled(batch: TensorDict) -> TensorDict:
        first = batch["action"][0].numpy().tobytes()
        if first in first_actions:
            deaths = len(list(marks.glob(f"{first_actions.index(first)}-*")))
            if deaths < times:
                (marks / f"{first_actions.index(first)}-{deaths}").touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return TensorDict({"action": batch["action"] * 2}, batch.batch_size)

    return doubled


def starts(door: str, chunksize: int) -> list[bytes]:
    """Return the first action of each chunk but the one that the function is tried on."""
    actions = ExperienceReplay(door, download=False)["action"].numpy()
    return [action.tobytes() for action in actions[chunksize::chunksize]]


def files(dataset: Any) -> dict[str, Any]:
    return dict(read_manifest(dataset.path).files)


@pytest.mark.parametrize("count", [2, pytest.param(10, marks=pytest.mark.slow)])
def test_killed_workers_are_told_and_change_no_byte(count: int, door: str, tmp_path: Path) -> None:
    fatal, events = random.sample(starts(door, 50), count), Events()
    options: dict[str, Any] = {"per": "transition", "chunksize": 50}
    found = datasets_cli.preprocess(
        door, dies_at(fatal, tmp_path), "out", num_workers=2, progress=events, **options
    )
    assert len(list(tmp_path.glob("*-0"))) == len(events.notes) == count
    assert events.notes[0].startswith("the worker of rows ")
    assert files(found) == files(
        datasets_cli.preprocess(door, dies_at([], tmp_path), "alone", **options)
    )


def test_a_chunk_that_kills_every_worker_is_named_and_the_rest_is_kept(
    door: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"per": "transition", "chunksize": 299, "num_workers": 2}
    function = dies_at(starts(door, 299)[1:2], tmp_path, times=3)
    named = (
        r"rows 598 to 896 of d4rl/door-human-v0 \(trajectory 2\): the last one was killed by "
        r"SIGKILL.*are kept in"
    )
    with pytest.raises(RldsError, match=named):
        datasets_cli.preprocess(door, function, "out", **options)
    found = datasets_cli.preprocess(door, function, "out", **options)
    assert found.num_transitions == 1495 and not found.unchanged
