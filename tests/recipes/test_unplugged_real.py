"""A real file of RL Unplugged, two episodes of Asterix: every value, in both layouts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from datasets_cli.catalogue.names import Resolved
from datasets_cli.config import Config
from datasets_cli.core.progress import silent
from datasets_cli.install.installation import stage
from datasets_cli.parallel.engine import Workers
from datasets_cli.recipe import CatalogueEntry
from datasets_cli.recipes.atari_dqn import unplugged_reader
from datasets_cli.sources.resource import Digests, Resource, verify
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.dataset import Dataset, open_dataset
from datasets_cli.store.manifest import write_manifest
from tests.support.paths import TEST_DATA
from tests.support.unplugged_files import Rows
from tests.support.unplugged_records import Features, read_run
from tests.support.user_recipe import recipe_of
from tests.support.values import assert_same, everything

ASTERIX = TEST_DATA / "rl_unplugged" / "asterix_run_1-00000-of-00001"
RECIPE = recipe_of(
    "asterix",
    blocks=unplugged_reader.blocks,
    deferred_frames=unplugged_reader.deferred_frames,
    describe=unplugged_reader.describe,
)


@pytest.fixture(scope="module")
def episodes() -> list[Features]:
    """The two records, read by nothing of ours."""
    return read_run(ASTERIX)


def install(config: Config, layout: str, workers: int = 0) -> Dataset:
    """Convert the file, which is one of a run's 50."""
    digests = Digests(["sha256"])
    digests.read(ASTERIX)
    raw = verify(Resource((), ASTERIX.name), ASTERIX, "", digests)
    resolved = Resolved(RECIPE, "asterix", CatalogueEntry("asterix"))
    root = CacheRoot(config.root)
    manifest, folder = stage(resolved, [raw], root, layout, silent, Workers(num_workers=workers))
    write_manifest(folder, manifest)
    return open_dataset(folder)


def expected(episodes: list[Features]) -> Rows:
    """Return the rows: T a game, whose last step has no successor but black."""
    rows: dict[tuple[str, ...], list[np.ndarray]] = {}
    for number, episode in enumerate(episodes):
        frames, num_steps = episode["observations"], len(episode["actions"])
        for step in range(num_steps):
            over = step == num_steps - 1
            assert episode["discounts"][step] == (not over)
            following = np.zeros_like(frames[0]) if over else frames[step + 1]
            row = {
                ("observation",): frames[step],
                ("action",): episode["actions"][step],
                ("next", "observation"): following,
                ("next", "reward"): episode["clipped_rewards"][step : step + 1],
                ("next", "done"): np.array([over]),
                ("next", "terminated"): np.array([over]),
                ("next", "truncated"): np.array([False]),
                ("episode",): np.int64(number),
                **{(name,): np.array([False]) for name in ("done", "terminated", "truncated")},
            }
            for key, value in row.items():
                rows.setdefault(key, []).append(value)
    return {key: np.stack(values) for key, values in rows.items()}


@pytest.mark.parametrize(("layout", "workers"), [("ted", 0), ("compact", 0), ("compact", 2)])
def test_every_value_of_a_real_file_is_kept(
    layout: str, workers: int, episodes: list[Features], config: Config
) -> None:
    assert [len(episode["actions"]) for episode in episodes] == [310, 244]
    assert_same(everything(install(config, layout, workers)), expected(episodes))


def test_the_numbers_of_the_episodes_are_in_a_table(
    episodes: list[Features], config: Config
) -> None:
    table: Path = install(config, "compact").folder / "episodes.tsv"
    header, *lines = (line.split("\t") for line in table.read_text().splitlines())
    for line, episode in zip(lines, episodes, strict=True):
        found = dict(zip(header, line, strict=True))
        for name in ("checkpoint_idx", "episode_idx"):
            assert int(found[name]) == episode[name][0]
        assert float(found["episode_return"]) == episode["episode_return"][0]
        assert found["num_steps"] == str(len(episode["actions"]))
