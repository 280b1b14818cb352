"""NeoRL-2: the published md5, the flags, the loader's cut; test_conformance.py has all values."""

from __future__ import annotations

import hashlib
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from datasets_cli import ExperienceReplay
from datasets_cli.config import Config
from datasets_cli.errors import SourceError, UnknownDataset, UsageError
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.recipes.neorl2 import catalogue
from datasets_cli.store.dataset import Dataset, open_dataset
from tests.support.paths import TEST_DATA

FOLDER = TEST_DATA / "neorl2"
Arrays = dict[str, np.ndarray]


def load(path: Path) -> Arrays:
    with np.load(path) as file:
        return dict(file)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with RocketRecovery's val file, and the same rows in reverse order as train."""
    folder = tmp_path / "source"
    folder.mkdir()
    shutil.copy(FOLDER / "RocketRecovery-val.npz", folder)
    rows = load(FOLDER / "RocketRecovery-val.npz")
    starts = [0, *np.flatnonzero(rows["done"] + rows["truncated"]) + 1]
    order = np.concatenate([np.arange(*pair) for pair in [*pairwise(starts)][::-1]])
    save(folder, {name: values[order] for name, values in rows.items()})
    return folder


def save(folder: Path, rows: Arrays) -> Path:
    np.savez_compressed(path := folder / "RocketRecovery-train.npz", **rows)
    return path


def install(source: Path, config: Config, variant: str = "", **options: str) -> Dataset:
    wish = InstallOptions(source=str(source), accept_any=True, layout="ted", options=options)
    folder = install_dataset(f"neorl2/RocketRecovery{variant}", config, wish).path
    return open_dataset(folder, text=True)


@pytest.mark.parametrize("task", ["DMSD", "RocketRecovery", "Simglucose"])
def test_the_catalogue_states_the_md5_and_size_of_published_files(task: str) -> None:
    (val,) = (each for each in catalogue.resources(task, None) if "-val." in each.filename)
    data = (FOLDER / val.filename).read_bytes()
    assert val.checksums == {"md5": hashlib.md5(data).hexdigest()}
    assert val.size == len(data)


def loaders_cut(rows: Arrays, traj_num: int) -> Arrays:
    """neorl2's rule: the rows up to the end of trajectory number ``traj_num``."""
    index = np.where(np.logical_or(rows["done"], rows["truncated"]))[0] + 1
    return {name: values[: index[:traj_num][-1]] for name, values in rows.items()}


@pytest.mark.parametrize("most", [100, 1000])
def test_the_official_cut_is_that_of_the_loader(
    most: int, source: Path, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalogue._table()
    row = table["RocketRecovery"] | {"official": str(most)}
    monkeypatch.setattr(catalogue, "_table", lambda: {**table, "RocketRecovery": row})
    dataset = install(source, config, cut="official")
    parts = [
        loaders_cut(load(source / f"RocketRecovery-{split}.npz"), number)
        for split, number in (("train", most), ("val", most // 4))
    ]
    columns = dataset.columns(())
    for name, key in (("obs", ("observation",)), ("next_obs", ("next", "observation"))):
        assert columns[key].numpy().tobytes() == b"".join(part[name].tobytes() for part in parts)
    lengths = [len(part["obs"]) for part in parts]
    flags = np.concatenate([part["done"] + part["truncated"] for part in parts])
    assert dataset.offsets.tolist() == [0, *np.flatnonzero(flags) + 1]
    assert dataset.texts.column(("split",)) == ["train"] * lengths[0] + ["val"] * lengths[1]
    assert dataset.manifest.id == "neorl2/RocketRecovery~official"
    assert "known_traps" not in dataset.manifest.metadata, "only of the whole"


def test_flags_are_bool_and_recorded_as_the_file_has_them(source: Path, config: Config) -> None:
    install(source, config)
    replay = ExperienceReplay("neorl2/RocketRecovery", root=config.root)
    rows = [load(source / f"RocketRecovery-{split}.npz") for split in ("train", "val")]
    recorded = replay.recorded()
    assert {*rows[0]} <= {*recorded}
    for name in rows[0]:
        whole = np.concatenate([part[name] for part in rows])
        found = recorded[name]
        assert (found.dtype, found.tobytes()) == (whole.dtype, whole.tobytes())


def test_the_end_of_a_file_ends_its_trajectory(source: Path, config: Config) -> None:
    rows = load(source / "RocketRecovery-train.npz")
    save(source, {name: values[:100] for name, values in rows.items()})
    dataset = install(source, config)
    assert 100 in dataset.offsets.tolist()
    assert not dataset.columns(())["next", "terminated"][99]


@pytest.mark.parametrize("variant", ["", "~official"])
@pytest.mark.parametrize("value", [0.5, np.nan, 2])
@pytest.mark.parametrize("name", ["done", "truncated"])
def test_a_flag_is_0_or_1(
    name: str, value: float, variant: str, source: Path, config: Config
) -> None:
    rows = load(source / "RocketRecovery-train.npz")
    rows[name][70] = value
    path = save(source, rows)
    with pytest.raises(SourceError) as caught:
        install(source, config, variant)
    error = caught.value
    assert (error.path, error.key, error.row) == (path, name, 70)


def test_an_official_cut_needs_a_trajectory_that_ends(source: Path, config: Config) -> None:
    rows = load(source / "RocketRecovery-train.npz")
    path = save(source, {**rows, "done": rows["truncated"]})
    with pytest.raises(SourceError) as caught:
        install(source, config, "~official")
    assert (caught.value.path, caught.value.key) == (path, "done")


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("Fusion", {"cut": "official"}, "Fusion~official"),
        ("Fusion~official", {"cut": "official"}, "Fusion~official"),
        ("Fusion~official", {}, "Fusion~official"),
        ("Fusion", {}, "Fusion"),
        ("DMSD", {"cut": "official"}, "DMSD"),  # neorl2 loads all of it
    ],
)
def test_the_option_cut_names_a_variant(name: str, options: dict[str, str], expected: str) -> None:
    assert catalogue.variant(name, options) == expected


def test_a_wrong_cut_is_rejected() -> None:
    with pytest.raises(UsageError) as caught:
        catalogue.variant("Fusion", {"cut": "some"})
    assert (caught.value.argument, caught.value.found) == ("cut", "some")


def test_a_task_that_is_not_cut_has_no_official_variant(source: Path, config: Config) -> None:
    with pytest.raises(UnknownDataset):
        install_dataset("neorl2/DMSD~official", config, InstallOptions(source=str(source)))
