"""Disks that are full, shared, read-only, several or absent, and links."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import datasets_cli
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.core.progress import silent
from datasets_cli.errors import DiskFull, NotWritable, RldsError, UsageError
from datasets_cli.experience.replay import ExperienceReplay
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.sources.disk import allocate, flush, make_folder
from datasets_cli.sources.new_files import replace_file
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.manifest import read_manifest
from datasets_cli.verbs.verify import verify_installed as verify
from tests.support.d4rl_files import save, steps
from tests.support.disks import Disks
from tests.support.forked import Forked
from tests.support.listing import listing
from tests.support.origin import Origin
from tests.support.refusals import refused

IRIS = "demo/iris"
MAZE, FILENAME = "d4rl/maze2d-open-v0", "maze2d-open-sparse.hdf5"
Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


def same(batch: Any) -> Any:
    return batch


# --- 45: network and FUSE file systems ----------------------------------------------------------


@pytest.fixture
def plain_renames(monkeypatch: Patch) -> None:
    """A file system that renames over nothing, neither an empty folder nor a file."""

    def renamer(rename: Callable[..., None]) -> Callable[..., None]:
        def to_a_free_name(source: Any, target: Any, **options: Any) -> None:
            if os.path.lexists(target):
                code = errno.EEXIST if Path(target).is_file() else errno.ENOTEMPTY
                raise OSError(code, os.strerror(code), str(target))
            rename(source, target, **options)

        return to_a_free_name

    for name in ("rename", "replace"):
        monkeypatch.setattr(os, name, renamer(getattr(os, name)))


@pytest.mark.usefixtures("plain_renames")
def test_without_rename_over_an_empty_folder_a_dataset_takes_its_place(config: Config) -> None:
    (config.root / "datasets" / IRIS).mkdir(parents=True)
    install_dataset(IRIS, config)
    assert verify(IRIS, config).num_transitions == 150
    for options in (InstallOptions(), InstallOptions(force=True)):
        install_dataset(IRIS, config, options)
    datasets_cli.convert(IRIS, "compact", config=config)
    assert verify(IRIS, config).layout == "compact"
    assert list((config.root / "tmp").iterdir()) == []


@pytest.mark.usefixtures("plain_renames")
def test_without_rename_over_an_empty_folder_preprocess_fills_one(
    door: str, tmp_path: Path
) -> None:
    dest = tmp_path / "temporary"
    dest.mkdir()
    replay = ExperienceReplay(door, download=False)
    assert len(replay.preprocess(same, dest=dest, num_workers=0)) == len(replay)
    assert not list(tmp_path.glob(".*"))


@pytest.mark.usefixtures("plain_renames")
def test_without_rename_over_a_file_the_new_one_takes_its_place(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    (tmp_path / "new").write_text("new")
    replace_file(tmp_path / "new", tmp_path / "old")
    assert (listing(tmp_path), (tmp_path / "old").read_text()) == (["old"], "new")


@pytest.mark.usefixtures("plain_renames")
def test_a_folder_with_files_is_never_renamed_over(config: Config) -> None:
    mine = config.root / "datasets" / IRIS / "mine"
    mine.parent.mkdir(parents=True)
    mine.write_text("kept")
    with refused(NotWritable, id="demo/iris"):
        install_dataset(IRIS, config)
    assert mine.read_text() == "kept"
    assert list((config.root / "tmp").iterdir()) == []


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS])
def test_without_fallocate_the_file_is_written_with_zeros(
    code: int, door: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    replay = ExperienceReplay(door, download=False)
    replay.preprocess(same, dest=tmp_path / "with", num_workers=0)

    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    replay.preprocess(same, dest=tmp_path / "without", num_workers=0)
    expected, found = (read_manifest(tmp_path / name).files for name in ("with", "without"))
    assert len(found) > 5 and found == expected
    allocate(tmp_path / "file", (1 << 20) + 5)
    assert (tmp_path / "file").read_bytes() == bytes((1 << 20) + 5)
    assert (tmp_path / "file").stat().st_blocks * 512 >= 1 << 20  # no hole


def test_a_disk_that_cannot_fallocate_and_tells_no_size_takes_the_same_files(
    config: Config, disks: Disks, tmp_path: Path
) -> None:
    calls = [f"download {IRIS}", f"convert {IRIS} --layout compact", "download demo/pong"]
    calls += [f"preprocess {IRIS} --n-step 2 --gamma 0.9 --name two", "verify --deep"]
    disks.put(tmp_path / "odd", kind="ramfs")
    for call in calls:
        assert main([*shlex.split(call), "-q"]) == 0
        assert main([*shlex.split(call), "-q", "--root", str(tmp_path / "odd")]) == 0
    expected = [*CacheRoot(config.root).installed()]
    assert len(expected) == 3
    for each in expected:
        here, there = CacheRoot(config.root).dataset(each), tmp_path / "odd" / "datasets" / each
        assert read_manifest(there).files == read_manifest(here).files
    assert list((tmp_path / "odd" / "tmp").iterdir()) == []


def test_a_full_disk_is_found_out_by_fallocate_before_a_row_is_written(
    door: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(DiskFull) as caught:
        ExperienceReplay(door, download=False).preprocess(
            same, dest=tmp_path / "new" / "out", num_workers=0
        )
    assert caught.value.exit_code == 7
    assert listing(tmp_path / "new") == []


def test_a_folder_that_cannot_be_brought_to_the_disk_is_no_error_and_a_file_is(
    tmp_path: Path, config: Config, monkeypatch: Patch
) -> None:
    fsync = os.fsync

    def files_alone(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", files_alone)
    install_dataset(IRIS, config)
    assert verify(IRIS, config).num_transitions == 150
    (tmp_path / "file").touch()
    monkeypatch.setattr(os, "fsync", lambda _: files_alone(os.open(tmp_path, os.O_RDONLY)))
    with pytest.raises(OSError, match="Invalid argument"):
        flush(tmp_path / "file")


def test_all_of_a_dataset_is_brought_to_the_disk_before_it_has_its_name(
    config: Config, monkeypatch: Patch
) -> None:
    fsync, rename, flushed, named = os.fsync, os.rename, set(), set()
    target = CacheRoot(config.root).dataset(IRIS)

    def bring(descriptor: int) -> None:
        flushed.add(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    def give(source: Any, name: Any, **options: Any) -> None:
        if Path(name) == target:
            named.update(path.stat().st_ino for path in [Path(source), *Path(source).rglob("*")])
            assert named <= flushed
            flushed.clear()
        rename(source, name, **options)

    monkeypatch.setattr(os, "fsync", bring)
    monkeypatch.setattr(os, "rename", give)
    install_dataset(IRIS, config)
    assert len(named) > 10 and target.parent.stat().st_ino in flushed


# --- 36: a disk that fills ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "free"),
    [
        ("download demo/pong", 40_960),
        ("download demo/iris --force", 4096),
        ("convert demo/iris --layout compact", 4096),
        ("preprocess demo/iris --n-step 2 --gamma 0.9 --name derived", 40_960),
    ],
)
def test_a_disk_that_fills_while_rows_are_written_ends_with_7_and_its_older_data(
    call: str, free: int, config: Config, disks: Disks, tmp_path: Path
) -> None:
    def run(free: int) -> tuple[int, str]:
        def without_looking() -> int:  # others take the room after it was looked for
            usage = shutil.disk_usage(config.root)._replace(free=1 << 40)
            shutil.disk_usage = lambda _: usage
            return main([*shlex.split(call), "-q"])

        ballast = config.root / "ballast"
        ballast.write_bytes(bytes(shutil.disk_usage(config.root).free - free))
        found = Forked(without_looking, tmp_path).finish()
        ballast.unlink()
        return found

    disks.put(config.root)
    (config.root / "locks").mkdir()
    install_dataset(IRIS, config)
    folder = CacheRoot(config.root).dataset(IRIS)
    inode = folder.stat().st_ino
    code, error = run(free)
    assert code == 7 and "Make room" in error and "Traceback" not in error
    assert list(CacheRoot(config.root).installed()) == [IRIS]
    assert folder.stat().st_ino == inode
    assert verify(IRIS, config).num_transitions == 150
    assert len(ExperienceReplay(IRIS, download=False, batch_size=9).sample()) == 9
    assert run(1 << 22)[0] == 0
    assert main(["verify"]) == 0 and list((config.root / "tmp").iterdir()) == []


# --- 47: several disks --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["datasets", "tmp"])
def test_datasets_on_another_disk_than_their_staging_are_refused_before_work(
    name: str, config: Config, disks: Disks, capsys: Capture
) -> None:
    disks.put(config.root / name)
    before = listing(config.root)
    assert main(["download", IRIS]) == 2
    error = capsys.readouterr().err
    assert "are on different disks" in error and "--root" in error
    made = {path for path in listing(config.root) if not path.startswith("locks")}
    assert made == set(before)


def test_a_disk_that_is_found_out_at_the_rename_is_named_and_nothing_is_half_made(
    config: Config, disks: Disks, capsys: Capture
) -> None:
    disks.bind(config.root / "datasets")  # the same disk, mounted twice
    assert main(["download", IRIS]) == 2
    assert "are on different disks" in capsys.readouterr().err
    assert main(["list", "--installed"]) == 0
    assert capsys.readouterr() == ("", "Nothing found.\n")
    assert list((config.root / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda id, config: datasets_cli.delete(id, config=config),
        lambda id, config: datasets_cli.convert(id, "compact", config=config).path,
    ],
)
def test_what_was_moved_to_another_disk_stays_whole_where_it_cannot_be_changed(
    change: Callable[[str, Config], Any], config: Config, disks: Disks
) -> None:
    install_dataset(IRIS, config)
    disks.put(config.root / "datasets")
    with pytest.raises(NotWritable):
        change(IRIS, config)
    assert verify(IRIS, config).layout == "ted"
    assert len(ExperienceReplay(IRIS, download=False)) == 150
    assert list((config.root / "tmp").iterdir()) == []


def test_raw_files_may_be_on_another_disk(config: Config, disks: Disks, tmp_path: Path) -> None:
    path = tmp_path / FILENAME
    save(path, steps(path, (4, 2), num_steps=300))
    disks.put(config.root / "downloads")
    with Origin() as origin:
        origin.put(FILENAME, path.read_bytes())
        install_dataset(MAZE, config, InstallOptions(source=origin.url, keep_raw=True))
    assert verify(MAZE, config).num_transitions > 200
    assert (config.root / "downloads" / MAZE / FILENAME).read_bytes() == path.read_bytes()


def test_a_dataset_in_a_layer_of_an_image_is_read_and_stays_whole_where_it_cannot_be_changed(
    config: Config, disks: Disks, tmp_path: Path, capsys: Capture
) -> None:
    install_dataset(IRIS, config)
    root = tmp_path / "container"
    disks.layer(config.root, root, tmp_path / "changes")
    before = listing(root / "datasets")
    for call in ("delete demo/iris --yes", "convert demo/iris --layout compact"):
        assert main([*shlex.split(call), "--root", str(root)]) == 2
        assert "a layer of a container image" in " ".join(capsys.readouterr().err.split())
    assert listing(root / "datasets") == before and not list((root / "tmp").iterdir())
    for call in (f"verify {IRIS}", "download demo/pong -q", "delete demo/pong --yes"):
        assert main([*shlex.split(call), "--root", str(root)]) == 0


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def work(config: Config, tmp_path: Path) -> None:
    """Make everything that a cache root may hold."""
    path = tmp_path / FILENAME
    save(path, steps(path, (4, 2), num_steps=300))
    with Origin() as origin:
        origin.put(FILENAME, path.read_bytes())
        install_dataset(MAZE, config, InstallOptions(source=origin.url, keep_raw=True))
    install_dataset(IRIS, config)
    datasets_cli.convert(IRIS, "compact", config=config)
    datasets_cli.run_plan(datasets_cli.plan_preprocess(ids=MAZE, config=config), config=config)
    replay = ExperienceReplay(IRIS, download=False)
    derived = config.root / "datasets" / "derived"
    replay.preprocess(same, dest=derived / "whole", num_workers=0)
    with pytest.raises(RldsError, match="stopped"):  # its work stays
        replay.preprocess(stop_late, dest=derived / "half", chunksize=50, num_workers=0)


def stop_late(batch: Any) -> Any:
    if int(batch["episode"][0]) >= 100:
        raise RuntimeError("stopped")
    return batch


@pytest.mark.parametrize(("mask", "folder", "file"), [(0o002, 0o775, 0o664), (0o077, 0o700, 0o600)])
def test_what_is_made_has_the_permissions_that_the_umask_leaves(
    mask: int, folder: int, file: int, config: Config, tmp_path: Path
) -> None:
    with umask(mask):
        work(config, tmp_path)
    made = [config.root, *config.root.rglob("*")]
    tops = {path.relative_to(config.root).parts[0] for path in made[1:]}
    assert tops >= {"datasets", "downloads", "locks", "tables", "tmp"}
    assert any(path.match("derived/.half.*.partial/parts/0.done") for path in made)
    wrong = {
        path: oct(mode)
        for path in made
        if (mode := stat.S_IMODE(path.stat().st_mode)) != (folder if path.is_dir() else file)
    }
    assert wrong == {}


def test_a_read_only_root_is_read_and_what_would_write_names_it(
    door: str,
    config: Config,
    disks: Disks,
    tmp_path: Path,
    monkeypatch: Patch,
    capsys: Capture,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    before = listing(config.root)
    disks.put(config.root)
    disks.remount(config.root, "ro")
    for command in ("list --installed", f"info {door}", f"path {door}", f"verify --deep {door}"):
        assert main(command.split()) == 0, command
    assert len(ExperienceReplay(door, download=False, batch_size=9).sample()) == 9
    capsys.readouterr()
    for command in (f"download {IRIS}", f"delete {door} --yes", f"convert {door} --layout compact"):
        assert main(command.split()) == 2, command
        error = capsys.readouterr().err
        assert str(config.root) in error and "Read-only file system" in error, error
    assert main(["preprocess", door]) == 0  # its tables are in the user's cache
    assert main(["info", door]) == 0
    assert ", mean " in capsys.readouterr().out.partition("columns")[2]
    assert list((tmp_path / "cache").rglob("statistics.array"))
    assert listing(config.root) == before


@pytest.fixture
def passable() -> Iterator[Path]:
    """A folder for files of several users, all of whom may pass to it."""
    if os.geteuid():
        pytest.skip("several users work here, which takes root")
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_users_of_a_group_share_a_root_and_others_only_read_it(passable: Path) -> None:
    root = passable / "root"

    def as_user(number: int, group: int, call: str) -> tuple[int, str]:
        def command() -> int:
            os.umask(0o002)
            os.setgroups([])
            os.setgid(group)
            os.setuid(number)
            return main(shlex.split(call))

        home = passable / f"user{number}"
        home.mkdir(exist_ok=True)
        os.chown(home, number, group)
        places = dict.fromkeys(("XDG_CACHE_HOME", "XDG_CONFIG_HOME"), str(home))
        return Forked(command, home, RLDS_HOME=str(root), **places).finish()

    root.mkdir()
    os.chown(root, 4001, 4000)
    root.chmod(0o2775)
    assert as_user(4001, 4000, "download demo/iris -q")[0] == 0
    for call in ("verify demo/iris", "convert demo/iris --layout compact -q"):
        assert as_user(4002, 4000, call)[0] == 0, call
    before = listing(root)
    for call in ("list --installed", "verify --deep demo/iris", "info demo/iris"):
        assert as_user(4003, 4003, call)[0] == 0, call
    for call in ("delete demo/iris --yes", "download demo/pong", "convert demo/iris --layout ted"):
        code, error = as_user(4003, 4003, call)
        assert code == 2 and str(root) in error and "Permission denied" in error, error
    assert listing(root) == before
    assert as_user(4002, 4000, "delete demo/iris --yes")[0] == 0


def broken(path: Path) -> Path:
    """Make a link to nothing under this name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(path.parent / "unmounted")
    return path


