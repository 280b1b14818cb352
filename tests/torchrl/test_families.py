"""Families of datasets by TorchRL's classes."""

from __future__ import annotations

import inspect
import json
import pickle
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import h5py
import minari
import numpy as np
import pytest
import torch
from tensordict import TensorDict

from datasets_cli import (
    AtariDQNExperienceReplay,
    D4RLExperienceReplay,
    ExperienceReplay,
    LazyTensorStorage,
    MinariExperienceReplay,
    Mixture,
    OpenMLExperienceReplay,
    RandomSampler,
    TensorDictReplayBuffer,
)
from datasets_cli.config import Config
from datasets_cli.core.progress import silent
from datasets_cli.errors import (
    DatasetNotInstalled,
    ImmutableError,
    OutOfRange,
    Unsupported,
    UsageError,
)
from datasets_cli.experience.opening import TrajectoryDatasetOptions
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.replay import ImmutableDatasetWriter, Reward2GoTransform
from tests.recipes.test_atari import invented
from tests.support import minari_files as files
from tests.support.atari_files import Logger, record, runs
from tests.support.paths import TEST_DATA
from tests.support.refusals import refused


def test_arguments_of_torchrls_examples_are_taken(door: str) -> None:
    replay = D4RLExperienceReplay(
        dataset_id=door.removeprefix("d4rl/"),
        split_trajs=False,
        batch_size=4,
        use_truncated_as_done=True,
        from_env=False,
        direct_download=True,
        terminate_on_end=None,
        download=False,
    )
    assert replay.sample().shape == (4,)


@pytest.mark.parametrize(
    ("kind", "argument"),
    [
        (D4RLExperienceReplay, {"from_env": True}),
        (D4RLExperienceReplay, {"use_truncated_as_done": False}),
        (D4RLExperienceReplay, {"terminate_on_end": True}),
    ],
)
def test_another_meaning_is_refused_before_anything_is_done(
    kind: Any, argument: dict[str, bool]
) -> None:
    (name,) = argument
    with refused(Unsupported, argument=name, found=argument[name]):
        kind("nosuch", 4, **argument)


def test_whole_trajectories_are_drawn_in_place_of_rows(door: str) -> None:
    name = door.removeprefix("d4rl/")
    rows = D4RLExperienceReplay(name)[:]
    replay = D4RLExperienceReplay(name, 4, split_trajs=True, seed=0)
    batch = replay.sample()
    assert (len(replay), batch.shape) == (5, (4, 299)) and bool(batch["mask"].all())
    expected = rows["observation"].view(5, 299, -1)[batch["index"][:, 0]]
    assert torch.equal(batch["observation"], expected)
    with pytest.raises(ImmutableError):
        replay.extend(batch)
    with refused(Unsupported, argument="split_trajs"):
        D4RLExperienceReplay(name, 4, split_trajs=True, slice_len=10)


NOT_OF_A_FAMILY: dict[type[ExperienceReplay], set[str]] = {
    D4RLExperienceReplay: {"options", "num_workers"},
    MinariExperienceReplay: {"options", "num_workers"},
    # A trajectory of a table is one step; its first argument is called name, as in TorchRL.
    OpenMLExperienceReplay: {
        *("options", "num_workers", "dataset_id"),
        *("num_slices", "slice_len", "frame_stack", "strict_length"),
    },
    # Its options and number of processes have other names.
    AtariDQNExperienceReplay: {"options", "num_workers"},
}


@pytest.mark.parametrize("family", NOT_OF_A_FAMILY)
def test_a_family_takes_every_argument_of_experience_replay(family: type[ExperienceReplay]) -> None:
    shared = inspect.signature(ExperienceReplay).parameters
    own = inspect.signature(family).parameters
    assert shared.keys() - own.keys() == NOT_OF_A_FAMILY[family]
    for name in shared.keys() & own.keys():
        expected = (shared[name].annotation, shared[name].default, shared[name].kind)
        assert (own[name].annotation, own[name].default, own[name].kind) == expected, name


