"""Short names of what is installed, also where no catalogue lists it."""

from __future__ import annotations

import pytest

import datasets_cli
from datasets_cli.config import Config
from datasets_cli.errors import UnknownDataset


@pytest.fixture
def small(config: Config) -> Config:
    datasets_cli.download("demo/iris", config=config)
    datasets_cli.preprocess("demo/iris", lambda batch: batch, "small", config=config)
    return config


def test_a_dataset_that_no_catalogue_lists_answers_to_its_short_name(small: Config) -> None:
    assert datasets_cli.dataset_path("small", config=small).id == "derived/small"
    assert datasets_cli.dataset_info("small", config=small).id == "derived/small"
    assert len(datasets_cli.ExperienceReplay("small", root=small.root, download=False)) == 150


@pytest.mark.parametrize("typed", ["smal", "derived/smll", "d4rl/smal", "own/wals", "wals"])
def test_installed_datasets_that_no_catalogue_lists_are_suggested(
    typed: str, small: Config
) -> None:
    folder = small.root / "datasets" / "own" / "walks"  # whose recipe is gone
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{}")
    near = "own/walks" if "wals" in typed else "derived/small"
    for ask in (datasets_cli.dataset_info, datasets_cli.dataset_path, datasets_cli.download):
        with pytest.raises(UnknownDataset, match=f"Did you mean {near}[?,]"):
            ask(typed, config=small)


def test_demo_data_never_answer_for_the_published_ones(small: Config) -> None:
    with pytest.raises(UnknownDataset):
        datasets_cli.dataset_path("pong", config=small)


def test_a_word_without_anything_near_it_suggests_nothing(config: Config) -> None:
    with pytest.raises(UnknownDataset) as caught:
        datasets_cli.dataset_info("nope", config=config)
    assert "Did you mean" not in str(caught.value)
    with pytest.raises(UnknownDataset, match="Did you mean d4rl/hopper-medium-v2"):
        datasets_cli.dataset_info("hoper-medium-v2", config=config)