@pytest.mark.parametrize("below", ["", "rlds"])
def test_a_root_that_is_a_broken_link_is_named_with_where_it_leads(
    below: str, tmp_path: Path, capsys: Capture
) -> None:
    link = broken(tmp_path / "data")
    assert main(["--root", str(link / below), "list"]) == 2
    error = capsys.readouterr().err
    assert f"{link} is a symbolic link to {tmp_path / 'unmounted'}, which does not exist" in error


@pytest.mark.parametrize("name", ["datasets", "datasets/demo", "tmp", "locks"])
def test_a_download_names_the_broken_link_and_makes_nothing(
    name: str, config: Config, capsys: Capture
) -> None:
    link = broken(config.root / name)
    assert main(["download", IRIS, "-q"]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert f"{link} is a symbolic link to {link.parent / 'unmounted'}" in error
    assert "Is its disk mounted" in error and link.is_symlink() and not link.exists()
    assert not [
        path for path in config.root.rglob("*") if path.is_file() and path.parent.name != "locks"
    ]
    link.parent.joinpath("unmounted").mkdir()
    assert main(["download", IRIS, "-q"]) == 0


def test_raw_files_are_not_fetched_through_a_broken_link(config: Config) -> None:
    broken(config.root / "downloads")
    with Origin() as origin:
        mirrors = tuple((host, origin.url) for host in ("https://", "http://rail"))
        with pytest.raises(NotWritable):
            datasets_cli.download("d4rl/door-human-v0", config=replace(config, mirrors=mirrors))


def test_what_was_below_a_broken_link_is_said_to_be_left_out(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    link = broken(config.root / "datasets")
    assert datasets_cli.verify(config=config) == []
    assert f"{link} is a symbolic link" in caplog.text and "is skipped" in caplog.text
    with refused(UsageError, path=link):
        datasets_cli.prune(config=config)


def test_deleting_a_linked_dataset_removes_the_link_and_not_what_it_leads_to(
    config: Config, tmp_path: Path
) -> None:
    folder = Path(datasets_cli.download(IRIS, progress=silent, config=config).datasets[0].path)
    elsewhere = folder.rename(tmp_path / "elsewhere")
    names = sorted(elsewhere.rglob("*"))
    folder.symlink_to(elsewhere)
    datasets_cli.delete(IRIS, config=config)
    assert sorted(elsewhere.rglob("*")) == names
    assert not folder.is_symlink() and list((config.root / "tmp").iterdir()) == []


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotWritable):
        make_folder(tmp_path / "file" / "below")