# Arguments checked before a dataset is looked up; the test passes any object for all others.
CHECKED: dict[str, Any] = {
    **{"root": "r", "source": "s", "layout": "compact", "format": "numpy", "download": "force"},
    **{"text": True, "contiguous": True, "pin_memory": True, "cast": True},
    **{"columns": ["action"], "audit": "raise", "view": "no-idle", "repaired": True},
    **{"strict_length": False, "replacement": False, "progress": silent, "options": {"a": "b"}},
    **{"transform": abs, "collate_fn": list},
}


def test_every_argument_of_a_family_reaches_experience_replay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Taken(Exception):
        pass

    def take(self: ExperienceReplay, options: TrajectoryDatasetOptions, *_: Any) -> None:
        raise Taken(options)

    monkeypatch.setattr(ExperienceReplay, "_open", take)
    for family, missing in NOT_OF_A_FAMILY.items():
        names = inspect.signature(ExperienceReplay).parameters.keys() - missing
        names -= {"dataset_id", "batch_size"}
        assert names >= {*CHECKED} - missing | {"device", "seed"}
        given: dict[str, Any] = {name: CHECKED.get(name, object()) for name in names}
        with pytest.raises(Taken) as caught:
            family("the id", 4, **given)
        (options,) = caught.value.args
        assert (options.dataset_id, options.batch_size) == ("the id", 4)
        assert {name: getattr(options, name) for name in given} == given


def test_the_options_of_atari_reach_experience_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Any] = []

    def take(self: ExperienceReplay, options: TrajectoryDatasetOptions, *variant: Any) -> None:
        taken[:] = [options.strict_length, *variant]

    monkeypatch.setattr(ExperienceReplay, "_open", take)
    AtariDQNExperienceReplay("Pong/5", checkpoints="0:2", num_procs=3, strict_len=False)
    assert taken == [False, {"checkpoints": "0:2"}, 3]
    AtariDQNExperienceReplay("Pong/5", strict_length=False)
    assert taken == [False, {}, 0]


def test_options_and_processes_reach_experience_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Any] = []
    monkeypatch.setattr(ExperienceReplay, "_open", lambda self, *given: taken.extend(given[1:]))
    ExperienceReplay("atari_dqn/Pong/5", options={"checkpoints": "0:2"}, num_workers=3)
    assert taken == [{"checkpoints": "0:2"}, 3]


# AtariDQNExperienceReplay: arguments and attributes that TorchRL's users know, TED's shapes.


EPISODES = invented([40, 25, 60, 33, 20, 31])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Logger:
    """Logs with a seam: one round was stepped over."""
    folder = tmp_path_factory.mktemp("atari")
    for capacity in range(36, 60):
        logger = record(folder / str(capacity), EPISODES, capacity)
        if logger.num_logs < logger.add_count // capacity + 1:
            return logger
    raise AssertionError("no capacity of these is stepped over")


PART = "Pong/5~ckpt0-6"
"""All checkpoints of that run, which is shorter than a published one."""


