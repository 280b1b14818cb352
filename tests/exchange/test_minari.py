"""Minari's folders: written for Minari's own reader, and read from it, value by value."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import h5py
import minari
import numpy as np
import pytest
from minari import MinariDataset

import datasets_cli
from datasets_cli import (
    compare_datasets,
    create_dataset,
    export_dataset,
    import_dataset,
    plan_import,
)
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import RldsError, SourceError, UsageError, WrongRows
from datasets_cli.store.manifest import read_manifest
from tests.exchange.made_steps import Columns, leaf_files, made_steps
from tests.support import minari_files

LENGTHS = [3, 1, 4, 2]


def export_made(config: Config, folder: Path, steps: Columns, **options: Any) -> Path:
    create_dataset("mine/made", steps, lengths=LENGTHS, config=config, force=True, **options)
    export_dataset("mine/made", "minari", folder, config=config, force=True)
    return folder / "data"


def _rewrite(file: h5py.File, path: str, rows: np.ndarray) -> None:
    del file[path]
    file[path] = rows


@pytest.mark.parametrize("row", [2, 6])
def test_a_successor_that_is_not_the_next_row_is_refused(
    config: Config, tmp_path: Path, row: int
) -> None:
    steps = made_steps([9, 3])
    steps["observation", "state"][[row, 8], 1] += 1
    create_dataset("mine/jumps", steps, lengths=[9, 3], config=config)
    with pytest.raises(WrongRows) as raised:
        export_dataset("mine/jumps", "minari", tmp_path / "out", config=config)
    assert (raised.value.key, raised.value.row) == (("observation", "state"), row)
    assert not list(tmp_path.glob("*out*"))


def test_spaces_and_what_is_said_stay(config: Config, tmp_path: Path) -> None:
    datasets_cli.download("demo/door-minari", config=config)
    export_dataset(
        "demo/door-minari", "minari", tmp_path / "D4RL" / "door-v1" / "data", config=config
    )
    assert plan_import(tmp_path / "D4RL" / "door-v1", "mine/door").format == "minari"
    found = MinariDataset(tmp_path / "D4RL" / "door-v1" / "data")
    assert found.spec.env_spec.id == "AdroitHandDoor-v1"
    assert found.action_space.low.tolist() == [-1] * 28
    assert found.storage.metadata["author"] == {"Rodrigo de Lazcano"}


def test_columns_beside_minaris_are_infos_and_come_back(config: Config, tmp_path: Path) -> None:
    text = {("split",): np.array(["träin"] * 4 + ["val"] * 6, object)}
    steps = made_steps(LENGTHS) | text | {("to", "go"): np.arange(10.0)}
    (episode, *_) = MinariDataset(export_made(config, tmp_path / "out", steps))
    assert [each.decode() for each in episode.infos["split"]] == ["träin"] * 3
    assert episode.infos["to"]["go"].tolist() == [0, 1, 2]
    import_dataset(tmp_path / "out", "mine/back", config=config)
    found = compare_datasets("mine/made", "mine/back", config=config)
    assert (found.only, found.trajectory) == (((), ()), None)
    assert "rlds_columns" not in read_manifest(config.root / "datasets/mine/back").metadata
    with pytest.raises(UsageError, match="split: an info has its name"):
        export_made(config, tmp_path / "no", steps | {("info", "split"): np.arange(10)})


@pytest.mark.parametrize("place", ["mine/made-v3", "mine/made-v3/data"])
def test_a_folder_below_minaris_root_is_a_dataset_of_minari(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "theirs"))
    create_dataset("mine/made", made_steps(LENGTHS), lengths=LENGTHS, config=config)
    made = export_dataset("mine/made", "minari", tmp_path / "theirs" / place, config=config)
    assert made.opened_by == "minari.load_dataset('mine/made-v3')"
    found = minari.load_dataset("mine/made-v3")
    assert (found.id, found.storage.metadata["dataset_size"]) == (
        "mine/made-v3",
        found.storage.get_size(),
    )
    assert list(minari.list_local_datasets()) == ["mine/made-v3"]
    assert (found.total_steps, found.total_episodes) == (sum(LENGTHS), len(LENGTHS))
    with pytest.raises(UsageError):  # an id has a version
        export_dataset("mine/made", "minari", tmp_path / "theirs" / "made", config=config)


def test_the_size_has_the_metadata_and_the_last_line_opens_the_files(
    config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = {
        ("observation",): np.zeros((4, 30_000), "f4"),
        ("next", "observation"): np.zeros((4, 30_000), "f4"),
        ("action",): np.zeros((4, 1)),
        ("next", "reward"): np.zeros(4),
        ("next", "terminated"): np.zeros(4, bool),
    }  # its space has 60,000 bounds
    create_dataset("mine/wide-v0", steps, lengths=[4], config=config)
    out = tmp_path / "wide"
    assert main(["export", "mine/wide-v0", "--to", "minari", "--out", str(out)]) == 0
    found = eval(capsys.readouterr().out.splitlines()[-1].partition("with ")[2])
    assert isinstance(found, MinariDataset) and found.id == "mine/wide-v0"
    assert found.storage.metadata["dataset_size"] == found.storage.get_size() > 0.6


@pytest.mark.parametrize("form", ["hdf5", "arrow"])
def test_a_dataset_of_minaris_writer_is_imported(
    config: Config, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr(minari_files, "DATA_FORMAT", form)
    spaces = minari_files.box(3), minari_files.box(2)
    folder = minari_files.build(*spaces, infos=lambda n: {"x": np.ones((n + 1, 2))})
    import_dataset(folder, "mine/theirs", layout="ted", config=config)
    episodes = list(MinariDataset(folder))
    found = leaf_files("mine/theirs", config)
    np.testing.assert_array_equal(
        found["next", "observation"], np.concatenate([e.observations[1:] for e in episodes])
    )
    np.testing.assert_array_equal(
        found["next", "info", "x"], np.concatenate([e.infos["x"][1:] for e in episodes])
    )


def _truncate(folder: Path) -> None:
    data = (folder / "main_data.hdf5").read_bytes()
    (folder / "main_data.hdf5").write_bytes(data[: len(data) // 2])


def _ragged(folder: Path) -> None:
    with h5py.File(folder / "main_data.hdf5", "a") as file:
        _rewrite(file, "episode_0/actions/pick", np.zeros(9, int))


WRONG = {
    "truncated": (_truncate, SourceError),
    "ragged": (_ragged, SourceError),
    "empty": (lambda folder: (folder / "main_data.hdf5").write_bytes(b""), SourceError),
    "no JSON": (lambda folder: (folder / "metadata.json").write_text("{"), SourceError),
    "a list": (lambda folder: (folder / "metadata.json").write_text("[]"), SourceError),
    "no data": (lambda folder: (folder / "main_data.hdf5").unlink(), UsageError),
    "a folder": (lambda folder: shutil.rmtree(folder) or folder.mkdir(), UsageError),
    "no episode": (lambda folder: h5py.File(folder / "main_data.hdf5", "w").close(), SourceError),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_files_make_nothing(config: Config, tmp_path: Path, wrong: str) -> None:
    folder = export_made(config, tmp_path / "made", made_steps(LENGTHS))
    change, error = WRONG[wrong]
    change(folder)
    with pytest.raises(error) as caught:
        import_dataset(folder, "mine/wrong", config=config)
    assert isinstance(caught.value, RldsError)
    assert not (config.root / "datasets" / "mine" / "wrong").exists()
    assert not list((config.root / "tmp").glob("*"))


def test_ends_that_are_named_are_refused(config: Config, tmp_path: Path) -> None:
    folder = export_made(config, tmp_path / "made", made_steps(LENGTHS))
    with pytest.raises(UsageError) as raised:
        import_dataset(folder, "mine/x", map={"ends": "next.truncated"}, config=config)
    assert (raised.value.argument, raised.value.key) == ("map", "ends")
    import_dataset(folder, "mine/x", map={"info.fast": "info.speed"}, layout="ted", config=config)
    assert ("info", "fast") in leaf_files("mine/x", config)


def test_text_with_a_zero_character_is_refused(config: Config, tmp_path: Path) -> None:
    steps = made_steps(LENGTHS)
    steps["info", "task"][4] = "a\0b"
    with pytest.raises(WrongRows) as raised:
        export_made(config, tmp_path / "made", steps)
    assert raised.value.key == ("info", "task")
    assert not list(tmp_path.glob("*made*"))


def test_frames_are_kept_and_said_to_be_no_jpeg(config: Config, tmp_path: Path) -> None:
    datasets_cli.download("demo/pong", config=config)
    export_dataset("demo/pong", "minari", tmp_path / "pong", config=config, allow_loss=True)
    said = json.loads((tmp_path / "pong" / "data" / "metadata.json").read_text())
    assert (said["jpeg_encoding"], said["data_format"]) == (False, "hdf5")
    assert said["minari_version"] in minari.supported_dataset_versions
