"""Disk usage, and what prune deletes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import tempfile
import time
from pathlib import Path

import pytest

import datasets_cli
from datasets_cli import LazyMemmapStorage, LazyTensorStorage, ReplayBuffer
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import DatasetNotInstalled, UnknownDataset, UsageError
from datasets_cli.sources import temporary_folders as temporary
from datasets_cli.sources.new_files import OLD, new_temporary_folder, temporary_name
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.lock import dest_locked, locked
from datasets_cli.store.manifest import read_manifest
from datasets_cli.store.tables import remove_tables, save_table
from datasets_cli.verbs import prune
from datasets_cli.verbs.prune import SECONDS_A_DAY
from datasets_cli.verbs.verify import verify_installed as verify
from tests.support.killed import of_dead
from tests.support.processes import Child
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


OTHER = "d4rl/hopper-random-v2"


def file(path: Path, days: float = 0.0) -> Path:
    """Write a file of 1,000 bytes that was last written some days ago; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(1000))
    written = [path, path.parent]
    if path.suffix == ".part":
        written.append(Path(f"{path}.json"))
        written[-1].touch()
    then = time.time() - days * SECONDS_A_DAY
    for each in written:
        os.utime(each, (then, then))
    return path


def outcomes(config: Config, **arguments: object) -> dict[str, bool]:
    found = datasets_cli.prune(config=config, **arguments)  # type: ignore[arg-type]
    return {each.kind: each.deleted for each in found}


@pytest.fixture
def root(config: Config) -> CacheRoot:
    return CacheRoot(config.root)


def test_a_copy_that_a_dead_process_was_writing_goes(config: Config, root: CacheRoot) -> None:
    left = file(of_dead(root.new_staging(OTHER)) / "data" / "reward.memmap")
    assert outcomes(config, dry_run=True) == {"staging": False} and left.exists()
    assert outcomes(config) == {"staging": True}
    assert not left.exists() and outcomes(config) == {}


def test_a_copy_that_a_running_process_writes_is_not_even_listed(
    config: Config, root: CacheRoot
) -> None:
    left = file(root.new_staging(OTHER) / "reward.memmap")  # the name has our process
    assert outcomes(config, older_than_days=0) == {} and left.exists()


def test_a_partial_download_stays_for_a_week(config: Config, root: CacheRoot) -> None:
    new = file(root.downloads(OTHER) / "hopper.hdf5.part", days=6)
    old = file(root.downloads("d4rl/ant-random-v2") / "ant.hdf5.part", days=8)
    found = {each.id: each for each in datasets_cli.prune(config=config)}
    assert found[OTHER].reason.startswith("it can be resumed") and new.exists()
    assert found["d4rl/ant-random-v2"].deleted and not old.parent.exists()
    assert outcomes(config, older_than_days=0) == {"download": True} and not new.exists()


def test_a_download_under_way_stays(config: Config, root: CacheRoot) -> None:
    left = file(root.downloads(OTHER) / "hopper.hdf5.part", days=30)
    with locked(root.lock(OTHER), OTHER, 1.0):
        [found] = datasets_cli.prune(config=config)
    assert found.reason == "another process works on it" and left.exists()


def test_raw_files_that_were_kept_on_purpose_go_only_when_asked_for(
    config: Config, root: CacheRoot, door: str
) -> None:
    left = file(root.downloads(door) / "door.hdf5", days=30)
    assert outcomes(config, older_than_days=0) == {"raw files": False} and left.exists()
    assert outcomes(config, raw=True) == {"raw files": True} and not left.exists()


def test_an_interrupted_preprocess_run_goes_with_its_lock(config: Config, root: CacheRoot) -> None:
    derived = root.path / "datasets" / "derived"
    left = file(derived / f".scaled.{'0' * 16}.partial" / "plan.json", days=8)
    file(derived / ".scaled.lock")
    assert outcomes(config) == {"preprocess run": True}
    assert not left.parent.exists() and not [*derived.iterdir()]


