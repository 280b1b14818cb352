"""Rows that the package gives out become a dataset of one's own with the same values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from datasets_cli import DatasetWriter, ExperienceReplay, create_dataset
from datasets_cli.config import Config
from datasets_cli.errors import UsageError
from datasets_cli.install.installation import install_dataset
from tests.exchange.test_create import LENGTHS, steps


def created(rows: Any, config: Config, **options: Any) -> None:
    create_dataset("mine/again", rows.to_numpy(), config=config, **options)


def written(rows: Any, config: Config, **options: Any) -> None:
    with DatasetWriter("mine/again", config=config, **options) as writer:
        for episode in rows.episodes():
            writer.add_episode(episode)


def with_text(config: Config) -> str:
    """Make a dataset with nested keys, text, and numbers that numpy lacks."""
    half = np.arange(8, dtype="<u2").view([("bfloat16", "<u2")])
    given = {**steps(), "info.half": half, ("next", "info", "word"): [["a", "b\0"]] * 8}
    return create_dataset("mine/first", given, lengths=LENGTHS, config=config).id


@pytest.mark.parametrize(("make", "layout"), [(created, "compact"), (written, "ted")])
@pytest.mark.parametrize("id", ["demo/door-minari", "demo/pong", with_text])
def test_they_are_taken_with_every_value(
    id: Any, make: Callable[..., None], layout: str, config: Config
) -> None:
    name = id(config) if callable(id) else install_dataset(id, config).id
    given = ExperienceReplay(name, text=True, root=config.root)
    make(given, config, layout=layout)
    again = ExperienceReplay("mine/again", text=True, root=config.root)
    expected, found = given.to_numpy(), again.to_numpy()
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        np.testing.assert_array_equal(found[key], values, key, strict=True)


def test_trajectories_of_a_view_are_taken_and_cut_ones_refused(config: Config) -> None:
    whole = ExperienceReplay(install_dataset("demo/door-minari", config).id, root=config.root)
    view = whole.episodes_at([2, 0])
    created(view, config)
    again = ExperienceReplay("mine/again", root=config.root)
    assert again[:]["observation"].equal(view[:]["observation"])
    assert again[:]["episode"].unique().tolist() == [0, 1]
    with DatasetWriter("mine/other", config=config) as writer:
        writer.add_episode(whole.episode(1))
        with pytest.raises(UsageError):
            writer.add_episode(whole[:])  # of several trajectories


@pytest.mark.parametrize("key", ["done", "terminated", "truncated", "next.done"])
def test_a_flag_that_would_get_other_values_is_refused(config: Config, key: str) -> None:
    rows = ExperienceReplay(
        install_dataset("demo/door-minari", config).id, root=config.root
    ).to_numpy()
    with pytest.raises(UsageError):
        create_dataset("mine/again", {**rows, key: ~rows[key]}, config=config)
