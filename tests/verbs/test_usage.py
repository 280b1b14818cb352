"""What a cache root takes on the disk, against the sizes of its files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import datasets_cli
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import DatasetNotInstalled, UnknownDataset
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.manifest import read_manifest
from datasets_cli.store.tables import remove_tables, save_table
from tests.support.refusals import refused


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_a_dataset_takes_its_folder_and_the_raw_files_that_were_kept(
    config: Config, door: str
) -> None:
    root = CacheRoot(config.root)
    root.downloads(door).mkdir(parents=True)
    (root.downloads(door) / "door.hdf5").write_bytes(bytes(777))
    [usage] = datasets_cli.disk_usage(config=config).datasets
    assert (usage.data_bytes, usage.raw_bytes) == (size(root.dataset(door)), 777)
    assert datasets_cli.disk_usage(config=config).leftovers == ()


def test_what_killed_work_left_is_counted_too(config: Config, door: str) -> None:
    part = CacheRoot(config.root).downloads("d4rl/hopper-random-v2") / "hopper.hdf5.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(bytes(500))
    Path(f"{part}.json").touch()
    found = datasets_cli.disk_usage(config=config)
    assert [each.size_bytes for each in found.leftovers] == [500]
    assert found.size_bytes == found.datasets[0].size_bytes + 500
    assert datasets_cli.disk_usage("door-human-v0", config=config).leftovers == ()


def test_an_empty_root_takes_nothing(config: Config) -> None:
    found = datasets_cli.disk_usage(config=config)
    assert (found.size_bytes, found.datasets) == (0, ()) and found.free_bytes > 0


def test_what_is_not_installed_has_no_size(config: Config) -> None:
    with pytest.raises(DatasetNotInstalled):
        datasets_cli.disk_usage("d4rl/hopper-random-v2", config=config)
    with pytest.raises(UnknownDataset):
        datasets_cli.disk_usage("hopper-*", config=config)


def test_what_is_installed_under_such_a_name_is_said(config: Config) -> None:
    datasets_cli.download("demo/door-human", config=config)
    with refused(DatasetNotInstalled, id="d4rl/door-human-v1"):
        datasets_cli.dataset_path("door-human", config=config)


def test_the_command_prints_sizes_and_json(
    config: Config, door: str, capsys: pytest.CaptureFixture[str]
) -> None:
    content = read_manifest(CacheRoot(config.root).dataset(door)).content
    remove_tables(CacheRoot(config.root), content)
    save_table(CacheRoot(config.root), content, "numbers", {"pi": 3})
    assert main(["du"]) == 0
    out = capsys.readouterr().out
    assert door in out and f"in {config.root}" in out
    assert re.search(r"TABLES .*\n.* 9 B ", out)
    assert main(["du", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["datasets"][0]["data_bytes"] == size(CacheRoot(config.root).dataset(door))


def test_what_a_size_counts_is_said_and_what_goes_is_what_du_counts(
    config: Config, door: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["preprocess", "--workers", "0"]) == 0  # which makes tables
    capsys.readouterr()
    (gone,) = datasets_cli.delete(door, dry_run=True, config=config)
    (usage,) = datasets_cli.disk_usage(config=config).datasets
    (record,) = datasets_cli.list_datasets(installed=True, config=config)
    assert record.size_bytes and gone.size_bytes == usage.size_bytes > record.size_bytes
    assert usage.size_bytes == size(config.root / "datasets") + size(config.root / "tables")
    for command in (["du"], ["delete", door, "--dry-run"]):
        assert main(command) == 0
        assert "with manifest, tables and raw files" in capsys.readouterr().out


def test_what_does_nothing_again_says_so(
    config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    record = ["record", "CartPole-v1", "--episodes", "1", "--name", "x", "--workers", "0"]
    calls = [record, ["convert", "recorded/x", "--layout", "ted"], ["download", "demo/iris"]]
    told = ["x is up to date: the same call", "x is up to date: it has the layout", "iris is inst"]
    for call, words in zip(calls, told, strict=True):
        for _ in range(2):
            assert main(call) == 0
        assert words in capsys.readouterr().err


def test_own_data_have_no_unknown_download_and_their_parents_citation(
    config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--keep"]) == 0
    assert main(["preprocess", "demo/door-human", "--cast", "float32", "--name", "x"]) == 0
    capsys.readouterr()
    assert main(["info", "derived/x"]) == 0
    out = capsys.readouterr().out
    assert "download" not in out and re.search(r"citation +Fu, Kumar, .*D4RL: Datasets", out)