@pytest.mark.filterwarnings("ignore:mp_start_method:UserWarning")
def test_the_attributes_of_torchrl_s_page_are_there(run: Logger) -> None:
    replay = AtariDQNExperienceReplay(
        PART,
        source=str(run.folder),
        sampler=RandomSampler(),
        writer=ImmutableDatasetWriter(),
        mp_start_method="fork",
    )
    assert "Krull/2" in AtariDQNExperienceReplay.available_datasets
    assert replay.dataset_id == f"atari_dqn/{PART}"
    assert (replay.metadata["game"], replay.metadata["run"]) == ("Pong", 5)
    assert [entry["number"] for entry in replay.metadata["checkpoints"]] == list(
        range(run.num_logs)
    )
    episodes = replay.episodes
    assert (episodes.dtype, episodes.shape) == (torch.int64, (len(replay),))
    assert torch.equal(episodes, replay[:]["episode"])
    numbers = [batch["episode"] for batch in replay.iterate_episodes()]
    assert torch.equal(episodes, torch.cat(numbers))
    assert len(numbers) == len(replay.trajectories) == int(episodes[-1]) + 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_slices": 4, "strict_len": False},
        {"slice_len": 8, "strict_length": False},
        {"slice_len": 8},
    ],
)
def test_slices_are_consecutive_steps_of_one_episode(
    run: Logger, arguments: dict[str, Any]
) -> None:
    replay = AtariDQNExperienceReplay(
        PART, batch_size=32, source=str(run.folder), seed=0, **arguments
    )
    for _ in range(5):
        batch = replay.sample()
        cuts = (batch["index"].diff() != 1).nonzero()[:, 0] + 1
        for part in torch.tensor_split(batch["next", "observation"], cuts.tolist()):
            real = part[(part != 0).flatten(1).any(1)]  # zeros follow a terminated step
            assert len(real[:, 0, 0].unique()) <= 1
            steps = real[:, 0, 1].int() + 256 * real[:, 0, 2]
            assert (steps.diff() == 1).all()


def test_no_slice_goes_across_a_seam(run: Logger) -> None:
    replay = AtariDQNExperienceReplay(PART, source=str(run.folder))
    assert not all(entry["follows"] for entry in replay.metadata["checkpoints"])
    pieces = [len(piece) for piece in runs(run.logged)]
    lengths = np.diff(np.load(replay.data_path / "trajectories.npy"))
    assert len(lengths) == len(pieces)
    assert set(np.array(pieces) - lengths) == {0, 1}


def test_a_terminated_step_is_followed_by_zeros_and_no_other(run: Logger) -> None:
    rows = AtariDQNExperienceReplay(PART, source=str(run.folder))[:]
    blank = (rows["next", "observation"] == 0).flatten(1).all(1, keepdim=True)
    assert torch.equal(blank, rows["next", "terminated"])
    assert rows["next", "terminated"].any()
    assert rows["next", "truncated"].any()


def test_a_part_is_asked_for_by_its_checkpoints(run: Logger, tmp_path: Path) -> None:
    part = AtariDQNExperienceReplay("Pong/5", checkpoints="0:1", source=str(run.folder))
    assert part.dataset_id == "atari_dqn/Pong/5~ckpt0-1"
    again = AtariDQNExperienceReplay("Pong/5", checkpoints="0:1", download=False)
    assert len(again) == len(part)
    with pytest.raises(DatasetNotInstalled):
        AtariDQNExperienceReplay("Pong/5", download=False)


# Programs written for Minari's datasets, every value held against Minari's own reader.


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
    with refused(OutOfRange, expected=ids, found=other):
        view.iterate_episodes([other])


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
    with refused(UsageError, argument="source", found=str(tmp_path)):
        opened(recorded, source=str(tmp_path))
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
    with refused(Unsupported, id=replay.dataset_id):
        _ = replay.action_space
    without = opened(columns=["observation"])
    with pytest.raises(AttributeError, match="do not have action"):
        _ = without.episode(0).actions


# The rows of D4RL in TorchRL's form: a root ``reward``, held against TorchRL's own class.


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchrl.data.datasets import d4rl as theirs
    from torchrl.envs.transforms import Reward2GoTransform as TheirReward2Go

NAME = "hopper-medium-v2"
FILE = TEST_DATA / "d4rl" / "cuts" / "hopper_medium-v2.hdf5"


@pytest.fixture
def their_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TensorDict:
    """All steps but the last, as TorchRL reads them of the same file."""
    monkeypatch.setattr(theirs, "_download_dataset_from_url", lambda url, folder: FILE)
    data = theirs.D4RLExperienceReplay(NAME, 4, direct_download=True, root=tmp_path / "theirs")
    rows: TensorDict = data[:]
    return rows


