"""A working directory with a module of functions, and two small datasets."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest

from datasets_cli.cli.main import main
from datasets_cli.config import Config

_numbers = itertools.count()

SOURCE = """
def first(batch):
    return batch.select("action")

def second(batch):
    return batch.select("action", "episode")

def fails(batch):
    raise ValueError("on purpose")
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("RLDS_OFFLINE", "1")
    return folder


DEMOS = ["demo/door-human", "demo/iris"]


@pytest.fixture(scope="session")
def root_with_demos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache root with two datasets, to be copied."""
    root = tmp_path_factory.mktemp("demos")
    assert main(["download", *DEMOS, "-q", "--root", str(root)]) == 0
    return root


@pytest.fixture(scope="session")
def root_with_tables(root_with_demos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tables")
    shutil.copytree(root_with_demos, root, dirs_exist_ok=True)
    assert main(["preprocess", *DEMOS, "-q", "--root", str(root)]) == 0
    return root


@pytest.fixture
def installed(here: Path, config: Config, root_with_tables: Path) -> list[str]:
    """Two datasets with their tables, in their order."""
    shutil.copytree(root_with_tables, config.root)
    return DEMOS


@pytest.fixture
def module(here: Path, installed: list[str]) -> str:
    """The name of a module, which no other test imports, beside two installed datasets."""
    name = f"functions_of_test_{next(_numbers)}"
    (here / f"{name}.py").write_text(SOURCE)
    return name
