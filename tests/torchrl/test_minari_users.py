"""Programs written for Minari's datasets, every value held against Minari's own reader."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import minari
import numpy as np
import pytest
from tensordict import TensorDict

from datasets_cli import LazyTensorStorage, MinariExperienceReplay, TensorDictReplayBuffer
from datasets_cli.errors import DatasetNotInstalled, OutOfRange, Unsupported, UsageError
from tests.support import minari_files as files

PARTS = ("observations", "actions", "rewards", "terminations", "truncations", "infos")
SCALARS = ("dataset_id", "namespace", "dataset_name", "version", "minari_version", "env_spec")


def assert_equal(found: Any, right: Any) -> None:
    """Compare what two readers give, of any depth."""
    if isinstance(right, dict):
        assert isinstance(found, dict) and found.keys() == right.keys()
        for name in right:
            assert_equal(found[name], right[name])
    elif isinstance(right, tuple):
        assert isinstance(found, tuple) and len(found) == len(right)
        for one, other in zip(found, right, strict=True):
            assert_equal(one, other)
    elif isinstance(right, list):
        assert found == right
    else:
        assert isinstance(found, np.ndarray) and found.dtype == right.dtype
        np.testing.assert_array_equal(found, right)


def opened(name: str = files.NAME, **options: Any) -> MinariExperienceReplay:
    return MinariExperienceReplay(name, load_from_local_minari=True, text=True, **options)


@pytest.fixture
def recorded() -> str:
    """The id of four episodes that Minari's collector recorded."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of facts that a dataset need not state
        env = minari.DataCollector(
            gymnasium.make("CartPole-v1", max_episode_steps=12), data_format="hdf5"
        )
        env.action_space.seed(0)
        for seed in range(4):
            env.reset(seed=seed)
            while not any(env.step(env.action_space.sample())[2:4]):
                pass
        env.create_dataset("cartpole/test-v3")
        del env  # it leaves a temporary folder, of which Python warns
    return "cartpole/test-v3"


def test_what_minaris_collector_recorded_is_read_from_its_folder(recorded: str) -> None:
    theirs, replay = minari.load_dataset(recorded), opened(recorded)
    assert (replay.total_episodes, replay.total_steps) == (4, theirs.total_steps)
    for episode, right in zip(replay.iterate_episodes(), theirs.iterate_episodes(), strict=True):
        assert (episode.id, len(episode)) == (right.id, len(right))
        for name in PARTS:
            assert_equal(getattr(episode, name), getattr(right, name))
    assert replay.observation_space == theirs.observation_space
    assert replay.action_space == theirs.action_space
    assert {name: getattr(replay.spec, name) for name in SCALARS} == {
        name: getattr(theirs.spec, name) for name in SCALARS
    }
    assert vars(replay.spec).keys() == vars(theirs.spec).keys()
    assert replay.episode_indices.tolist() == theirs.episode_indices.tolist()


@pytest.mark.parametrize(
    "build",
    [
        *(files.nested, files.tuples, files.discrete, files.multi, files.missions),
        *(files.text_in_dict, files.small_frames, files.infos_of_both_lengths, files.scalars),
        files.jpeg_in_a_tuple,
    ],
)
def test_values_of_every_space_are_minaris(build: Callable[[], Path]) -> None:
    build()
    for format in ("torch", "numpy"):
        replay = opened(format=format)
        episodes = replay.iterate_episodes()
        for episode, right in zip(episodes, minari.load_dataset(files.NAME), strict=True):
            for name in PARTS:
                assert_equal(getattr(episode, name), getattr(right, name))
    assert replay.observation_space == minari.load_dataset(files.NAME).observation_space


def test_an_episode_is_rows_by_key_too(recorded: str) -> None:
    replay = opened(recorded)
    episode = next(replay.iterate_episodes([2]))
    assert isinstance(episode, TensorDict) and episode.batch_size == (len(episode),)
    assert (episode["next", "observation"][-1].numpy() == episode.observations[-1]).all()
    assert (episode["episode"] == 2).all() and episode.id == 2
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(100))
    buffer.extend(episode)
    assert (buffer[:]["action"] == episode["action"]).all() and len(buffer) == len(episode)


def test_episodes_are_filtered_by_a_function_as_minari_filters_them(recorded: str) -> None:
    def is_long(episode: Any) -> bool:
        return len(episode.rewards) > 11

    theirs = minari.load_dataset(recorded).filter_episodes(is_long)
    view = opened(recorded).filter_episodes(is_long)
    assert 0 < view.total_episodes < 4
    assert view.episode_indices.tolist() == theirs.episode_indices.tolist()
    assert (view.total_steps, view.spec.total_steps) == (theirs.total_steps, len(view))
    ids = [episode.id for episode in theirs.iterate_episodes()]
    assert [episode.id for episode in view.iterate_episodes()] == ids
    assert [episode.id for episode in view.iterate_episodes(ids[::-1])] == ids[::-1]
    other = min({*range(4)} - {*ids})
    with pytest.raises(OutOfRange) as error:
        view.iterate_episodes([other])
    assert (error.value.expected, error.value.found) == (ids, other)


def test_a_seed_gives_the_same_episodes_again(recorded: str) -> None:
    replay = opened(recorded)
    drawn = []
    for _ in range(2):
        replay.set_seed(123)
        drawn.append([episode.id for episode in replay.sample_episodes(3)])
    assert drawn[0] == drawn[1] and len({*drawn[0]}) == 3


def test_minaris_folder_is_named_where_it_is_not_there(recorded: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetNotInstalled) as missing:
        opened("no/such-v0")
    assert str(missing.value.path).endswith("no/such-v0/data")
    with pytest.raises(UsageError) as caught:
        opened(recorded, source=str(tmp_path))
    assert (caught.value.argument, caught.value.found) == ("source", str(tmp_path))
    assert opened(recorded, download=False).total_episodes == 4


@pytest.mark.parametrize("options", [{}, {"split_trajs": True}])
def test_files_that_minari_changed_are_converted_by_force(recorded: str, options: Any) -> None:
    assert opened(recorded, **options).metadata.get("author") != "another"
    folder = Path(minari.load_dataset(recorded).spec.data_path)
    metadata = json.loads((folder / "metadata.json").read_text()) | {"author": "another"}
    (folder / "metadata.json").write_text(json.dumps(metadata))
    assert opened(recorded, **options).metadata.get("author") != "another"
    for more in ({"download": "force"}, {}):
        assert opened(recorded, **options, **more).metadata["author"] == "another"
    shutil.rmtree(folder)
    assert MinariExperienceReplay(recorded).total_episodes == 4


def test_what_differs_from_minari_is_what_the_page_says() -> None:
    files.no_end_flag()
    ours, theirs = opened().episode(0), minari.load_dataset(files.NAME)[0]
    assert ours.truncations.tolist() == [False, False, False, True]
    assert not theirs.truncations.any() and not theirs.terminations.any()
    minari.delete_dataset(files.NAME)
    files.no_infos()
    assert opened(download="force").episode(0).infos == {}
    assert minari.load_dataset(files.NAME)[0].infos is None


def test_a_dataset_that_says_no_space_has_specs() -> None:
    files.no_spaces()
    replay = opened()
    with pytest.raises(Unsupported) as error:
        _ = replay.action_space
    assert error.value.id == replay.dataset_id
    without = opened(columns=["observation"])
    with pytest.raises(AttributeError, match="do not have action"):
        _ = without.episode(0).actions