def expected_rewards() -> torch.Tensor:
    """Of each step of the file, all of which have a successor: the reward before it, or 0."""
    with h5py.File(FILE) as file:
        rewards, ends = file["rewards"][:], file["timeouts"][:] | file["terminals"][:]
    before = [0.0] + [0.0 if end else float(r) for r, end in zip(rewards, ends, strict=True)]
    return torch.tensor(before[:-1]).unsqueeze(1)


@pytest.mark.parametrize("layout", ["ted", "compact"])
def test_the_root_reward_is_that_of_the_step_before(
    layout: str, config: Config, their_rows: TensorDict
) -> None:
    source = InstallOptions(source=str(FILE.parent), accept_any=True, layout=layout)
    install_dataset(f"d4rl/{NAME}", config, source)
    replay, expected = D4RLExperienceReplay(NAME, 16, seed=0), expected_rewards()
    rows = replay[:]
    assert torch.equal(rows["reward"], expected) and torch.equal(replay["reward"], expected)
    arrays = replay.with_format("numpy").sample()
    assert torch.equal(torch.from_numpy(arrays["reward"]), expected[arrays["index"]])
    for batch, _ in zip(replay, range(20), strict=False):
        assert torch.equal(batch["reward"], expected[batch["index"]])
    # TorchRL's is the same but for the first row of a trajectory, where it has the last reward of
    # the one before; it leaves the last step of the file out.
    assert torch.equal(their_rows["action"], rows["action"][:-1])
    differ = (their_rows["reward"] != rows["reward"][:-1]).squeeze(1).nonzero().squeeze(1)
    assert differ.tolist() == replay.storage.offsets[1:-1].tolist()


def test_views_pickles_mixtures_and_chosen_columns_have_the_root_reward(hopper: str) -> None:
    replay, expected = D4RLExperienceReplay(NAME, 8), expected_rewards()
    first = int(replay.storage.offsets[1])
    view = pickle.loads(pickle.dumps(replay.episodes_at([1])))
    assert torch.equal(view["reward"], expected[first:])
    mixed = Mixture([replay, view], batch_size=8)[:]
    assert torch.equal(mixed["reward"], torch.cat([expected, expected[first:]]))
    only = D4RLExperienceReplay(NAME, 8, columns=["reward"])
    assert {*only.sample().keys()} == {"reward", "index"} and "next" not in only.specs
    assert torch.equal(only[:]["reward"], expected) and only.specs["reward"].shape == (1,)
    assert "reward" not in D4RLExperienceReplay(NAME, 8, columns=["action"])[:]
    stacks = D4RLExperienceReplay(NAME, 8, frame_stack=2)[:]
    assert torch.equal(stacks["reward"], expected)
    assert "reward" not in ExperienceReplay(hopper)[:] and not view.storage.has(("re",))


@pytest.mark.parametrize("transform", [Reward2GoTransform, TheirReward2Go])
def test_the_decision_transformer_has_returns_to_go_at_the_root(
    transform: type, hopper: str
) -> None:
    data = D4RLExperienceReplay(NAME, 4, split_trajs=True, direct_download=True)
    keys = [("next", "reward"), "reward"], [("next", "return_to_go"), "return_to_go"]
    rows = data[:]
    with rows.unlock_():
        made = transform(gamma=1.0, in_keys=keys[0], out_keys=keys[1]).inv(rows)
    for number, trajectory in enumerate(D4RLExperienceReplay(NAME).episodes()):
        for reward, to_go in zip(("reward", ("next", "reward")), keys[1][::-1], strict=True):
            rest = trajectory[reward].flip(0).cumsum(0).flip(0)
            found = made[number][to_go][: len(rest)]
            torch.testing.assert_close(found, rest, rtol=1e-4, atol=1e-2)
