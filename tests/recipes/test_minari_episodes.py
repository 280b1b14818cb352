"""Minari's text and irregular episodes: every value of the source, and what is noted."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from gymnasium import spaces

import datasets_cli
from datasets_cli import D4RLExperienceReplay, ExperienceReplay, MinariExperienceReplay
from datasets_cli.config import Config
from datasets_cli.errors import DamagedDataset, SourceError
from datasets_cli.store.check import check_digests
from datasets_cli.store.dataset import Dataset
from datasets_cli.store.manifest import read_manifest
from tests.recipes.conftest import Install
from tests.support import minari_files as files
from tests.support.minari_values import by_h5py, texts_by_h5py
from tests.support.refusals import refused

ID = f"minari/{files.NAME}"
MISSION = ("observation", "mission")


def texts_of(dataset: Dataset) -> dict[Any, Any]:
    texts = dataset.texts
    return {key: texts.column(key) for key in texts.keys} if texts else {}


@pytest.mark.parametrize("build", files.TEXTS)
def test_every_text_is_the_files(build: Any, install: Install) -> None:
    folder = build()
    right = texts_by_h5py(folder)
    assert right
    dataset = install(folder)
    assert texts_of(dataset) == right
    check_digests(dataset.folder, dataset.manifest)


@pytest.mark.parametrize("rows", [1, 3])
def test_small_blocks_give_the_same_bytes(
    rows: int, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = files.changing_texts()
    right = dict(install(folder).manifest.files)
    monkeypatch.setattr("datasets_cli.schema.columns.BLOCK_ROWS", rows)
    dataset = install_again(install, folder)
    assert dict(dataset.manifest.files) == right


def install_again(install: Install, folder: Path) -> Any:
    datasets_cli.delete(ID)
    return install(folder)


def test_the_note_says_how_to_ask_for_it(install: Install) -> None:
    dataset = install(files.changing_texts())
    notes = dataset.manifest.metadata["notes"]
    (note,) = [note for note in notes if "text=True" in note]
    for name in ("action.say", "info.inner.heard", "info.told", "observation.hint"):
        assert name in note
    assert dataset.manifest.recipe["version"] == 2


def test_text_that_is_not_utf8_is_noted(install: Install) -> None:
    notes = install(files.texts_of_fixed_length()).manifest.metadata["notes"]
    assert "1 distinct texts are not UTF-8; their bytes become surrogate escapes" in notes


def test_damaged_text_is_not_carried_into_another_layout(install: Install, config: Config) -> None:
    folder = install(files.missions()).folder
    data = bytearray((folder / "text.utf8").read_bytes())
    data[0] ^= 1
    (folder / "text.utf8").write_bytes(data)
    with refused(DamagedDataset, id="minari/test/built-v0"):
        datasets_cli.convert(ID, "compact", config=config)
    assert read_manifest(folder).layout == "ted"


def test_the_identity_knows_the_text(install: Install) -> None:
    with_text = install(files.text_in_dict()).manifest
    assert [text.key for text in with_text.texts] == [("next", *MISSION), MISSION]
    stripped = dataclasses.replace(with_text, texts=())
    assert stripped.computed_content() != with_text.content == with_text.computed_content()


def test_replay_has_missions_where_asked(install: Install) -> None:
    folder = files.missions()
    install(folder, layout="compact")
    missions = texts_by_h5py(folder)[MISSION]
    for kind, name in ((ExperienceReplay, ID), (MinariExperienceReplay, files.NAME)):
        replay = kind(name, batch_size=8, download=False, text=True, seed=0)
        batch = replay.sample()
        assert batch[MISSION] == [missions[row] for row in batch["index"]]
        assert replay[MISSION] == missions
        plain = kind(name, batch_size=8, download=False)
        assert "mission" not in plain.sample()["observation"].keys()  # noqa: SIM118
    slices = ExperienceReplay(ID, 6, download=False, text=True, slice_len=3)
    batch = slices.sample()
    assert batch[MISSION] == [missions[row] for row in batch["index"]]
    opened = datasets_cli.open_dataset(ID, text=True)
    assert opened.get(opened.offsets[:-1])[MISSION] == list(dict.fromkeys(missions))


def test_a_dataset_without_text_may_be_asked_for_it(door: str) -> None:
    replay = D4RLExperienceReplay("door-human-v0", 4, download=False, text=True)
    plain = ExperienceReplay(door, 4, download=False).sample()
    assert {*replay.sample().keys()} == {*plain.keys(), "reward"}


def test_info_lists_the_text(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    from datasets_cli.cli.main import main

    install(files.missions())
    assert main(["info", ID]) == 0
    assert [
        line.split()[1:]
        for line in capsys.readouterr().out.splitlines()
        if line.split()[:1] == ["observation.mission"]
    ] == [["text", "[]"]]


@pytest.mark.parametrize(
    ("observation", "action", "root"),
    [
        (spaces.Text(5), files.box(1), "observation"),
        (files.box(1), spaces.Text(5), "action"),
    ],
)
def test_text_alone_is_no_observation_or_action(
    observation: Any, action: Any, root: str, install: Install
) -> None:
    with pytest.raises(SourceError) as caught:
        install(files.build(observation, action))
    assert caught.value.key == root


def test_numbers_of_variable_length_are_left_out_and_named(install: Install) -> None:
    def edit(file: h5py.File) -> None:
        for name in file:
            steps = file[name]["rewards"].size
            ragged = file[name].create_dataset("infos/r", (steps,), h5py.vlen_dtype(np.float32))
            ragged[0] = np.ones(3)

    dataset = install(files.change(files.text_in_dict(), edit))
    assert not [key for key in dataset.keys if key[0] == "info"]
    assert "left out, of variable length: info.r" in dataset.manifest.metadata["notes"]


@pytest.mark.parametrize("second", [{}, {"told": [1.0] * 4}, {"told": ["a"] * 3}])
def test_text_that_not_every_episode_has_is_left_out(
    second: dict[str, Any], install: Install
) -> None:
    rng = np.random.default_rng(0)
    space = files.box(2)
    infos: list[dict[str, Any]] = [{"told": ["a", "b", "c", "d"]}, second]
    buffers = [files.episode(3, space, space, rng, infos=info) for info in infos]
    dataset = install(files.write(space, space, buffers))
    assert dataset.manifest.texts == ()
    (note,) = dataset.manifest.metadata["notes"]
    assert "not the same in every episode: info.told" in note


BIG = 2**53 + 1
"""The first integer that no float64 holds."""


def with_infos(*infos: dict[str, Any]) -> Path:
    """Write an episode of three steps for each of these infos."""
    rng = np.random.default_rng(0)
    space = files.box(2)
    buffers = [files.episode(3, space, space, rng, infos=info) for info in infos]
    return files.write(space, space, buffers)


def notes_of(dataset: Dataset) -> list[str]:
    return dataset.manifest.metadata["notes"]


# Infos of several types


@pytest.mark.parametrize(
    ("first", "second", "dtype"),
    [
        ([1, 2, 3, 4], [0.5, 1.5, 2.5, 3.5], np.float64),
        ([0.5, 1.5, 2.5, 3.5], [1, -2, 3, 2**53], np.float64),
        ([0.5, 1.5, 2.5, 3.5], [1, -2, 3, 2**60], np.float64),
        (np.arange(4, dtype=np.int32), np.arange(4, dtype=np.float32) / 2, np.float64),
        (np.arange(4, dtype=np.int16), np.arange(4, dtype=np.float32) / 2, np.float32),
        (np.arange(4, dtype=np.float32) / 2, np.arange(4) / 3, np.float64),
        ([True, False, True, False], [3, 4, 5, BIG], np.int64),
        ([0.25, 0.5, 1.0, 2.0], [True, False, True, False], np.float64),
    ],
)
def test_an_info_of_two_types_is_widened_where_every_value_is_kept(
    first: Any, second: Any, dtype: Any, install: Install
) -> None:
    dataset = install(with_infos({"x": first}, {"x": second}, {"x": first}))
    values = [*first, *second, *first]
    found = dataset.columns(())["info", "x"].numpy()
    after = dataset.columns(())["next", "info", "x"].numpy()
    assert found.dtype == after.dtype == dtype
    # Python compares an int with a float by their values, without rounding.
    assert found.tolist() == [values[row] for row in (0, 1, 2, 4, 5, 6, 8, 9, 10)]
    assert after.tolist() == [values[row] for row in (1, 2, 3, 5, 6, 7, 9, 10, 11)]
    (note,) = notes_of(dataset)
    assert "widened, because dtypes differ between episodes: info.x (" in note
    assert f"to {np.dtype(dtype)})" in note


@pytest.mark.parametrize("order", [1, -1])
def test_an_integer_that_no_float_holds_is_not_rounded(order: int, install: Install) -> None:
    infos = [{"x": [1, 2, BIG, 4], "kept": [1] * 4}, {"x": [0.5] * 4, "kept": [2] * 4}]
    dataset = install(with_infos(*infos[::order]))
    assert [key for key in dataset.keys if key[0] == "info"] == [("info", "kept")]
    (note,) = notes_of(dataset)
    assert "integers in some episodes, which float64 does not hold exactly: info.x" in note


def test_an_info_named_like_a_part_of_tensordict_is_kept(install: Install) -> None:
    dataset = install(with_infos({"device": [1.0] * 4}, {"device": [2.0] * 4}))
    assert dataset.columns(())["info", "device"].tolist() == [1.0] * 3 + [2.0] * 3
    assert notes_of(dataset) == []


# Episodes without their last observation: Farama-Foundation/Minari#199


def without_last_observation(*episodes: str) -> Callable[[h5py.File], None]:
    def edit(file: h5py.File) -> None:
        for name in episodes:
            observations = file[name]["observations"]
            arrays = [observations] if isinstance(observations, h5py.Dataset) else []
            for array in arrays or observations.values():
                array.resize(len(array) - 1, axis=0)

    return edit


def cut_off(lengths: tuple[int, ...] = (3, 4, 2)) -> Path:
    """Write episodes that end by a time limit."""
    rng = np.random.default_rng(1)
    buffers = [
        files.episode(
            length,
            files.box(2),
            files.box(1),
            rng,
            terminations=[False] * length,
            truncations=[False] * (length - 1) + [True],
            infos={"t": list(np.arange(length + 1.0))},
        )
        for length in lengths
    ]
    return files.write(files.box(2), files.box(1), buffers)


@pytest.mark.parametrize(
    ("name", "infos_too", "layout"),
    [("episode_0", False, "compact"), ("episode_1", False, "ted"), ("episode_1", True, "compact")],
)
def test_a_last_step_without_an_observation_after_it_is_dropped(
    name: str, infos_too: bool, layout: str, install: Install
) -> None:
    folder = files.change(cut_off(), without_last_observation(name))
    if infos_too:
        files.change(folder, lambda file: file[name]["infos/t"].resize(int(name[-1]) + 3, axis=0))
    dataset = install(folder, layout=layout)
    rows = dataset.columns(())
    expected: dict[str, list[np.ndarray]] = {"now": [], "after": [], "action": [], "t": []}
    lengths = []
    for number, episode in enumerate(by_h5py(folder)):
        steps = len(episode["rewards",]) - (f"episode_{number}" == name)
        lengths.append(steps)
        expected["now"].append(episode["observations",][:steps])
        expected["after"].append(episode["observations",][1 : steps + 1])
        expected["action"].append(episode["actions",][:steps])
        expected["t"].append(np.arange(1.0, steps + 1))
    assert np.diff(dataset.offsets).tolist() == lengths
    ends = np.cumsum(lengths) - 1
    assert np.flatnonzero(rows["next", "truncated"].numpy()).tolist() == ends.tolist()
    for key, part in (
        (("observation",), "now"),
        (("next", "observation"), "after"),
        (("action",), "action"),
        (("next", "info", "t"), "t"),
    ):
        assert np.array_equal(rows[key].numpy(), np.concatenate(expected[part])), key
    (note,) = notes_of(dataset)
    assert f"1 episodes have no observation after their last step ({name}); 1 were cut off" in note


def test_a_terminated_step_without_an_observation_after_it_stays(
    install: Install,
) -> None:
    folder = files.change(
        files.build(files.box(2), files.box(1)), without_last_observation("episode_0", "episode_2")
    )
    dataset = install(folder, layout="compact")
    rows = dataset.columns(())
    assert np.diff(dataset.offsets).tolist() == [3, 1, 5]
    after = rows["next", "observation"]
    assert after[2].tolist() == after[8].tolist() == [0, 0]
    assert after[3].all()
    assert np.flatnonzero(rows["next", "terminated"].numpy()).tolist() == [2, 3, 8]
    (note,) = notes_of(dataset)
    assert "2 ended there by themselves: the successor is zeros" in note


def test_the_audit_names_the_last_row_of_each_episode_that_is_short(
    install: Install, config: Config
) -> None:
    install(files.change(cut_off((3, 4, 2)), without_last_observation("episode_0", "episode_2")))
    [audited] = datasets_cli.audit_datasets(ID, config=config)
    [finding] = [each for each in audited.findings if each.rule == "no-last-observation"]
    assert (finding.severity, finding.rows) == ("wrong", (1, 6))  # two, four and one rows
    assert finding.measure == "2 of 3 episodes"


def test_an_episode_that_had_no_other_step_is_named(install: Install) -> None:
    folder = files.change(cut_off((2, 1, 3)), without_last_observation("episode_1"))
    dataset = install(folder)
    assert np.diff(dataset.offsets).tolist() == [2, 3]
    (note,) = notes_of(dataset)
    assert "that step is dropped (1 had no other step)" in note


def test_a_dataset_of_nothing_but_such_steps_has_no_transition(install: Install) -> None:
    folder = files.change(cut_off((1, 1)), without_last_observation("episode_0", "episode_1"))
    with refused(SourceError, id="minari/test/built-v0"):
        install(folder)


def test_one_leaf_that_is_short_makes_the_episode_short(install: Install) -> None:
    space = files.spaces.Dict({"a": files.box(2), "b": files.box(3)})

    def edit(file: h5py.File) -> None:
        file["episode_0/observations/a"].resize(3, axis=0)

    dataset = install(files.change(files.build(space, files.box(1)), edit))
    after = dataset.columns(())
    assert after["next", "observation", "a"][2].tolist() == [0, 0]
    assert after["next", "observation", "b"][2].all()  # what is recorded is kept


# Flags inside an episode


@pytest.mark.parametrize("flag", ["terminations", "truncations"])
def test_a_flag_inside_an_episode_is_kept_and_noted(flag: str, install: Install) -> None:
    def edit(file: h5py.File) -> None:
        file["episode_0"][flag][0] = True
        file["episode_2"][flag][1:3] = True

    dataset = install(files.change(files.build(files.box(2), files.box(1)), edit))
    rows = dataset.columns(())
    key = ("next", flag.replace("ions", "ed"))
    assert set(np.flatnonzero(rows[key].numpy()).tolist()) >= {0, 5, 6}
    assert len(dataset) == 9
    assert np.diff(dataset.offsets).tolist() == [1, 2, 1, 2, 1, 2]
    (note,) = notes_of(dataset)
    assert f"3 {flag} inside 2 episodes, before their last step" in note
    assert "several trajectories" in note
