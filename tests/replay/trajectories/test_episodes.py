"""Iteration by episode: each trajectory's own rows; Minari's two methods beside Minari's own."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import minari
import numpy as np
import pytest
import torch
from tensordict import TensorDict

from datasets_cli import ExperienceReplay, LazyTensorStorage
from datasets_cli.config import Config
from datasets_cli.errors import OutOfRange, Unsupported, UsageError
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from tests.support import minari_files
from tests.support.refusals import refused

DOOR = "D4RL/door/human-v2"


@pytest.fixture
def replay(door: str) -> ExperienceReplay:
    return ExperienceReplay(door, 4, download=False, seed=0)


def starts_of(batches: Iterator[Any] | list[Any]) -> list[int]:
    return [int(batch["episode"][0]) for batch in batches]


# Minari


@pytest.fixture
def oracle(tmp_path: Path, config: Config) -> tuple[ExperienceReplay, minari.MinariDataset]:
    folder = minari_files.unpack_door(tmp_path / "minari")
    install_dataset(f"minari/{DOOR}", config, InstallOptions(source=str(folder)))
    replay = ExperienceReplay(f"minari/{DOOR}", 4, download=False, seed=0)
    return replay, minari.load_dataset(DOOR)


def assert_same(batch: TensorDict, episode: Any) -> None:
    steps = len(episode.rewards)
    assert batch.batch_size == (steps,)
    for key, values in {
        "observation": episode.observations[:-1],
        ("next", "observation"): episode.observations[1:],
        "action": episode.actions,
        ("next", "reward"): episode.rewards[:, None],
        ("next", "terminated"): episode.terminations[:, None],
        ("next", "info", "success"): episode.infos["success"][1:],
    }.items():
        np.testing.assert_array_equal(batch[key].numpy().reshape(values.shape), values)


@pytest.mark.parametrize("indices", [None, [3, 0, 24, 3], np.array([5]), []])
def test_iterate_episodes_gives_minari_s_episodes(oracle: Any, indices: Any) -> None:
    replay, dataset = oracle
    right = [*dataset.iterate_episodes(indices)] if indices is None or len(indices) else []
    found = [*replay.iterate_episodes(indices)]
    assert len(found) == len(right) == (25 if indices is None else len(indices))
    for batch, episode in zip(found, right, strict=True):
        assert_same(batch, episode)


def test_sample_episodes_draws_different_ones_of_minari_s(oracle: Any) -> None:
    replay, dataset = oracle
    found = replay.sample_episodes(10)
    assert len(set(starts_of(found))) == len(dataset.sample_episodes(10)) == 10
    for batch in found:
        assert_same(batch, dataset[int(batch["episode"][0])])
    for method in (replay.sample_episodes, dataset.sample_episodes):
        with pytest.raises(ValueError):
            method(26)
    assert len(replay.sample_episodes(0)) == len(dataset.sample_episodes(0)) == 0


def test_the_table_has_minari_s_returns_and_successes(oracle: Any) -> None:
    replay, dataset = oracle
    episodes = [*dataset.iterate_episodes()]
    table = replay.trajectories
    np.testing.assert_allclose(table["return"], [each.rewards.sum() for each in episodes])
    assert table["length"].tolist() == [len(each.rewards) for each in episodes]
    assert table["success"].tolist() == [bool(each.infos["success"][1:].any()) for each in episodes]
    assert table["truncated"].tolist() == [bool(each.truncations[-1]) for each in episodes]


# Episodes


def test_episodes_are_all_rows_in_order(replay: ExperienceReplay) -> None:
    batches = [*replay.episodes()]
    assert starts_of(batches) == [0, 1, 2, 3, 4]
    assert (torch.cat(batches) == replay[:]).all()
    assert all(
        batch["next", "done"].flatten().nonzero().tolist() == [[len(batch) - 1]]
        for batch in batches
    )


@pytest.mark.parametrize(
    ("numbers", "right"),
    [
        ([2, 0, 2], [2, 0, 2]),
        ([-1], [4]),
        (range(1, 3), [1, 2]),
        ((n for n in (3,)), [3]),
        (torch.tensor([4, 1], dtype=torch.int8), [4, 1]),
        (np.array([True, False, False, True, False]), [0, 3]),
        ([], []),
    ],
)
def test_episodes_are_chosen_by_numbers_or_a_mask(
    replay: ExperienceReplay, numbers: Any, right: list[int]
) -> None:
    assert starts_of(replay.episodes(numbers)) == right


def test_a_column_of_the_table_chooses_episodes(replay: ExperienceReplay) -> None:
    returns = replay.trajectories["return"]
    (best,) = replay.episodes(returns == returns.max())
    assert best["next", "reward"].double().sum().item() == pytest.approx(returns.max())
    assert (best == replay.episode(int(returns.argmax()))).all()


@pytest.mark.parametrize(
    ("numbers", "error", "found"),
    [
        ([5], OutOfRange, 5),
        ([0, -6, 9], OutOfRange, -6),
        ([1.0], UsageError, "float64 [1]"),
        ([True, False], UsageError, "bool [2]"),
        ([[1]], UsageError, "int64 [1, 1]"),
        ([[1], [2, 3]], UsageError, [[1], [2, 3]]),
        (np.zeros(0, bool), UsageError, "bool [0]"),
        (torch.tensor([1.0], dtype=torch.bfloat16), UsageError, "float64 [1]"),
        ("12", UsageError, "12"),
        (3, UsageError, 3),
    ],
)
def test_numbers_of_other_episodes_are_refused_before_the_first(
    replay: ExperienceReplay, numbers: Any, error: type[UsageError], found: Any
) -> None:
    with refused(error, argument="numbers", found=found):
        replay.episodes(numbers)


@pytest.mark.parametrize(("number", "error"), [(5, IndexError), (1.5, UsageError)])
def test_one_episode_that_there_is_not_is_refused(
    replay: ExperienceReplay, number: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        replay.episode(number)


def test_transforms_and_frame_stacks_apply_as_to_rows(door: str) -> None:
    def double(batch: TensorDict) -> TensorDict:
        return batch.set("action", batch["action"] * 2)

    replay = ExperienceReplay(door, 4, download=False, transform=double, frame_stack=3)
    start = int(replay.trajectories["start"][1])
    batch = replay.episode(1)
    assert batch["observation"].shape[1] == 3
    assert (batch == replay[start : start + len(batch)]).all()
    plain = ExperienceReplay(door, 4, download=False).episode(1)
    assert (batch["action"] == plain["action"] * 2).all()


def test_episodes_have_the_format_of_the_buffer(replay: ExperienceReplay) -> None:
    batch = replay.with_format("numpy").episode(1)
    assert isinstance(batch["action"], np.ndarray)
    np.testing.assert_array_equal(batch["action"], replay.episode(1)["action"].numpy())


def test_the_same_seed_draws_the_same_episodes_whatever_was_drawn_ahead(door: str) -> None:
    def draw(**arguments: Any) -> tuple[list[int], list[int]]:
        replay = ExperienceReplay(door, 4, download=False, seed=3, **arguments)
        replay.sample()
        episodes = starts_of(replay.sample_episodes(3))
        return episodes, replay.sample()["index"].tolist()

    assert draw() == draw() == draw(prefetch=3)


def test_rows_that_took_the_dataset_s_place_have_no_episodes(replay: ExperienceReplay) -> None:
    other = LazyTensorStorage(10)
    replay.set_storage(other)
    with refused(Unsupported, id=replay.dataset_id):
        replay.episodes()


def test_a_pickled_copy_has_the_same_episodes(replay: ExperienceReplay) -> None:
    copy = pickle.loads(pickle.dumps(replay))
    assert (copy.episode(2) == replay.episode(2)).all()
