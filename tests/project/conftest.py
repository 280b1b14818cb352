"""A working directory with a module of functions, and two small datasets."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from datasets_cli.cli.main import main

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


@pytest.fixture
def module(here: Path) -> str:
    """The name of a module in it, which no other test imports."""
    name = f"functions_of_test_{next(_numbers)}"
    (here / f"{name}.py").write_text(SOURCE)
    return name


@pytest.fixture
def installed(here: Path) -> list[str]:
    """Two datasets with their tables, in their order."""
    ids = ["demo/door-human", "demo/iris"]
    assert main(["download", *ids, "-q"]) == main(["preprocess", *ids, "-q"]) == 0
    return ids
