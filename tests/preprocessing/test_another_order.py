"""Functions that return rows in another order, lose ends or make NaN: refused, or told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from datasets_cli import ExperienceReplay
from datasets_cli.errors import WrongRows
from datasets_cli.preprocessing.row_checks import SAMPLED, InputRows
from datasets_cli.project import Pipeline
from tests.support.derived import preprocess
from tests.support.refusals import refused


@pytest.fixture
def replay(door: str) -> ExperienceReplay:
    return ExperienceReplay(door, download=False)


Function = Callable[[TensorDict], TensorDict]

MOVED: dict[str, Function] = {
    "flip": lambda batch: batch.flip(0),
    "shuffle": lambda batch: batch[torch.randperm(len(batch))],
    "roll": lambda batch: batch[torch.arange(len(batch)).roll(1)],
    "sort": lambda batch: batch[batch["action"][:, 0].argsort()].select("action"),
    "flip and scale": lambda batch: batch.flip(0).update({"observation": batch["observation"] * 2}),
    "flip without flags": lambda batch: batch.flip(0).exclude("next"),
}


@pytest.mark.parametrize("function", MOVED.values(), ids=MOVED.keys())
def test_rows_in_another_order_are_refused(
    function: Function, replay: ExperienceReplay, tmp_path: Path
) -> None:
    with pytest.raises(WrongRows):
        replay.preprocess(function, dest=tmp_path / "out", num_workers=0)
    assert not (tmp_path / "out").exists()
    options = {"num_workers": 0, "order": "any", "per": "trajectory"}
    taken = replay.preprocess(function, dest=tmp_path / "any", **options)
    assert len(taken) == len(replay)


def test_what_is_returned_in_place_of_which_row_is_named(
    replay: ExperienceReplay, tmp_path: Path
) -> None:
    with refused(WrongRows, argument="order", row=0, found=298):
        replay.preprocess(MOVED["flip without flags"], dest=tmp_path / "out", chunksize=1)


def test_of_many_rows_the_first_and_the_last_are_looked_at_and_of_one_row_that_one() -> None:
    places = [InputRows({("x",): np.zeros((count, 1))}).places.tolist() for count in (1, 2, 1000)]
    assert places[:2] == [[0], [0, 1]]
    assert (places[2][0], places[2][-1], len({*places[2]})) == (0, 999, SAMPLED)


def to_go(batch: TensorDict) -> TensorDict:
    batch["next", "reward"] = batch["next", "reward"].flip(0).cumsum(0).flip(0)
    return batch


def stacked(batch: TensorDict) -> TensorDict:
    before = batch["observation"].roll(1, 0)
    batch["observation"] = torch.stack([before, batch["observation"]], 1)
    return batch


def shifted(batch: TensorDict) -> TensorDict:
    batch["action"] = batch["action"].roll(1, 0)
    return batch


IN_ORDER: dict[str, Function | Pipeline] = {
    "returns to go": to_go,
    "stacks": stacked,
    "shifts": shifted,
    "all is scaled": lambda batch: batch.apply(lambda x: x * 3 if x.is_floating_point() else x),
    "only rewards": lambda batch: batch.select(("next", "reward")),
    "normalised": Pipeline(normalise=["observation", "action", "next.reward"]),
}


IN_ORDER_PER = [(each, ("trajectory", "transition")[n % 2]) for n, each in enumerate(IN_ORDER)]


@pytest.mark.parametrize(("name", "per"), IN_ORDER_PER)
def test_rows_in_their_order_pass_whatever_became_of_their_values(
    name: str, per: str, replay: ExperienceReplay, tmp_path: Path
) -> None:
    options = {"per": per, "chunksize": 100, "num_workers": 0}
    storage = replay.preprocess(IN_ORDER[name], dest=tmp_path / "out", **options)  # type: ignore[arg-type]
    assert len(storage) == len(replay)


def test_an_end_that_vanishes_is_refused(replay: ExperienceReplay, tmp_path: Path) -> None:
    def endless(batch: TensorDict) -> TensorDict:
        batch["next", "done"][-1] = False
        return batch

    with refused(WrongRows, key=("next", "done"), row=298):
        replay.preprocess(endless, dest=tmp_path / "out", num_workers=0)


def test_numbers_that_become_nan_or_infinite_are_counted_and_said(
    replay: ExperienceReplay, tmp_path: Path
) -> None:
    def spoilt(batch: TensorDict) -> TensorDict:
        batch["next", "reward"][:2] = torch.nan
        batch["action"][0, :3] = -torch.inf
        return batch

    storage = replay.preprocess(spoilt, dest=tmp_path / "one", num_workers=2, chunksize=1)
    count = len(replay.storage.offsets) - 1
    notes = storage.dataset.manifest.metadata["notes"]
    assert notes == [
        f"action has {3 * count} infinite numbers that the parent does not have",
        f"next.reward has {2 * count} NaN that the parent does not have",
    ]


def test_a_nan_in_a_row_that_was_dropped_is_not_one_that_was_there_before(
    replay: ExperienceReplay, tmp_path: Path
) -> None:
    def first_is_nan(batch: TensorDict) -> TensorDict:
        batch["action"][0] = torch.nan
        return batch.select("action")

    def second_is_nan(batch: TensorDict) -> TensorDict:
        batch["action"][1] = torch.nan
        return batch[1:]

    options: dict[str, Any] = {"num_workers": 0, "num_frames": 50}
    parent = replay.preprocess(first_is_nan, dest=tmp_path / "one", **options).dataset
    child = preprocess(parent.folder, second_is_nan, tmp_path / "two", num_workers=0).dataset
    notes = ["action has 28 NaN that the parent does not have"]
    assert parent.manifest.metadata["notes"] == child.manifest.metadata["notes"] == notes
