"""Roots, ids and files of long, odd and short names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import datasets_cli
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.core.progress import silent
from datasets_cli.errors import IntegrityError, NotWritable, UnknownDataset, UsageError
from datasets_cli.experience.replay import ExperienceReplay
from datasets_cli.sources.download import fetch
from datasets_cli.sources.http import Http
from datasets_cli.sources.resource import Resource
from tests.support.listing import listing
from tests.support.origin import Fault, Origin
from tests.support.refusals import refused


@pytest.fixture
def small(config: Config) -> Config:
    datasets_cli.download("demo/iris", config=config)
    datasets_cli.preprocess("demo/iris", lambda batch: batch, "small", config=config)
    return config


def test_a_dataset_that_no_catalogue_lists_answers_to_its_short_name(small: Config) -> None:
    assert datasets_cli.dataset_path("small", config=small).id == "derived/small"
    assert datasets_cli.dataset_info("small", config=small).id == "derived/small"
    assert len(datasets_cli.ExperienceReplay("small", root=small.root, download=False)) == 150


@pytest.mark.parametrize("typed", ["smal", "derived/smll", "d4rl/smal", "own/wals", "wals"])
def test_installed_datasets_that_no_catalogue_lists_are_suggested(
    typed: str, small: Config
) -> None:
    folder = small.root / "datasets" / "own" / "walks"  # whose recipe is gone
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{}")
    near = "own/walks" if "wals" in typed else "derived/small"
    for ask in (datasets_cli.dataset_info, datasets_cli.dataset_path, datasets_cli.download):
        with pytest.raises(UnknownDataset) as caught:
            ask(typed, config=small)
        assert near in caught.value.found


IRIS = "demo/iris"
Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


def same(batch: Any) -> Any:
    return batch


@pytest.mark.parametrize("name", ["with spaces", "größe 日本", "two\nlines", "-dash", "x" * 255])
def test_a_root_of_any_name_works(name: str, tmp_path: Path) -> None:
    root = tmp_path / name
    for command in ("download -q", "info", "verify", "convert --layout compact -q"):
        assert main([*command.split(), IRIS, f"--root={root}"]) == 0, command
    assert main(["delete", IRIS, "--yes", f"--root={root}"]) == 0
    assert not list((root / "tmp").iterdir()) and not list((root / "datasets").iterdir())


def test_a_root_of_a_long_path_works(tmp_path: Path) -> None:
    root = tmp_path.joinpath(*["x" * 200] * 3)
    assert main(["download", IRIS, "--root", str(root)]) == 0
    assert main(["verify", IRIS, "--root", str(root)]) == 0


@pytest.mark.parametrize("name", ["x" * 256, "é" * 128, "/".join(["x" * 200] * 30)])
def test_a_root_of_a_name_that_is_too_long_is_refused(
    name: str, tmp_path: Path, capsys: Capture
) -> None:
    for command in (["download", IRIS], ["list"], ["verify"], ["info", IRIS]):
        assert main([*command, "--root", str(tmp_path / name)]) == 2
        assert "too long" in capsys.readouterr().err
    assert listing(tmp_path) == []


def test_a_root_without_room_for_the_names_below_it_is_refused(
    tmp_path: Path, capsys: Capture
) -> None:
    rest = os.pathconf(tmp_path, "PC_PATH_MAX") - len(os.fsencode(tmp_path)) - 20
    root = tmp_path.joinpath(*["x" * 100] * (rest // 101), "x" * (rest % 101))
    assert main(["download", IRIS, "--root", str(root)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "too long" in said and "another cache root with --root or RLDS_HOME" in said
    with pytest.raises(NotWritable):
        datasets_cli.download(IRIS, root=root)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("id", ["d4rl/" + "x" * 201, "demo/" + "x" * 300, "/".join(["x" * 99] * 9)])
def test_an_id_that_is_too_long_is_refused(id: str, config: Config, capsys: Capture) -> None:
    for command in ("download", "info", "path", "verify", "delete"):
        assert main([command, id]) == 2
        assert "is not a dataset id" in capsys.readouterr().err
    assert not config.root.exists()


@pytest.mark.parametrize("name", ["x" * 201, "é" * 101, f"a/{'x' * 256}/b", "\ud800"])
def test_a_file_name_of_a_server_that_is_too_long_is_refused(name: str) -> None:
    with pytest.raises(IntegrityError) as caught:
        Resource(("http://127.0.0.1/x",), name)
    assert caught.value.expected == 200
    assert caught.value.exit_code == 4


def test_the_longest_file_name_is_downloaded(config: Config, tmp_path: Path) -> None:
    name = "é" * 100
    with Origin() as origin:
        url = origin.put("file", b"rows")
        origin.script("file", Fault(cut=2))
        http = Http(config, backoff_seconds=0.001)
        found = fetch(Resource((url,), name), tmp_path, http, silent)
    assert found.path.read_bytes() == b"rows"
    assert listing(tmp_path) == [name, f"{name}.json"]


@pytest.mark.parametrize("name", ["x" * 201, "é" * 101, "x" * 256])
def test_a_destination_that_is_too_long_is_refused(name: str, door: str, tmp_path: Path) -> None:
    replay = ExperienceReplay(door, download=False)
    with refused(UsageError, expected=200):
        replay.preprocess(same, dest=tmp_path / "new" / name, num_workers=0)
    assert not (tmp_path / "new").exists()
    assert len(replay.preprocess(same, dest=tmp_path / ("x" * 200), num_workers=0)) == len(replay)
