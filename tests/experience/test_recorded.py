"""``recorded()``: the publisher's arrays, compared with h5py's bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import datasets_cli
from datasets_cli import ExperienceReplay
from datasets_cli.config import Config
from datasets_cli.errors import DamagedDataset, UsageError, WrongSize
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.project import Pipeline
from datasets_cli.recipes.d4rl import catalogue
from datasets_cli.store.manifest import read_manifest, write_manifest
from tests.support.d4rl_cuts import CUTS, columns
from tests.support.d4rl_files import LAYOUTS, save
from tests.support.paths import DEMO_DATA
from tests.support.refusals import refused
from tests.support.values import read_source

Arrays = dict[str, Any]
NAME = "hopper-medium-v0"
FILE = "hopper_medium.hdf5"


def assert_equal(found: Arrays, right: Arrays) -> None:
    assert found.keys() == right.keys()
    for name, rows in right.items():
        assert (found[name].dtype, found[name].shape) == (rows.dtype, rows.shape), name
        if rows.dtype.hasobject:
            assert found[name].tolist() == rows.tolist(), name
        else:
            assert found[name].tobytes() == rows.tobytes(), name


def opened(name: str, source: Path, config: Config, layout: str = "ted") -> ExperienceReplay:
    options = InstallOptions(source=str(source), accept_any=True, force=True, layout=layout)
    install_dataset(f"d4rl/{name}", config, options)
    return ExperienceReplay(f"d4rl/{name}", download=False, audit="ignore")


def installed(arrays: Arrays, folder: Path, config: Config, **options: Any) -> ExperienceReplay:
    """Return the dataset of a file of D4RL with these arrays."""
    save(folder / FILE, arrays, compression=None)
    return opened(NAME, folder, config, **options)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are read 7 at a time."""
    monkeypatch.setattr("datasets_cli.store.arrays.rows_per_block", lambda _: 7)


@pytest.mark.parametrize("cut", CUTS)
def test_the_arrays_of_real_files_come_back_in_both_layouts_and_by_export_and_import(
    cut: str, tmp_path: Path, config: Config
) -> None:
    replay = opened(CUTS[cut].name, CUTS[cut].lay_out(tmp_path / "source"), config)
    right = columns(cut)
    assert_equal(replay.recorded(), right)
    datasets_cli.convert(replay.dataset_id, layout="compact")
    assert_equal(ExperienceReplay(replay.dataset_id, audit="ignore").get_dataset(), right)
    datasets_cli.export_dataset(replay.dataset_id, "d4rl", tmp_path / "out.hdf5")
    assert_equal(read_source(tmp_path / "out.hdf5"), right)
    datasets_cli.import_dataset(tmp_path / "out.hdf5", "mine/again")
    again = ExperienceReplay("mine/again")
    assert_equal(again.recorded(), right)
    assert again.manifest.final_steps == replay.manifest.final_steps


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_arrays_of_every_layout_of_d4rls_scripts_come_back(
    layout: str, tmp_path: Path, config: Config
) -> None:
    written = LAYOUTS[layout]
    entry = catalogue.resources(written.name, None)
    written.write(tmp_path / entry[0].filename)
    right = read_source(tmp_path / entry[0].filename)
    for kind in ("ted", "compact"):
        assert_equal(opened(written.name, tmp_path, config, kind).recorded(), right)


def numbered(*lengths: int) -> Arrays:
    """Steps of trajectories that are cut off, each step with numbers of its own."""
    steps = np.arange(sum(lengths))
    return {
        "actions": 10.0 * steps[:, None],
        "infos/name": np.array([f"step {step}".encode() for step in steps], object),
        "infos/tag": np.array([b"a", b"bc"])[steps % 2],
        "observations": steps[:, None].astype("<f2"),
        "rewards": (steps - 3)[:, None],
        "terminals": np.zeros(len(steps), np.uint8),
        "timeouts": np.isin(steps + 1, np.cumsum(lengths)).astype(">f4"),
    }


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("layout", ["ted", "compact"])
def test_text_whole_rewards_and_flags_of_any_dtype_come_back(
    layout: str, tmp_path: Path, config: Config
) -> None:
    arrays = numbered(3, 1, 4, 1)
    arrays["timeouts"][-1] = 0  # the file ends without a flag
    replay = installed(arrays, tmp_path, config, layout=layout)
    right = read_source(tmp_path / FILE)
    assert_equal(replay.recorded(), right)
    datasets_cli.export_dataset(replay.dataset_id, "d4rl", tmp_path / "out.hdf5")
    assert_equal(read_source(tmp_path / "out.hdf5"), right)
    datasets_cli.import_dataset(tmp_path / "out.hdf5", "mine/again")
    assert_equal(ExperienceReplay("mine/again").recorded(), right)


@pytest.mark.parametrize("flag", [True, False])
def test_the_last_flag_of_a_file_with_every_successor_is_the_files(
    flag: bool, tmp_path: Path, config: Config
) -> None:
    arrays = numbered(3, 4)
    arrays = {**arrays, "next_observations": arrays["observations"] + 1}
    arrays["timeouts"][-1] = flag
    replay = installed(dict(sorted(arrays.items())), tmp_path, config)
    assert len(replay) == 7 and bool(replay[:]["next", "truncated"][-1])
    assert_equal(replay.recorded(), read_source(tmp_path / FILE))


