"""Examples run in this process, on a cache root of the test's own and without a network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from datasets_cli import download


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLDS_OFFLINE", "1")


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Policies are saved in the folder that a script runs in."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Networks this small are slower on several threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def door_human() -> str:
    """The id of a dataset of D4RL's format, installed: 299 rows of two trajectories."""
    return installed("demo/door-human")


@pytest.fixture
def door_minari() -> str:
    """The id of a dataset of Minari's format, installed: 900 rows of three trajectories."""
    return installed("demo/door-minari")


def installed(dataset: str) -> str:
    download(dataset)
    return dataset
