"""Datasets moved to other roots and adopted from folders: nothing is lost, whatever happens."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import datasets_cli
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import (
    DamagedDataset,
    DatasetNotInstalled,
    DiskFull,
    IntegrityError,
    PartialFailure,
    RldsError,
    UsageError,
)
from datasets_cli.manager import places
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.manifest import read_manifest, write_manifest
from datasets_cli.store.tables import load_table, save_table
from tests.install.test_killed_anywhere import run_killed
from tests.support.disks import Disks

IRIS, PONG = "demo/iris", "demo/pong"


def files(folder: Path) -> dict[str, str]:
    """Return the sha256 of each file below a folder."""
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in paths.items()
        if path.is_file()
    }


@pytest.fixture
def here(config: Config) -> CacheRoot:
    """A root with a dataset of each layout."""
    datasets_cli.download([IRIS, PONG], config=config)
    return CacheRoot(config.root)


@pytest.fixture
def there(tmp_path: Path) -> CacheRoot:
    """Another root, which is not there yet."""
    return CacheRoot(tmp_path / "two")


@pytest.mark.parametrize("id", [IRIS, PONG], ids=["ted", "compact"])
def test_a_moved_dataset_has_the_same_bytes_there_and_is_gone_here(
    id: str, here: CacheRoot, there: CacheRoot, config: Config
) -> None:
    before = files(here.dataset(id))
    [moved] = datasets_cli.move(id, there.path, config=config)
    assert (moved.id, moved.path, moved.placed, moved.removed) == (
        id,
        there.dataset(id),
        True,
        True,
    )
    assert files(there.dataset(id)) == before
    assert not here.dataset(id).exists() and [*there.installed()] == [id]
    assert not [*(there.path / "tmp").iterdir()]


def test_what_is_installed_is_adopted_once(
    here: CacheRoot, config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(here.dataset(IRIS), tmp_path / "up" / "copy")
    for options in ({}, {"dry_run": True}):
        kept = datasets_cli.adopt(copy, config=config, **options)  # type: ignore[arg-type]
        assert (kept.already, kept.placed, kept.removed) == (True, False, False)
    assert main(["adopt", str(copy), "--root", str(here.path)]) == 0
    assert "nothing is done" in capsys.readouterr().out
    with pytest.raises(DatasetNotInstalled, match="rlds scan"):
        datasets_cli.adopt(copy.parent, config=config)
    for folder, words in (("", "empty text"), (tmp_path / "no", "does not exist")):
        with pytest.raises(UsageError, match=words):
            datasets_cli.adopt(folder, config=config)


def test_raw_files_and_tables_go_along(here: CacheRoot, there: CacheRoot, config: Config) -> None:
    content = datasets_cli.dataset_info(IRIS, config=config).manifest.content
    (here.downloads(IRIS) / "below").mkdir(parents=True)
    (here.downloads(IRIS) / "below" / "raw").write_bytes(b"raw")
    save_table(here, content, "numbers", {"pi": 3})
    [plan] = datasets_cli.move(IRIS, there.path, dry_run=True, config=config)
    assert plan.size_bytes == datasets_cli.disk_usage(IRIS, config=config).datasets[0].size_bytes
    assert not plan.placed and not there.path.exists()
    datasets_cli.move(IRIS, there.path, config=config)
    assert (there.downloads(IRIS) / "below" / "raw").read_bytes() == b"raw"
    assert load_table(there, content, "numbers") == {"pi": 3}
    assert not here.downloads(IRIS).exists() and load_table(here, content, "numbers") is None


@pytest.mark.parametrize("call", ["move demo/iris {} --yes -q", "adopt {} --move --yes -q"])
@pytest.mark.parametrize("stride", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_any_change_of_the_disk_one_of_two_is_whole_and_the_same_call_goes_on(
    call: str, stride: int, here: CacheRoot, tmp_path: Path
) -> None:
    whole = files(here.dataset(IRIS))
    for step in range(0, 1000, stride):
        root, other = CacheRoot(tmp_path / "copy"), CacheRoot(tmp_path / "other")
        for each in (root, other):
            shutil.rmtree(each.path, ignore_errors=True)
        shutil.copytree(here.path, root.path)
        if call.startswith("move"):
            kept, put, done = root.dataset(IRIS), other.dataset(IRIS), call.format(other.path)
        else:
            shutil.copytree(here.dataset(IRIS), folder := other.path / "iris")
            shutil.rmtree(root.dataset(IRIS))
            kept, put, done = folder, root.dataset(IRIS), call.format(folder)
        if run_killed(done, step, root.path, tmp_path) == 0:
            break
        trash = (root.path / "tmp").glob("trash-*")
        assert whole in [files(each) for each in (kept, put, *trash)], step
        code = main([*done.split(), "--root", str(root.path)])
        assert code == 0 or (code == 3 and not (kept / "manifest.json").exists()), step
        assert files(put) == whole and not (kept / "manifest.json").exists(), step
        assert not [*(root.path / "tmp").glob("*"), *(other.path / "tmp").glob("*")], step
    assert step > 0


@pytest.mark.parametrize("dest", ["root", "root/x", "", "two/../root", "link"])
def test_a_root_in_itself_is_refused(
    dest: str, here: CacheRoot, config: Config, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(config.root)
    with pytest.raises(UsageError) as caught:
        datasets_cli.move(IRIS, tmp_path / dest, config=config)
    assert caught.value.exit_code == 2
    assert [*here.installed()] == [IRIS, PONG]


def test_another_dataset_under_the_same_id_is_refused_and_the_same_one_is_done(
    here: CacheRoot, there: CacheRoot, config: Config
) -> None:
    shutil.copytree(here.path / "datasets", there.path / "datasets")
    [moved] = datasets_cli.move(IRIS, there.path, config=config)
    assert moved.removed and "has the same data already" in moved.notes[0]
    datasets_cli.convert(PONG, "ted", root=there.path)
    with pytest.raises(UsageError, match="in another layout"):
        datasets_cli.move(PONG, there.path, config=config)
    assert [*here.installed()] == [PONG]


def test_one_dataset_under_two_roots_is_not_deleted(
    here: CacheRoot, there: CacheRoot, config: Config
) -> None:
    there.path.mkdir()
    (there.path / "datasets").symlink_to(here.path / "datasets")
    with pytest.raises(UsageError, match="Nothing is to do"):
        datasets_cli.move(IRIS, there.path, config=config)
    with pytest.raises(UsageError, match="Nothing is to do"):
        datasets_cli.adopt(here.dataset(IRIS), move=True, config=config)
    assert [*here.installed()] == [IRIS, PONG]


@pytest.mark.parametrize("verb", ["move", "adopt"])
def test_a_damaged_source_is_named_and_stays(
    verb: str, here: CacheRoot, there: CacheRoot, config: Config
) -> None:
    path = here.dataset(IRIS) / "action.memmap"
    data = bytearray(path.read_bytes())
    data[5] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedDataset, match=r"action\.memmap: expected sha256"):
        if verb == "move":
            datasets_cli.move(IRIS, there.path, config=config)
        else:
            datasets_cli.adopt(here.dataset(IRIS), root=there.path)
    assert [*there.installed()] == [] and path.read_bytes() == data
    assert not [*(there.path / "tmp").iterdir()]


def test_of_several_those_that_are_sound_are_moved(
    here: CacheRoot, there: CacheRoot, config: Config
) -> None:
    (here.dataset(IRIS) / "action.memmap").unlink()
    with pytest.raises(PartialFailure) as caught:
        datasets_cli.move("demo/*", there.path, config=config)
    assert [(each.id, each.placed) for each in caught.value.results] == [
        (IRIS, False),
        (PONG, True),
    ]
    assert ([*here.installed()], [*there.installed()]) == ([IRIS], [PONG])
    assert main(["move", "demo/iris", "demo/ir*", str(there.path)]) == 4
    with pytest.raises(DatasetNotInstalled):
        datasets_cli.move([PONG, IRIS], there.path, config=config)


def test_raw_files_stay_where_both_roots_link_their_downloads_to_one_folder(
    here: CacheRoot, there: CacheRoot, config: Config, tmp_path: Path
) -> None:
    (tmp_path / "shared" / IRIS).mkdir(parents=True)
    (tmp_path / "shared" / IRIS / "raw").write_bytes(b"raw")
    for root in (here, there):
        shutil.rmtree(root.path / "downloads", ignore_errors=True)
        root.path.mkdir(exist_ok=True)
        (root.path / "downloads").symlink_to(tmp_path / "shared")
    datasets_cli.move(IRIS, there.path, config=config)
    assert (there.downloads(IRIS) / "raw").read_bytes() == b"raw"


def test_a_disk_that_writes_other_bytes_is_told_from_a_damaged_source(
    here: CacheRoot, there: CacheRoot, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = places.copied

    def wrong(path: Path, new: Path) -> list[int]:
        sizes = [*copied(path, new)]
        if path.name == "action.memmap":
            new.write_bytes(bytes(len(new.read_bytes())))
        return sizes

    monkeypatch.setattr(places, "copied", wrong)
    with pytest.raises(IntegrityError, match="Check that disk") as caught:
        datasets_cli.move(IRIS, there.path, config=config)
    assert not isinstance(caught.value, DamagedDataset)
    assert [*there.installed()] == [] and [*here.installed()] == [IRIS, PONG]


def test_a_full_disk_and_one_that_cannot_be_written_leave_the_source(
    here: CacheRoot, config: Config, tmp_path: Path, disks: Disks
) -> None:
    disks.put(tmp_path / "small", 1 << 16)
    with pytest.raises(DiskFull):
        datasets_cli.move(PONG, tmp_path / "small", config=config)
    disks.remount(tmp_path / "small", "ro")
    with pytest.raises(RldsError, match="cannot be written") as caught:
        datasets_cli.move(IRIS, tmp_path / "small", config=config)
    assert caught.value.exit_code == 2 and [*here.installed()] == [IRIS, PONG]
    disks.put(tmp_path / "large")
    assert datasets_cli.move(IRIS, tmp_path / "large", config=config)[0].removed


def test_an_adopted_folder_stays_unless_it_is_moved(
    here: CacheRoot, config: Config, tmp_path: Path
) -> None:
    folder = here.dataset(IRIS).rename(tmp_path / "copy")
    (folder / "notes.txt").write_text("mine")
    placed = datasets_cli.adopt(folder, config=config)
    assert (placed.id, placed.placed, placed.removed) == (IRIS, True, False)
    assert placed.notes == ("not of the dataset, left out: notes.txt",)
    assert files(here.dataset(IRIS)) == {
        name: digest for name, digest in files(folder).items() if name != "notes.txt"
    }
    with pytest.raises(UsageError, match=r"which would be lost: notes\.txt"):
        datasets_cli.adopt(folder, move=True, config=config)
    (folder / "notes.txt").unlink()
    assert datasets_cli.adopt(folder, move=True, config=config).removed and not folder.exists()


@pytest.mark.parametrize(
    ("name", "kind"),
    [("nowhere", UsageError), ("link", UsageError), ("empty", DatasetNotInstalled)],
)
def test_what_is_no_dataset_is_not_adopted(
    name: str, kind: type[RldsError], here: CacheRoot, config: Config, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(here.dataset(IRIS))
    with pytest.raises(kind):
        datasets_cli.adopt(tmp_path / name, root=tmp_path / "two")
    assert not (tmp_path / "two" / "datasets").exists()


def test_a_manifest_whose_id_leads_out_of_the_root_is_refused(
    here: CacheRoot, config: Config, tmp_path: Path
) -> None:
    folder = here.dataset(IRIS)
    write_manifest(folder, replace(read_manifest(folder), id="../../out"))
    with pytest.raises(RldsError):
        datasets_cli.adopt(folder, root=tmp_path / "two")
    assert not [*tmp_path.rglob("out*")] and folder.exists()


def test_the_commands_ask_before_they_delete(
    here: CacheRoot, there: CacheRoot, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["move", IRIS, str(there.path)]) == 2
    assert "--yes" in capsys.readouterr().err and [*here.installed()] == [IRIS, PONG]
    assert main(["move", IRIS, str(there.path), "-y", "-q"]) == 0
    assert capsys.readouterr().out == f"{there.dataset(IRIS)}\n"
    assert main(["adopt", str(there.dataset(IRIS)), "--move"]) == 2
    assert main(["adopt", str(there.dataset(IRIS))]) == 0
    assert "; the source stays" in capsys.readouterr().out
