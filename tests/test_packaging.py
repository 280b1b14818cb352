"""What is installed is what stands in the folders, and the public list is the one we mean."""

from __future__ import annotations

import tomllib
from pathlib import Path

import datasets_cli

PROJECT = Path(__file__).parent.parent


def test_every_folder_with_code_is_in_the_package_list() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    folders = {
        ".".join(path.parent.relative_to(PROJECT).parts)
        for path in (PROJECT / "datasets_cli").rglob("__init__.py")
    }
    listed = set(project["tool"]["setuptools"]["packages"])
    assert listed == folders | {"datasets_cli.recipes"}


def test_the_public_names_are_these_and_all_can_be_imported() -> None:
    for name in datasets_cli.__all__:
        assert getattr(datasets_cli, name) is not None
    assert set(datasets_cli.__all__) == {"__version__", *datasets_cli._HOMES}


def test_the_demo_data_is_small_and_names_its_origin() -> None:
    data = PROJECT / "datasets_cli" / "demo" / "data"
    assert sum(path.stat().st_size for path in data.rglob("*") if path.is_file()) < 3_000_000
    origin = (data / "ORIGIN.md").read_text(encoding="utf-8")
    for path in data.glob("*/*"):
        assert path.parent.name in origin
