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
        with pytest.raises(UnknownDataset) as caught:
            ask(typed, config=small)
        assert near in caught.value.found
