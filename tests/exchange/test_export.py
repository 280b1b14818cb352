"""Exporting to a path: what is replaced, what is left of a kill, and what errors say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datasets_cli import create_dataset, export_dataset
from datasets_cli.config import Config
from datasets_cli.errors import DiskFull, UsageError
from tests.support.disks import Disks

COUNT = 20_000


@pytest.fixture(autouse=True)
def made(config: Config) -> Path:
    noise = np.random.default_rng(0).normal(size=(COUNT + 1, 3))
    columns = {"observation": noise[:-1], "next_observation": noise[1:], "action": noise[1:]}
    columns["reward"] = np.zeros(COUNT)
    return create_dataset("mine/a", columns, lengths=[COUNT], config=config).path


def export(out: Path | str, config: Config, format: str = "npz", **options: Any) -> None:
    export_dataset("mine/a", format, out, allow_loss=True, config=config, **options)


@pytest.mark.parametrize("format", ["npz", "torchrl", "minari"])
@pytest.mark.parametrize("what", ["root", "above", "dataset", "below", "work", "half", "pipe"])
def test_force_replaces_neither_the_root_nor_other_folders(
    config: Config, made: Path, tmp_path: Path, what: str, format: str
) -> None:
    (tmp_path / "work/data").mkdir(parents=True)
    (tmp_path / "work/notes.txt").write_text("mine")
    export(tmp_path / "half", config, "torchrl")
    (tmp_path / "half/notes").write_text("mine")
    os.mkfifo(tmp_path / "pipe")
    places = {"root": config.root, "above": tmp_path, "dataset": made, "below": made / "a.npz"}
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match=r"the cache root|and nothing else"):
        export(places.get(what, tmp_path / what), config, format, force=True)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("format", ["npz", "torchrl", "minari"])
def test_force_replaces_an_export_an_empty_folder_and_what_a_link_leads_to(
    config: Config, tmp_path: Path, format: str
) -> None:
    out, link = tmp_path / "out", tmp_path / "link"
    out.mkdir()
    link.symlink_to(out)
    for path in (out, out, link):
        export(path, config, format, force=True)
        with pytest.raises(UsageError, match="is there already"):
            export(path, config, format)
    assert link.is_symlink() and out.is_dir() == (format != "npz")


def test_what_a_killed_export_left_goes_with_the_next(config: Config, tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    gone, runs = (tmp_path / f".a.npz.{each}.unfinished" for each in (ended.pid, os.getppid()))
    gone.mkdir()
    (gone / "meta.json").write_text("{}")
    for left in (runs, tmp_path / f".a.npz.{os.getpid()}.unfinished"):
        left.write_bytes(b"half")
    export(tmp_path / "a.npz", config)
    assert sorted(path.name for path in tmp_path.glob("*a.npz*")) == [runs.name, "a.npz"]


@pytest.mark.parametrize("format", ["npz", "torchrl", "minari", "d4rl", "parquet"])
def test_a_path_that_cannot_be_written_is_named_as_it_was_given(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_bytes(b"mine")
    for out in ("file/x", "file/x/y", "x" * 300, "/proc/x", "/proc/x/y"):
        with pytest.raises(
            UsageError, match=f"^{out} cannot be made or read: [A-Z][a-z ]+[.] "
        ) as refused:
            export(out, config, format)
        assert "unfinished" not in str(refused.value) and "root" not in str(refused.value)


@pytest.mark.parametrize("format", ["npz", "torchrl", "minari", "d4rl", "parquet"])
def test_a_full_disk_is_told_in_a_sentence_and_leaves_nothing(
    config: Config, tmp_path: Path, disks: Disks, format: str
) -> None:
    disks.put(tmp_path / "disk", 1 << 20)
    with pytest.raises(DiskFull, match=r"disk/x cannot be written \(No space left on device\)\."):
        export(tmp_path / "disk/x", config, format)
    assert not [*(tmp_path / "disk").iterdir()]