@pytest.mark.usefixtures("small_blocks")
def test_a_view_returns_its_trajectories_whole_and_in_its_order(
    tmp_path: Path, config: Config
) -> None:
    replay = installed(numbered(3, 1, 4, 12), tmp_path, config)
    assert len(replay.trajectories) == 3
    first, third, last = [0, 1, 2], [4, 5, 6, 7], [*range(8, 20)]
    views = {
        "repeated": (replay.episodes_at([1, 0, 0]), third + first + first),
        "longest": (replay.take(2, by="-length"), last + third),
        "cut": (replay.rows(1, 3), first + third),
        "twice": (replay.episodes_at([2, 0]).rows(10, 12), last + first),
        "none": (replay.episodes_at([]), []),
    }
    right = read_source(tmp_path / FILE)
    for name, (view, steps) in views.items():
        expected = {key: rows[np.array(steps, int)] for key, rows in right.items()}
        assert (name, view.recorded()["actions"][:, 0].tolist()) == (
            name,
            expected["actions"][:, 0].tolist(),
        )
        assert_equal(view.recorded(), expected)


@pytest.mark.usefixtures("small_blocks")
def test_a_copy_of_whole_trajectories_has_the_publishers_names_and_a_flag_at_each_end(
    tmp_path: Path, config: Config
) -> None:
    arrays = numbered(3, 1, 4, 12)
    arrays["timeouts"][-1] = 0  # the file ends without a flag
    view = installed(arrays, tmp_path, config).episodes_at([2, 0])
    view.preprocess(Pipeline(), dest=tmp_path / "copy", num_workers=0)
    right = view.recorded()
    right["timeouts"][11] = 1
    assert_equal(ExperienceReplay(tmp_path / "copy").recorded(), right)
    view.preprocess(Pipeline(), dest=tmp_path / "cut", num_frames=5, num_workers=0)
    assert "next_observation" in ExperienceReplay(tmp_path / "cut").recorded()


