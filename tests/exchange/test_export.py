"""Exporting to a path: replacement, kills, and errors."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import datasets_cli
from datasets_cli import create_dataset, export_dataset
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import UsageError
from tests.support.killed import digests, run_killed

COUNT = 20_000


@pytest.fixture(autouse=True)
def made(config: Config) -> Path:
    noise = np.random.default_rng(0).normal(size=(COUNT + 1, 3))
    columns = {"observation": noise[:-1], "next_observation": noise[1:], "action": noise[1:]}
    columns["reward"] = np.zeros(COUNT)
    return create_dataset("mine/a", columns, lengths=[COUNT], config=config).path


def export(out: Path | str, config: Config, format: str = "npz", **options: Any) -> None:
    export_dataset("mine/a", format, out, allow_loss=True, config=config, **options)


@pytest.mark.parametrize("format", ["npz", "minari"])
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
    with pytest.raises(UsageError) as caught:
        export(places.get(what, tmp_path / what), config, format, force=True)
    assert caught.value.argument == "path"
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
        with pytest.raises(UsageError) as caught:
            export(path, config, format)
        assert caught.value.argument == "path"
    assert link.is_symlink() and out.is_dir() == (format != "npz")


@pytest.mark.parametrize("format", ["npz", "torchrl", "minari"])
@pytest.mark.parametrize("stride", [17, pytest.param(3, marks=pytest.mark.slow)])
def test_killed_anywhere_an_export_that_replaces_another_leaves_one_whole_and_can_be_repeated(
    config: Config, tmp_path: Path, format: str, stride: int
) -> None:
    datasets_cli.download("demo/iris", config=config)
    older, newer, out = tmp_path / "older", tmp_path / "newer", tmp_path / "place" / "a.npz"
    export(older, config, format)
    export_dataset("demo/iris", format, newer, config=config, allow_loss=True)
    whole = [digests(older), digests(newer)]
    call = f"export demo/iris --to {format} --allow-loss --force -q --out {out}"
    for step in range(0, 1000, stride):
        shutil.rmtree(out.parent, ignore_errors=True)
        out.parent.mkdir()
        (shutil.copytree if older.is_dir() else shutil.copy)(older, out)
        if run_killed(call, step, config.root, tmp_path) == 0:
            break
        [kept] = [out] if out.exists() else out.parent.glob(".*.old")
        assert digests(kept) in whole, step
        assert main([*shlex.split(call), "--root", str(config.root)]) == 0, step
        assert digests(out) == whole[1] and [*out.parent.iterdir()] == [out], step
    assert step > 0 and digests(out) == whole[1]


@pytest.mark.parametrize("format", ["npz", "torchrl"])
def test_that_a_dataset_was_imported_is_not_a_loss(
    config: Config, tmp_path: Path, format: str
) -> None:
    export(tmp_path / "a.npz", config)
    datasets_cli.import_dataset(tmp_path / "a.npz", "mine/b", config=config)
    export_dataset("mine/b", format, tmp_path / "out", config=config)
    assert (tmp_path / "out").exists()


@pytest.mark.parametrize("format", ["npz", "torchrl", "minari", "d4rl", "parquet"])
def test_a_path_that_cannot_be_written_is_named_as_it_was_given(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_bytes(b"mine")
    for out in ("file/x", "file/x/y", "x" * 300, "/proc/x", "/proc/x/y"):
        with pytest.raises(UsageError) as refused:
            export(out, config, format)
        assert str(refused.value.path) == out
        assert "unfinished" not in str(refused.value) and "root" not in str(refused.value)
