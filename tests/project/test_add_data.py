"""Tables that are added to rlds.toml: nothing else changes, and they open as what they say."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import datasets_cli
from datasets_cli.cli.main import main
from datasets_cli.errors import DiskFull, PartialFailure, UnknownDataset, UsageError
from tests.support.disks import Disks
from tests.support.refusals import refused

TEXT = '# mine\n[data.old]\ndataset = "demo/iris"  # small\n\n[[preprocess]]\nsource = "x"'


def test_a_table_is_added_and_all_else_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "rlds.toml"
    path.write_text(TEXT)
    call = ["data", "add", "a-name", "--dataset", "demo/pong", "--where", 'length > 1 # "x"']
    assert main([*call, "--split", "0.9,.1", "--part", "1", "--seed", "3"]) == 0
    assert path.read_text().startswith(TEXT)
    added = tomllib.loads(path.read_text())["data"]
    views = [{"filter": 'length > 1 # "x"'}, {"split": [0.9, 0.1], "part": 1, "seed": 3}]
    assert added == {
        "old": {"dataset": "demo/iris"},
        "a-name": {"dataset": "demo/pong", "views": views},
    }


def test_what_is_added_opens(hopper: str, tmp_path: Path) -> None:
    datasets_cli.add_data("whole", hopper, project=tmp_path)
    datasets_cli.add_data("part", hopper, where="length > 0", split=[0.5, 0.5], project=tmp_path)
    whole, part = datasets_cli.declared_datasets(project=tmp_path)
    assert (whole.num_transitions, part.num_trajectories) == (911, 1)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("old", {}),
        ("add", {}),
        ("", {}),
        ("a name", {}),
        ("a.b", {}),
        ("\x1b[1m", {}),
        ("x", {"where": "foo >"}),
        ("x", {"split": [0.5], "seed": -1}),
        ("x", {"split": "a,b"}),
        ("x", {"split": "0.9,0.2"}),
        ("x", {"split": []}),
        ("x", {"split": "0.9,0.1", "part": 2}),
        ("x", {"part": 1}),
        ("x", {"where": ""}),
    ],
)
def test_what_would_be_no_table_is_refused(
    name: str, options: dict[str, object], tmp_path: Path
) -> None:
    path = tmp_path / "rlds.toml"
    path.write_text(TEXT)
    with pytest.raises(UsageError):
        datasets_cli.add_data(name, "demo/iris", project=path, **options)
    assert path.read_text() == TEXT


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path, disks: Disks) -> None:
    disks.put(tmp_path / "disk", size_bytes=8192)
    path = tmp_path / "disk" / "rlds.toml"
    path.write_text(TEXT)
    (tmp_path / "disk" / "other").write_bytes(bytes(4096))
    with pytest.raises(DiskFull):
        datasets_cli.add_data("x", "demo/iris", project=path)
    assert path.read_text() == TEXT
    assert {each.name for each in path.parent.iterdir()} == {"rlds.toml", "other"}


def test_a_dataset_that_is_not_known_is_refused_and_one_to_be_made_is_not(tmp_path: Path) -> None:
    with pytest.raises(UnknownDataset):
        datasets_cli.add_data("x", "demo/nosuch", project=tmp_path)
    with refused(UsageError, argument="dataset"):
        datasets_cli.add_data("x", "", project=tmp_path)
    assert datasets_cli.add_data("made", "derived/x", project=tmp_path).name == "made"


def test_a_table_that_is_wrong_does_not_hide_the_others(hopper: str, tmp_path: Path) -> None:
    datasets_cli.add_data("whole", hopper, project=tmp_path)
    with (tmp_path / "rlds.toml").open("a") as file:
        file.write('[data.bad]\ncolour = 1\n[data.gone]\ndataset = "demo/pong"\n')
    with pytest.raises(PartialFailure, match=r"bad, gone.*\n.*colour.*\n.*demo/pong") as caught:
        datasets_cli.declared_datasets(project=tmp_path)
    assert [each.num_transitions for each in caught.value.results] == [911]


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with refused(UsageError, path=tmp_path / "no" / "rlds.toml"):
        datasets_cli.add_data("x", "demo/iris", project=tmp_path / "no" / "rlds.toml")


def test_a_file_that_is_not_toml_is_left(tmp_path: Path) -> None:
    (tmp_path / "rlds.toml").write_text("x = ")
    with refused(UsageError, path=tmp_path / "rlds.toml"):
        datasets_cli.add_data("x", "demo/iris", project=tmp_path)
    assert (tmp_path / "rlds.toml").read_text() == "x = "