FAULTS: dict[str, Callable[[Arrays], Any]] = {
    "a bit": lambda a: a["rewards"].view("u1").__setitem__(0, a["rewards"].view("u1")[0] ^ 1),
    "a flag": lambda a: a["timeouts"].__setitem__(0, True),
    "the order": lambda a: a["actions"].__setitem__(slice(2), a["actions"][1::-1].copy()),
    "the dtype": lambda a: a.__setitem__("actions", a["actions"].astype("f8")),
    "the shape": lambda a: a.__setitem__("rewards", a["rewards"][:, None]),
    "a step": lambda a: a.__setitem__("rewards", a["rewards"][:-1]),
    "an array": lambda a: a.pop("timeouts"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_fails_the_comparison(fault: str, door: str) -> None:
    arrays = ExperienceReplay(door).recorded()
    right = {name: rows.copy() for name, rows in arrays.items()}
    assert_equal(arrays, right)
    FAULTS[fault](arrays)
    with pytest.raises(AssertionError):
        assert_equal(arrays, right)


def sequences(arrays: Arrays) -> list[tuple[int, float]]:
    """The length and the return of each episode of ``d4rl.sequence_dataset``, by a plain loop."""
    found, length, total = [], 0, 0.0
    for reward, *flags in zip(
        arrays["rewards"], arrays["terminals"], arrays["timeouts"], strict=True
    ):
        length, total = length + 1, total + float(reward)
        if any(flags):
            found.append((length, total))
            length, total = 0, 0.0
    return found


@pytest.mark.parametrize("cut", ["antmaze-umaze-v0", "door-human-v1"])
def test_the_sequences_of_d4rl_are_those_of_the_file(
    cut: str, tmp_path: Path, config: Config
) -> None:
    replay = opened(CUTS[cut].name, CUTS[cut].lay_out(tmp_path), config)
    found = sequences(replay.recorded())
    assert len(found) == 2 and found == sequences(columns(cut))


def test_other_datasets_return_the_columns_that_create_dataset_takes(config: Config) -> None:
    numbers = np.arange(8)
    steps = {
        "observation": numbers[:, None].astype("f4"),
        "action": numbers,
        "reward": 0.5 * numbers,
        "info.mission": np.array([f"go to {number}" for number in numbers], object),
    }
    for layout in ("ted", "compact"):
        datasets_cli.create_dataset(
            "mine/steps", steps, lengths=[3, 1, 4], layout=layout, force=True
        )
        found = ExperienceReplay("mine/steps").recorded()
        assert found["truncated"].nonzero()[0].tolist() == [2, 3, 7]
        assert_equal({name: found[name] for name in steps}, steps)
        assert found.keys() - steps.keys() == {"terminated", "truncated"}
    datasets_cli.create_dataset("mine/again", found)
    assert_equal(ExperienceReplay("mine/again").recorded(), found)


def test_the_demo_of_d4rl_returns_the_arrays_of_its_file(config: Config) -> None:
    for layout in ("ted", "compact"):
        replay = ExperienceReplay("demo/door-human", layout=layout, download="force")
        assert replay.manifest.layout == layout
        assert_equal(replay.recorded(), columns("door-human-v0"))


def test_the_demo_of_minari_returns_the_steps_of_its_file(config: Config) -> None:
    folder = DEMO_DATA / "minari" / "D4RL" / "door" / "human-v2" / "data"
    with h5py.File(folder / "main_data.hdf5") as file:
        episodes = [file[f"episode_{number}"] for number in range(3)]
        actions, rewards, truncations, observations = (
            [episode[name][()] for episode in episodes]
            for name in ("actions", "rewards", "truncations", "observations")
        )
    found = ExperienceReplay("demo/door-minari").recorded()
    right = {"action": actions, "reward": rewards, "truncated": truncations}
    right["observation"] = [each[:-1] for each in observations]
    right["next_observation"] = [each[1:] for each in observations]
    assert_equal(
        {name: found[name] for name in right},
        {name: np.concatenate(parts) for name, parts in right.items()},
    )


def test_a_derived_dataset_returns_its_rows_with_their_successors(
    hopper: str, tmp_path: Path
) -> None:
    replay = ExperienceReplay(hopper)
    replay.preprocess(lambda batch: batch, dest=tmp_path / "same", num_workers=0)
    found, right = ExperienceReplay(tmp_path / "same").recorded(), replay.recorded()
    pairs = {
        "next_observation": "next_observations",
        "reward": "rewards",
        "info.qpos": "infos/qpos",
    }
    assert_equal(
        {ours: found[ours] for ours in pairs}, {ours: right[pairs[ours]] for ours in pairs}
    )
    assert found["terminated"].nonzero()[0].tolist() == [469, 910]


def test_arrays_beyond_the_free_memory_are_refused_with_their_size(
    door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay = ExperienceReplay(door)
    size = sum(rows.nbytes for rows in replay.recorded().values())
    monkeypatch.setattr("datasets_cli.core.system_errors.free_memory", lambda: 2 * size - 1)
    monkeypatch.setattr("datasets_cli.core.system_errors.SMALL_BYTES", 0)
    with pytest.raises(WrongSize) as caught:
        replay.recorded()
    assert caught.value.found == size and f"{size:,} bytes" in str(caught.value)


def test_other_data_in_the_place_of_an_open_dataset_are_refused(
    tmp_path: Path, config: Config
) -> None:
    replay = installed(numbered(3, 4), tmp_path, config)
    folder = replay.data_path
    installed(numbered(3, 5), tmp_path, config)
    with refused(DamagedDataset, path=folder):
        replay.recorded()


@pytest.mark.parametrize(
    "change",
    [
        {"key": ("info", "speed")},
        {"dtype": "<c7"},
        {"dtype": "float32"},
        {"dtype": "|O"},
        {"shape": (10**9,)},
    ],
)
def test_a_manifest_whose_columns_cannot_be_restored_is_damage(
    change: dict[str, Any], tmp_path: Path, config: Config
) -> None:
    replay = installed(numbered(3, 4), tmp_path, config)
    manifest = read_manifest(replay.data_path)
    column = next(each for each in manifest.recorded if each.name == "observations")
    assert (column.key, column.dtype, column.shape) == (("observation",), "<f2", (1,))
    write_manifest(replay.data_path, replace(manifest, recorded=(replace(column, **change),)))
    with pytest.raises(DamagedDataset):
        read_manifest(replay.data_path)


def test_an_export_without_timeouts_is_a_loss(tmp_path: Path, config: Config) -> None:
    arrays = numbered(3, 4)
    del arrays["timeouts"]
    replay = installed(arrays, tmp_path, config)
    with refused(UsageError, argument="allow_loss"):
        datasets_cli.export_dataset(replay.dataset_id, "d4rl", tmp_path / "out.hdf5")
    datasets_cli.export_dataset(replay.dataset_id, "d4rl", tmp_path / "out.hdf5", allow_loss=True)
    assert_equal(read_source(tmp_path / "out.hdf5"), read_source(tmp_path / FILE))


def test_an_export_of_a_trajectory_that_is_cut_loses_its_last_successor(
    tmp_path: Path, config: Config
) -> None:
    replay = installed(numbered(3, 4, 5), tmp_path, config)
    for num_frames, num_lost in ((None, 0), (4, 1), (5, 0)):
        made = datasets_cli.preprocess(
            replay.dataset_id, Pipeline(), f"part{num_frames}", num_frames=num_frames, num_workers=0
        )
        lost = datasets_cli.export_dataset(made.id, "d4rl", "out", dry_run=True).losses
        assert len([each for each in lost if each.startswith("next.observation")]) == num_lost


@pytest.mark.parametrize("format", ["npz", "d4rl", "minari", "torchrl", "parquet"])
def test_final_steps_are_a_loss_of_every_format_but_d4rls(format: str, door: str) -> None:
    lost = datasets_cli.export_dataset(door, format, "out", dry_run=True).losses
    named = [each for each in lost if each.startswith("final steps: 5 recorded steps")]
    assert len(named) == (format != "d4rl")
