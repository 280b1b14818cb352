"""Minari's text: every value of the source, in both layouts, through convert and batches."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from gymnasium import spaces

import datasets_cli
from datasets_cli import (
    D4RLExperienceReplay,
    ExperienceReplay,
    MinariExperienceReplay,
)
from datasets_cli.config import Config
from datasets_cli.errors import DamagedDataset, SourceError
from datasets_cli.store.check import check_digests
from datasets_cli.store.dataset import Dataset
from datasets_cli.store.manifest import read_manifest
from tests.recipes.conftest import Install
from tests.support import minari_files as files
from tests.support.minari_values import texts_by_h5py
from tests.support.refusals import refused

ID = f"minari/{files.NAME}"
MISSION = ("observation", "mission")

both_layouts = pytest.mark.parametrize("layout", ["ted", "compact"])


def texts_of(dataset: Dataset) -> dict[Any, Any]:
    texts = dataset.texts
    return {key: texts.column(key) for key in texts.keys} if texts else {}


@both_layouts
@pytest.mark.parametrize("build", files.TEXTS)
def test_every_text_is_the_files(build: Any, layout: str, install: Install) -> None:
    folder = build()
    right = texts_by_h5py(folder)
    assert right
    dataset = install(folder, layout=layout)
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


@both_layouts
def test_replay_has_missions_where_asked(layout: str, install: Install) -> None:
    folder = files.missions()
    install(folder, layout=layout)
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
