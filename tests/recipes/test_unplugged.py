"""RL Unplugged: every transition is the environment's own; what is no such record is refused."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from datasets_cli.catalogue.names import Resolved
from datasets_cli.config import Config
from datasets_cli.core.progress import Progress, silent
from datasets_cli.errors import SourceError
from datasets_cli.install.installation import stage
from datasets_cli.parallel.engine import Workers
from datasets_cli.recipe import CatalogueEntry, Recipe
from datasets_cli.recipes.atari_dqn import unplugged_reader as unplugged
from datasets_cli.sources.resource import Digests, Resource, verify
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.dataset import Dataset, open_dataset
from datasets_cli.store.manifest import write_manifest
from tests.support import unplugged_files as files
from tests.support.events import Events
from tests.support.refusals import refused
from tests.support.unplugged_files import Shards, cut, episodes, expected, in_shards
from tests.support.user_recipe import recipe_of
from tests.support.values import assert_same, everything

RECIPE = recipe_of(
    "run",
    blocks=unplugged.blocks,
    deferred_frames=unplugged.deferred_frames,
    describe=unplugged.describe,
)


Install = Callable[..., Dataset]


@pytest.fixture
def install(config: Config, tmp_path: Path) -> Install:
    """Write shards, or take bytes for files, and convert them."""

    def run(
        shards: Shards | list[bytes],
        layout: str | None = None,
        workers: int = 0,
        progress: Progress = silent,
        recipe: Recipe = RECIPE,
    ) -> Dataset:
        raw = []
        for number, shard in enumerate(shards):
            data = shard if isinstance(shard, bytes) else files.pack(map(files.example, shard))
            resource = Resource((), files.shard_name(number))
            (tmp_path / resource.filename).write_bytes(data)
            digests = Digests(["sha256"])
            digests.read(tmp_path / resource.filename)
            raw.append(verify(resource, tmp_path / resource.filename, "", digests))
        resolved, root = Resolved(recipe, "run", CatalogueEntry("run")), CacheRoot(config.root)
        manifest, folder = stage(
            resolved, raw, root, layout, progress, Workers(num_workers=workers)
        )
        write_manifest(folder, manifest)
        return open_dataset(folder)

    return run


# Values


@pytest.mark.parametrize("layout", ["ted", "compact"])
def test_every_transition_is_what_the_environment_did(layout: str, install: Install) -> None:
    dataset = install(in_shards(episodes()), layout)
    right = expected(episodes())
    ends = right["next", "terminated"][:, 0]
    assert right["next", "reward"][ends].any()  # the last step of a game counts
    assert_same(everything(dataset), right)
    cut_off = sum(not episode.terminated for episode in episodes())
    assert (len(dataset.final), (dataset.final.episodes == -1).sum()) == (cut_off, 1)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_episode_may_be_longer_than_a_block(
    workers: int, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets_cli.schema.columns.BLOCK_ROWS", 7)
    some = episodes()[-4:]
    assert_same(everything(install(in_shards(some), workers=workers)), expected(some))


def test_frames_are_packed_by_default(install: Install) -> None:
    assert install(in_shards(episodes()[-2:])).manifest.layout == "compact"


def test_a_reward_that_was_not_clipped_is_kept_beside_the_clipped_one(install: Install) -> None:
    shards = in_shards(episodes()[1:3])
    whole = shards[0][0]["clipped_rewards"] * np.float32(7)
    whole[3] = 7
    shards[0][0]["unclipped_rewards"] = whole
    found = everything(install(shards))
    right = expected(episodes()[1:3])
    kept = np.concatenate((whole, shards[2][0]["unclipped_rewards"]))
    assert_same(found, right | {("info", "unclipped_reward"): kept})


def test_a_discount_of_its_own_is_kept(install: Install) -> None:
    shards = in_shards(episodes()[1:3])
    shards[2][0]["discounts"][5] = 0.5
    found = everything(install(shards))
    kept = np.concatenate([shards[number][0]["discounts"] for number in (0, 2)])
    assert_same(found, expected(episodes()[1:3]) | {("info", "discount"): kept})


@pytest.mark.parametrize(("steps", "terminated"), [(26_999, True), (27_000, False), (27_001, True)])
def test_an_episode_of_27_000_steps_was_cut_off(steps: int, terminated: bool) -> None:
    discounts = np.ones(steps, np.float32)
    discounts[-1] = 0
    columns = {"actions": np.zeros(steps, np.int64), "discounts": discounts}
    assert unplugged.UnpluggedEpisode("a", {}, [], columns).terminated == terminated


def test_an_episode_at_the_limit_of_steps_is_truncated_whatever_its_discount_says(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets_cli.recipes.atari_dqn.unplugged_episode.MAX_EPISODE_STEPS", 139)
    some = episodes()[1:3]
    assert (len(some[0].actions), some[0].terminated) == (139, True)
    events = Events()
    dataset = install(in_shards(some), progress=events)
    assert_same(everything(dataset), expected([cut(some[0], 139), some[1]]))
    assert dataset.manifest.metadata["episodes_at_step_limit"] == 1
    assert events.notes[0].startswith("test/run: 1 episodes of 27,000 steps are truncated")


def test_the_episodes_numbers_and_returns_lie_beside_the_data(install: Install) -> None:
    dataset = install(in_shards(episodes()))
    lines = (dataset.folder / "episodes.tsv").read_text().splitlines()
    header, *rows = (line.split("\t") for line in lines)
    assert header[:2] == ["checkpoint_idx", "episode_idx"]
    assert header[-2:] == ["num_steps", "terminated"]
    right = [
        [str(episode.rewards.sum()), str(len(episode.actions)), str(int(episode.terminated))]
        for episode in episodes()
    ]
    assert [[row[2], *row[4:]] for row in rows] == right
    half = len(right) // 2
    assert [row[:2] for row in rows[half - 1 : half + 1]] == [["0", str(half - 1)], ["2", "0"]]
    assert [entry["episodes"] for entry in dataset.manifest.metadata["checkpoints"]] == [
        half,
        0,
        len(right) - half,
    ]


def test_episodes_out_of_their_order_are_kept_and_named(install: Install) -> None:
    some = episodes()[1:4]
    shards = [[files.features_of(episode, 0, 5 - n) for n, episode in enumerate(some)]]
    events = Events()
    assert_same(everything(install(shards, progress=events)), expected(some))
    assert "differs from their numbers: see run_2-00000-of-00050, record 1" in events.notes[0]


def test_frames_in_png_files_of_another_mode_are_converted_and_counted(install: Install) -> None:
    some = episodes()[1:3]
    shards = in_shards(some)
    frames = shards[2][0]["observations"]
    frames[0], frames[1] = (in_mode(some[1].frames[step], "P") for step in (0, 1))
    frames[5] = in_mode(some[1].frames[5], "RGB")
    events = Events()
    assert_same(everything(install(shards, progress=events)), expected(some))
    assert [note for note in events.notes if ": unchecked: " not in note] == [
        "test/run: 3 frames are not 8-bit grey PNG files, and are converted to the greys they show "
        "(8-bit RGB: 1; 8-bit palette: 2)"
    ]


# Refusals


def test_a_run_without_any_step_is_refused(install: Install) -> None:
    empty = cut(episodes()[0], 0)
    with refused(SourceError, id="test/run"):
        install([[], [files.features_of(empty, 0, 0)]])


def in_mode(frame: np.ndarray, mode: str) -> bytes:
    file = io.BytesIO()
    Image.fromarray(frame).convert(mode).save(file, "PNG")
    return file.getvalue()


def coloured() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (84, 84), (0, 0, 9)).save(file, "PNG")
    return file.getvalue()


SCREEN = files.png(np.zeros((84, 84), np.uint8))
CHANGES: dict[str, dict[str, Any]] = {
    "it lacks discounts, observations. Found: checkpoint_idx, .*": {
        "discounts": None,
        "observations": None,
    },
    "actions must be int64. Found: float32": {"actions": np.zeros(2, np.float32)},
    "observations must be PNG files. Found: int64": {"observations": np.zeros(2, np.int64)},
    "must be equally long. Found: 3 observations, 2 actions": {"observations": [SCREEN] * 3},
    "episode_idx must be one number. Found: 2": {"episode_idx": np.array([1, 2])},
    r"at byte 0, frame 1 is a PNG file of another mode \(8-bit RGB\) in which the pixel in row 0": {
        "observations": [SCREEN, coloured()]
    },
    "frame 1 is a PNG file of 84 x 85 pixels; expected 84 x 84": {
        "observations": [SCREEN, in_mode(np.zeros((84, 85), np.uint8), "L")]
    },
    "frame 0 is damaged: it is not a PNG file, it begins with b'GIF": {
        "observations": [b"GIF89a", SCREEN]
    },
}


@pytest.mark.parametrize("message", CHANGES)
def test_a_record_that_is_no_episode_is_refused(message: str, install: Install) -> None:
    features = files.features_of(cut(episodes()[1], 2), 0, 0, **CHANGES[message])
    with pytest.raises(SourceError, match=f"^test/run: run_2-00001-of-00050, record 0 .*{message}"):
        install([[], [features]])


def test_another_kind_of_record_is_refused(install: Install) -> None:
    other = files.pack([files.example({"steps/action": np.zeros(7, np.float32)})])
    with pytest.raises(SourceError) as caught:
        install([other])
    assert "steps/action" in str(caught.value.found)


def test_damage_in_the_last_file_is_found_before_a_frame_is_decoded(install: Install) -> None:
    shards = in_shards(episodes()[1:3])
    shards[0][0]["observations"][0] = b"no frame"
    packed = [files.pack(map(files.example, shard)) for shard in shards]
    with refused(SourceError, found=12):
        install([*packed[:2], packed[2][:-1]])
