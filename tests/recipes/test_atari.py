"""DQN Replay runs become exactly what the environment showed, was told and answered."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import datasets_cli
from datasets_cli.config import Config, load_config
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.recipes.atari_dqn.segments import Log
from datasets_cli.store.dataset import Dataset, open_dataset
from tests.support.ale_games import Episode, play
from tests.support.atari_files import CAP, Key, every, expected, record

ID = "atari_dqn/Pong/5"


@cache
def breakout() -> list[Episode]:
    """2,000 real steps; all episodes but the last one end by themselves."""
    return play("breakout", 2000)


def invented(lengths: list[int], seed: int = 0) -> list[Episode]:
    """Episodes of these lengths whose frames are their numbers; the last has no end."""
    rng = np.random.default_rng(seed)
    made = []
    for number, length in enumerate(lengths):
        frames = np.zeros((length + 1, 84, 84), np.uint8)
        frames[:, 0, 0] = number % 251 + 1
        frames[:, 0, 1:3] = np.arange(length + 1, dtype="<u2").view("u1").reshape(-1, 2)
        actions = rng.integers(0, 3, length).astype(np.int32)
        rewards = rng.choice([-1, 0, 0, 0, 1], length).astype(np.float32)
        ends = length != CAP and number < len(lengths) - 1
        made.append(Episode(frames, actions, rewards, ends))
    return made


def install(
    config: Config, source: Path, id: str = ID, checkpoints: str = "", **wish: object
) -> Dataset:
    options = {"checkpoints": checkpoints or every(source)}
    arguments: Any = {"source": str(source), "force": True, "options": options, **wish}
    return open_dataset(install_dataset(id, config, InstallOptions(**arguments)).path)


def assert_same(dataset: Dataset, wanted: Mapping[Key, np.ndarray]) -> None:
    keys = [key for key in dataset.keys if key in wanted or key[-1] != "observation"]
    assert set(keys) == wanted.keys()
    assert len(keys) >= 9
    found = {key: dataset.columns(key)[key].numpy() for key in keys}
    for key, values in wanted.items():
        assert (found[key].dtype, found[key].shape) == (values.dtype, values.shape), key
        same = found[key].tobytes() == values.tobytes()
        assert same, key


def follows(dataset: Dataset) -> list[bool]:
    return [entry["follows"] for entry in dataset.manifest.metadata["checkpoints"]]


@pytest.mark.parametrize(("layout", "final"), [("ted", True), ("compact", False)])
def test_every_transition_is_the_environment_s_own(
    config: Config, tmp_path: Path, layout: str, final: bool
) -> None:
    """Seven checkpoints; every episode goes over a boundary or ends near one."""
    logger = record(tmp_path / "run", breakout(), 257, final=final)
    dataset = install(config, tmp_path / "run", layout=layout)
    assert_same(dataset, expected(breakout(), logger.logged))
    assert all(follows(dataset))
    assert len(dataset.final) == 1
    last = dataset.columns(("next", "observation"))["next", "observation"][-1].numpy()
    assert (dataset.final["observation",][0] == last).all()
    assert len(dataset) == (1999 if final else 1767)


def test_there_and_back_to_the_other_layout_gives_the_same_files(
    config: Config, tmp_path: Path
) -> None:
    logger = record(tmp_path / "run", breakout(), 1400)  # the first 1,024 frames come in order
    part = f"{ID}~ckpt0-{logger.num_logs}"
    ted = install(config, tmp_path / "run", layout="ted").manifest.files
    compact = install(config, tmp_path / "run").manifest.files
    assert open_dataset(datasets_cli.convert(part, "ted", config=config).path).manifest.files == ted
    assert (
        open_dataset(datasets_cli.convert(part, "compact", config=config).path).manifest.files
        == compact
    )


def test_a_round_that_was_never_logged_leaves_a_seam(config: Config, tmp_path: Path) -> None:
    logger = record(tmp_path / "run", breakout(), 300)
    counts = [logger.add_count // 300, logger.num_logs]
    assert counts == [6, 6], "seven logs but for the one that was stepped over"
    dataset = install(config, tmp_path / "run")
    assert_same(dataset, expected(breakout(), logger.logged))
    assert follows(dataset) == [True, True, True, True, False, True]
    assert "before checkpoint 4" in dataset.manifest.metadata["notes"][0]


def test_how_the_logs_join_is_found_once(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path / "run", breakout(), 300)  # with a seam, where frames must tell
    looked, frames = [], Log.frames

    def look(log: Log, start: int, stop: int) -> np.ndarray:
        looked.append((log.number, start, stop))
        return frames(log, start, stop)

    monkeypatch.setattr(Log, "frames", look)
    install(config, tmp_path / "run")
    assert len(looked) == len(set(looked)) > 0


def test_an_unlogged_round_before_the_end_is_kept_as_far_as_the_ring_has_it(
    config: Config, tmp_path: Path
) -> None:
    # Rows 35 to 67 fill the second round; an episode's four rows step over its last slot but one.
    episodes = invented([40, 22, 15])
    logger = record(tmp_path / "run", episodes, 36)
    assert (logger.num_logs, logger.add_count) == (2, 86)
    dataset = install(config, tmp_path / "run")
    assert_same(dataset, expected(episodes, logger.logged))
    assert follows(dataset) == [True, False]


def test_a_final_log_that_repeats_the_one_before_adds_nothing(
    config: Config, tmp_path: Path
) -> None:
    episodes = invented([14, 59])
    logger = record(tmp_path / "run", episodes, 40)
    assert (logger.add_count, logger.num_logs) == (79, 3)
    dataset = install(config, tmp_path / "run")
    assert_same(dataset, expected(episodes, logger.logged))
    assert follows(dataset) == [True, True]


def test_a_run_of_one_unfilled_log_has_no_garbage(config: Config, tmp_path: Path) -> None:
    logger = record(tmp_path / "run", breakout()[:3], 2500)
    dataset = install(config, tmp_path / "run")
    assert_same(dataset, expected(breakout()[:3], logger.logged))
    assert len(dataset) == sum(len(episode.actions) for episode in breakout()[:3])


def test_the_manifest_says_how_the_game_was_played(config: Config, tmp_path: Path) -> None:
    record(tmp_path / "run", invented([14]), 40)
    metadata = install(config, tmp_path / "run").manifest.metadata
    names = "frame_skip", "repeat_action_probability", "reward_range", "max_episode_steps"
    assert [metadata[name] for name in names] == [4, 0.25, [-1, 1], 27_000]


@pytest.mark.parametrize("length", [CAP, CAP - 1])
def test_an_episode_of_27_000_steps_and_no_other_is_truncated(
    config: Config, tmp_path: Path, length: int
) -> None:
    episodes = invented([50, length, 20])
    logger = record(tmp_path / "run", episodes, 9000)
    assert logger.num_logs == 4
    dataset = install(config, tmp_path / "run")
    assert_same(dataset, expected(episodes, logger.logged, frames=False))
    last = dataset.gather(torch.tensor([50 + CAP - 2]))
    assert last["next"]["truncated"].item() == (length == CAP)
    successor = last["next"]["observation"].numpy()[0]
    same = np.array_equal(successor, episodes[1].frames[CAP - 1] * (length == CAP))
    assert same
    noted = "1 episodes of 27,000 steps are truncated" in str(dataset.manifest.metadata["notes"])
    assert noted == (length == CAP)


def test_an_episode_whose_beginning_is_missing_is_not_counted_up_to_the_limit(
    config: Config, tmp_path: Path
) -> None:
    episodes = invented([9100, CAP, 3])
    logger = record(tmp_path / "run", episodes, 9000)
    dataset = install(config, tmp_path / "run", checkpoints=f"2:{logger.num_logs}")
    assert_same(dataset, expected(episodes, logger.logged_from(2), frames=False))
    assert "without a known start" in dataset.manifest.metadata["notes"][0]


@settings(max_examples=12)
@given(
    lengths=st.lists(st.integers(1, 50), min_size=1, max_size=14),
    capacity=st.integers(8, 60),
    final=st.booleans(),
    first=st.integers(0, 3),
)
def test_any_run_of_any_capacity_comes_out_whole(
    lengths: list[int],
    capacity: int,
    final: bool,
    first: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("atari")
    config, episodes = load_config(root=folder / "root"), invented(lengths)
    logger = record(folder / "run", episodes, capacity, final=final)
    assume(logger.num_logs > 1 or logger.add_count < capacity)  # no run is as short
    repeats = final and logger.add_count % capacity == capacity - 1  # the final log, all of it
    assume(first < logger.num_logs - repeats)
    wanted = expected(episodes, logger.logged_from(first))
    if wanted:
        part = f"{first}:{logger.num_logs}" if first else ""
        assert_same(install(config, folder / "run", checkpoints=part), wanted)
    shutil.rmtree(folder)