@pytest.mark.parametrize("folder", ["lander", ".lander.recorded"])
def test_a_recording_that_was_killed_stays_a_week_and_then_goes(
    config: Config, root: CacheRoot, folder: str
) -> None:
    left = root.path / "downloads" / "recorded" / folder
    for name in ("chunks/0/a.memmap", "recording.json"):
        file(left / name)
    assert outcomes(config, raw=True) == {"recording": False} and left.exists()
    assert outcomes(config, older_than_days=0) == {"recording": True}
    assert not left.exists()


def test_a_hidden_folder_that_no_run_made_stays(config: Config, root: CacheRoot) -> None:
    own = file(root.path / "datasets" / "derived" / ".mine.partial" / "notes.txt", days=30)
    link = own.parents[1] / f".scaled.{'0' * 16}.partial"
    link.symlink_to(own.parent)
    assert outcomes(config, older_than_days=0) == {} and own.exists() and link.exists()


def test_what_a_run_of_preprocess_replaces_now_is_not_brought_back(
    config: Config, root: CacheRoot, door: str
) -> None:
    datasets_cli.preprocess(door, lambda rows: rows, "same", config=config)
    dest, trash = root.dataset("derived/same"), root.new_trash("derived/same")
    dest.rename(trash)  # the first of the two renames of a replacement
    with dest_locked(dest.resolve(), 1.0):
        [found] = datasets_cli.prune(config=config)
    assert found.reason == "another process works on it" and trash.exists()
    datasets_cli.prune(config=config)
    assert verify("derived/same", config).parent and not trash.exists()


def test_tables_of_data_that_is_gone_go_and_others_stay(
    config: Config, root: CacheRoot, door: str
) -> None:
    kept = file(
        root.tables(datasets_cli.dataset_info(door, config=config).manifest.content) / "a.json"
    )
    gone = file(root.tables("0" * 64) / "a.json")
    assert outcomes(config) == {"tables": True}
    assert kept.exists() and not gone.exists()


def test_the_only_copy_of_a_dataset_comes_back_from_the_trash(
    config: Config, root: CacheRoot, door: str
) -> None:
    content = datasets_cli.dataset_info(door, config=config).manifest.content
    table = file(root.tables(content) / "a.json")
    trash = root.new_trash(door)  # where a replacement that was killed half-way has it
    trash.parent.mkdir(exist_ok=True)
    root.dataset(door).rename(trash)
    leftovers = datasets_cli.prune(config=config, dry_run=True)
    [found] = [each for each in leftovers if each.kind == "trash"]
    assert "only copy" in found.reason and trash.exists()
    datasets_cli.prune(config=config)
    assert verify(door, config).id == door and not trash.exists()
    assert table.exists()


def test_an_older_copy_in_the_trash_goes(config: Config, root: CacheRoot, door: str) -> None:
    shutil.copytree(root.dataset(door), trash := root.new_trash(door))
    assert outcomes(config) == {"trash": True} and not trash.exists()
    assert verify(door, config).id == door


def keep_rows_and_die(_: object) -> None:
    storages = [LazyTensorStorage(9), LazyMemmapStorage(9)]
    assert all(ReplayBuffer(storage=each, shared=True).shared for each in storages)
    os.kill(os.getpid(), signal.SIGKILL)


