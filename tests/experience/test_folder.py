"""A dataset's folder opened as a replay buffer, wherever it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from datasets_cli import (
    D4RLExperienceReplay,
    ExperienceReplay,
    MinariExperienceReplay,
    open_dataset,
)
from datasets_cli.config import Config
from datasets_cli.errors import Unsupported, UsageError
from datasets_cli.store.cache_root import CacheRoot
from tests.support.refusals import refused


@pytest.fixture
def folder(config: Config, door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a dataset, copied out of every root."""
    monkeypatch.chdir(tmp_path)
    return CacheRoot(config.root).dataset(door).rename(tmp_path / "copy")


def test_a_folder_has_the_rows_of_its_files_and_nothing_is_installed(
    folder: Path, config: Config
) -> None:
    expected = np.fromfile(folder / "action.memmap", np.float32).reshape(1495, 28)
    before = sorted(path.stat().st_mtime_ns for path in folder.rglob("*"))
    for name in (str(folder), "./copy", "../" + folder.parent.name + "/copy", folder):
        replay = ExperienceReplay(name, batch_size=4, download=False)
        assert torch.equal(replay[:]["action"], torch.from_numpy(expected))
    assert replay.sample()["action"].shape == (4, 28) and len(replay.trajectories) == 5
    assert not CacheRoot(config.root).dataset(replay.dataset_id).exists()
    assert sorted(path.stat().st_mtime_ns for path in folder.rglob("*")) == before


def test_open_dataset_takes_the_same_folders(folder: Path) -> None:
    expected = np.fromfile(folder / "action.memmap", np.float32).reshape(1495, 28)
    for name in (str(folder), "./copy", folder, Path("copy")):
        assert np.array_equal(open_dataset(name).column(("action",)), expected)
    with pytest.raises(UsageError):
        open_dataset("./nowhere")


def test_a_folder_is_neither_made_nor_deleted_and_is_of_its_family(folder: Path) -> None:
    for options in ({"download": "force"}, {"source": "x"}, {"options": {"a": "b"}}):
        with refused(UsageError, argument=next(iter(options))):
            ExperienceReplay(folder, **options)
    with pytest.raises(UsageError):
        ExperienceReplay(folder, layout="compact")
    with refused(UsageError, argument="dataset_id", expected="minari"):
        MinariExperienceReplay(str(folder))
    with refused(Unsupported, path=folder):
        D4RLExperienceReplay(str(folder)).delete()
    assert (folder / "manifest.json").exists()


def test_what_is_no_folder_of_a_dataset_is_refused(folder: Path) -> None:
    (folder / "manifest.json").unlink()
    for name in ("./copy", "./nowhere", "/dev/null", "."):
        with pytest.raises(UsageError):
            ExperienceReplay(name)
