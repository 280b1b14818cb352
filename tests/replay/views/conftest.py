"""A small installed dataset with text and frames, in both layouts, to make views of."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from datasets_cli import ExperienceReplay
from tests.support.text_rows import ID, steps_of, write

LENGTHS = (4, 1, 6, 3, 6)
MISSIONS = ["go left", "", "go right"]


def install(root: Path, layout: str, lengths: tuple[int, ...] = LENGTHS) -> str:
    """Install a dataset of these lengths, whose actions are the numbers of its rows."""
    num_rows = sum(lengths)
    frames = np.arange(num_rows * 8, dtype=np.uint8).reshape(num_rows, 2, 4)
    folder = write(root / "staging", layout, steps_of(MISSIONS, lengths, frame=frames))
    target = root / "datasets" / ID
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(folder, target)
    return ID


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


each_layout = pytest.mark.parametrize("replay", ["ted", "compact"], indirect=True)


@pytest.fixture
def replay(request: pytest.FixtureRequest, root: Path) -> ExperienceReplay:
    id = install(root, getattr(request, "param", "compact"))
    return ExperienceReplay(id, 6, root=root, download=False, seed=0, text=True)


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> ExperienceReplay:
    """Return a dataset that no test writes to, for all examples of a property."""
    root = tmp_path_factory.mktemp("toy")
    return ExperienceReplay(install(root, "compact"), 6, root=root, download=False, seed=0)