def test_rows_of_a_killed_process_go_after_an_hour(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = (tmp_path / "memory", tmp_path / "disk")
    for place in places:
        place.mkdir()
    monkeypatch.setattr(temporary, "IN_MEMORY", places[0])
    monkeypatch.setattr(tempfile, "tempdir", str(places[1]))
    monkeypatch.setattr(prune, "abandoned_folders", temporary.abandoned_folders)
    Child("fork", keep_rows_and_die).die()
    left = [path for place in places for path in place.iterdir()]
    alive = LazyMemmapStorage(9)
    (places[0] / "rlds-mine").mkdir()
    assert outcomes(config) == {"rows of a buffer": False}  # they are new
    for path in tmp_path.rglob("*"):
        os.utime(path, (0.0, 0.0))
    found = datasets_cli.prune(config=config, dry_run=True)
    assert [each.path for each in found if not each.reason] == [*reversed(left)]
    assert outcomes(config) == {"rows of a buffer": True}
    there = [path for place in places for path in place.iterdir()]
    assert there == [places[0] / "rlds-mine", alive.scratch_dir]


def test_temporaries_of_every_kind_are_known_by_their_names(
    config: Config, root: CacheRoot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work := tmp_path / "work").mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setattr(temporary, "IN_MEMORY", tmp_path / "memory")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "disk"))
    monkeypatch.setattr(prune, "abandoned_folders", temporary.abandoned_folders)
    beside = [root.path / "catalogue/x.json", root.tables("0" * 64) / "x.json", work / "x.gif"]
    here = [file(each.with_name(temporary_name(f".{each.name}"))) for each in beside]
    left = [file(of_dead(each)) for each in here]
    for each in ("memory", "disk"):
        (tmp_path / each).mkdir()
        here.append(new_temporary_folder("rows", tmp_path / each))
        left.append(here[-1].rename(of_dead(here[-1])))  # killed before it had a lock
        os.utime(left[-1], (0.0, 0.0))
    file(root.dataset("mine/x") / "manifest.json").write_text("{}")  # the tables are nobody's
    found = datasets_cli.prune([".", tmp_path], config=config)
    assert {each.path.resolve() for each in found if each.deleted} == {*left}
    assert not any(map(os.path.lexists, left)) and all(each.exists() for each in here[:3])


@pytest.mark.parametrize("is_free", [True, False])
def test_an_older_export_gets_its_name_back_where_it_is_free(
    config: Config, tmp_path: Path, is_free: bool
) -> None:
    out = tmp_path / "out"
    old = of_dead(tmp_path / f"{temporary_name('.out')}{OLD}")
    file(old / "meta.json")
    if not is_free:
        file(out / "new.json")
    [found] = datasets_cli.prune(tmp_path, config=config)
    assert found.deleted is not is_free and not old.exists()
    assert [path.name for path in out.iterdir()] == ["meta.json" if is_free else "new.json"]


def test_files_of_others_in_a_folder_that_is_taken_for_the_root_stay(
    config: Config, root: CacheRoot
) -> None:
    names = ("tmp/mine/a", "tmp/trash-mine/a", "tmp/.x/a", "tables/oak/a", "locks/a")
    raw = ("downloads/films/a.mp4", "downloads/x/b.part", "downloads/x/y/a.json", "downloads/a.iso")
    for name in (*names, *raw, "datasets/mine/a.csv"):
        path = root.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"url": "mine"}')
    before = set(root.path.rglob("*"))
    assert outcomes(config, older_than_days=0, raw=True) == {}
    assert set(root.path.rglob("*")) == before


def test_a_negative_age_is_refused(config: Config) -> None:
    with refused(UsageError, argument="older_than_days", found=-1):
        datasets_cli.prune(older_than_days=-1, config=config)


def test_the_command_says_what_and_how_much_and_asks(
    root: CacheRoot, capsys: pytest.CaptureFixture[str]
) -> None:
    left = file(root.downloads(OTHER) / "hopper.hdf5.part", days=8)
    assert main(["prune"]) == 2  # no terminal to ask on
    assert "--yes" in capsys.readouterr().err and left.exists()
    assert main(["prune", "--yes"]) == 0
    shown = capsys.readouterr()
    assert "1.0 kB deleted, 1 in all." in shown.out and not left.exists()
    assert shown.err == ""  # what is deleted is listed once
    assert main(["prune"]) == 0
    assert capsys.readouterr().out == "Nothing to delete.\n"
