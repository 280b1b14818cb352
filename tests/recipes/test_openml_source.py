"""OpenML's files under ``--source``: they must be those of the dataset that the name means."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from datasets_cli.config import Config
from datasets_cli.errors import IntegrityError, SourceError, UsageError
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.store.manifest import read_manifest
from tests.conftest import DEMO
from tests.support.origin import Origin
from tests.support.refusals import refused

IRIS = DEMO / "openml"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The three files of iris under their own names."""
    folder = tmp_path / "iris"
    folder.mkdir()
    api = IRIS / "api" / "v1" / "json" / "data"
    for name, path in {
        "description.json": api / "61",
        "features.json": api / "features" / "61",
        "dataset.arff": IRIS / "data" / "v1" / "download" / "61" / "iris.arff",
    }.items():
        (folder / name).write_bytes(path.read_bytes())
    return folder


def edit(path: Path, change: Any) -> None:
    document = json.loads(path.read_bytes())
    change(document)
    path.write_text(json.dumps(document))


@pytest.mark.parametrize("name", ["61", "iris", "iris@1"])
@pytest.mark.parametrize("kind", ["folder", "url"])
def test_the_right_files_are_taken_and_their_md5_is_compared(
    name: str, kind: str, source: Path, config: Config
) -> None:
    with Origin() as origin:
        for path in source.iterdir():
            origin.put(path.name, path.read_bytes())
        place = str(source) if kind == "folder" else origin.url
        manifest = read_manifest(
            install_dataset(f"openml/{name}", config, InstallOptions(source=place)).path
        )
    assert (manifest.id, manifest.num_transitions) == (f"openml/{name}", 150)
    assert manifest.resources[2]["checked"] == "md5"


def test_a_file_cut_off_is_refused_with_both_sums_unless_anything_is_taken(
    source: Path, config: Config
) -> None:
    arff = source / "dataset.arff"
    stated = hashlib.md5(arff.read_bytes()).hexdigest()
    arff.write_bytes(arff.read_bytes().rpartition(b"5.9,3.0")[0])
    found = hashlib.md5(arff.read_bytes()).hexdigest()
    with pytest.raises(IntegrityError) as caught:
        install_dataset("openml/61", config, InstallOptions(source=str(source)))
    assert (caught.value.expected, caught.value.found) == (f"md5 {stated}", found)
    assert caught.value.exit_code == 4
    taken = install_dataset(
        "openml/61", config, InstallOptions(source=str(source), accept_any=True)
    ).path
    (checked,) = read_manifest(taken).unverified
    assert stated in checked and found in checked


@pytest.mark.parametrize(
    ("name", "key", "expected", "found"),
    [
        ("2000", "id", "2000", "61"),
        ("adult", "id", "1590", "61"),
        ("adult@1", "name", "adult", "iris"),
        ("iris@2", "version", "2", "1"),
        ("foo", "name", "foo", "iris"),
    ],
)
def test_the_files_of_another_dataset_are_refused(
    name: str, key: str, expected: str, found: str, source: Path, config: Config
) -> None:
    with refused(SourceError, key=key, expected=expected, found=found):
        install_dataset(f"openml/{name}", config, InstallOptions(source=str(source)))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda columns: columns[4].update(index="7"), 5),
        (lambda columns: columns[4].update(index="3"), 5),
        (lambda columns: columns[4].update(index=None), None),
        (lambda columns: columns[4].pop("name"), None),
        (lambda columns: columns.insert(0, "a"), None),
        (lambda columns: columns[2].update(name="x"), "x"),
    ],
)
def test_features_that_are_not_those_of_the_file_are_refused(
    change: Any, expected: object, source: Path, config: Config
) -> None:
    edit(source / "features.json", lambda said: change(said["data_features"]["feature"]))
    with refused(SourceError, path="features.json", expected=expected):
        install_dataset("openml/61", config, InstallOptions(source=str(source)))


def test_a_folder_that_lacks_a_file_is_refused_by_its_name(source: Path, config: Config) -> None:
    for name in ("dataset.arff", "description.json"):
        (source / name).unlink()
        with refused(UsageError, argument="source"):
            install_dataset("openml/61", config, InstallOptions(source=str(source)))
