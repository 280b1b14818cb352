"""Nested keys where columns are chosen: as a tuple, or as text with dots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from datasets_cli import ExperienceReplay, dataset_stats, peek
from datasets_cli.schema.columns import key_in

WRITTEN = [("next", "reward"), "next.reward"]


@pytest.mark.parametrize("key", WRITTEN)
def test_a_nested_column_is_chosen_by_a_tuple_or_by_dots(
    key: Any, door: str, door_source: str
) -> None:
    with h5py.File(next(Path(door_source).glob("*.hdf5"))) as file:
        rewards = file["rewards"][:][~file["timeouts"][:].astype(bool)].astype(np.float32)
    replay = ExperienceReplay(door, 4, columns=[key])
    assert {*replay.sample().keys(True, True)} == {("next", "reward"), "index"}
    replay = ExperienceReplay(door, 4)
    assert np.array_equal(replay.to_numpy([key])["next.reward"][:, 0], rewards)
    assert np.array_equal(replay.to_pandas([key])["next.reward"], rewards)
    assert replay.to_arrow([key]).schema.names == ["next.reward"]
    assert np.array_equal(np.concatenate([*replay.trajectories.blocks(key)])[:, 0], rewards)
    peaks = rewards.reshape(5, -1).max(1)
    assert np.array_equal(replay.trajectories.reduce(key, "max"), peaks)
    assert np.array_equal(peek(door, n=3, columns=[key]).columns[0].values[:, 0], rewards[:3])
    assert [*dataset_stats(door, columns=[key]).columns] == ["next.reward"]


def test_dots_part_names_only_where_no_column_has_them_as_written() -> None:
    known = [("a.b",), ("a", "b"), ("a", "c", "d")]
    assert key_in(known, ("a.b",)) == ("a.b",)
    assert key_in(known[1:], ("a.b",)) == ("a", "b")
    assert key_in(known, ("a.c",)) == ("a", "c")
    assert key_in(known, ("a.nosuch",)) == ("a.nosuch",)
