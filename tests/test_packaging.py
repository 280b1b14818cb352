"""What is installed is what stands in the folders, and the public list is the one we mean."""

from __future__ import annotations

import subprocess
import tomllib

import pytest

import datasets_cli
import datasets_cli.replay
from tests.support.paths import PROJECT


def test_every_folder_with_code_is_in_the_package_list() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    folders = {
        ".".join(path.parent.relative_to(PROJECT).parts)
        for path in (PROJECT / "datasets_cli").rglob("__init__.py")
    }
    recipes = {
        ".".join(("datasets_cli", *path.parent.relative_to(PROJECT).parts))
        for path in (PROJECT / "recipes").rglob("__init__.py")
    }
    listed = set(project["tool"]["setuptools"]["packages"])
    assert listed == folders | recipes


def test_every_file_of_the_package_is_in_the_repository() -> None:
    if not (PROJECT / ".git").exists():
        pytest.skip("this is no git checkout")
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    )
    known = set(listed.stdout.split("\n"))
    for folder in ("datasets_cli", "recipes"):
        for path in (PROJECT / folder).rglob("*"):
            if path.is_file() and path.suffix != ".pyc" and ".egg-info" not in str(path):
                assert path.relative_to(PROJECT).as_posix() in known, "ignored by git"


def test_the_public_names_are_these_and_all_can_be_imported() -> None:
    for name in datasets_cli.__all__:
        assert getattr(datasets_cli, name) is not None
    assert set(datasets_cli.__all__) == {"__version__", *datasets_cli._LAZY_IMPORTS}


def test_the_replay_librarys_names_stand_in_its_room_too() -> None:
    names = dir(datasets_cli.replay)
    assert {"ReplayBuffer", "ListStorage", "Compose", "split_trajectories"} <= set(names)
    for name in names:
        assert getattr(datasets_cli.replay, name) is getattr(datasets_cli, name)
    everything: dict[str, object] = {}
    exec("from datasets_cli.replay import *", everything)
    assert everything.keys() - {"__builtins__"} == set(names)
    assert not hasattr(datasets_cli.replay, "ExperienceReplay")


def test_the_demo_data_is_small_and_names_its_origin() -> None:
    data = PROJECT / "datasets_cli" / "demo" / "data"
    assert sum(path.stat().st_size for path in data.rglob("*") if path.is_file()) < 3_000_000
    origin = (data / "ORIGIN.md").read_text(encoding="utf-8")
    for path in data.glob("*/*"):
        assert path.parent.name in origin
