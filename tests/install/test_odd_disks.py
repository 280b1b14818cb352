"""Disks that cannot do all that a local one can, and several of them."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import datasets_cli
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import DiskFull, UsageError
from datasets_cli.experience.replay import ExperienceReplay
from datasets_cli.install.install import install_dataset
from datasets_cli.install.installed import remove
from datasets_cli.install.options import InstallOptions
from datasets_cli.manager.verify import verify_installed as verify
from datasets_cli.sources.disk import allocate, flush, replace_file
from datasets_cli.store.manifest import read_manifest
from tests.support.d4rl_files import save, steps
from tests.support.listing import listing
from tests.support.origin import Origin

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
    with pytest.raises(UsageError, match="holds files that are no dataset"):
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


def test_a_full_disk_is_found_out_by_fallocate_before_a_row_is_written(
    door: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(DiskFull, match="Make room and run again") as caught:
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


# --- 47: several disks --------------------------------------------------------------------------


@pytest.fixture
def other_disk(config: Config, monkeypatch: Patch) -> Callable[..., None]:
    """Return a function that has a folder of the root on a disk of its own."""
    rename, replace, look = os.rename, os.replace, os.stat

    def put(name: str, is_told: bool = True) -> None:
        top = config.root / name

        def is_there(path: Any) -> bool:
            return Path(path) == top or top in Path(path).parents

        def mover(move: Callable[..., None]) -> Callable[..., None]:
            def on_one_disk(source: Any, target: Any, **options: Any) -> None:
                if is_there(source) != is_there(target):
                    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(source))
                move(source, target, **options)

            return on_one_disk

        def stat_of(path: Any, **options: Any) -> Any:
            found = look(path, **options)
            if isinstance(path, int) or not is_there(path):
                return found
            return SimpleNamespace(
                **{key: getattr(found, key) for key in dir(found) if key.startswith("st_")}
                | {"st_dev": found.st_dev + 1}
            )

        top.mkdir(parents=True, exist_ok=True)
        monkeypatch.setattr(os, "rename", mover(rename))
        monkeypatch.setattr(os, "replace", mover(replace))
        if is_told:
            monkeypatch.setattr(os, "stat", stat_of)

    return put


@pytest.mark.parametrize("name", ["datasets", "tmp"])
def test_datasets_on_another_disk_than_their_staging_are_refused_before_work(
    name: str, config: Config, other_disk: Callable[..., None], capsys: Capture
) -> None:
    other_disk(name)
    before = listing(config.root)
    assert main(["download", IRIS]) == 2
    error = capsys.readouterr().err
    assert "are on different disks" in error and "--root" in error
    made = {path for path in listing(config.root) if not path.startswith("locks")}
    assert made == set(before)


def test_a_disk_that_is_found_out_at_the_rename_is_named_and_nothing_is_half_made(
    config: Config, other_disk: Callable[..., None], capsys: Capture
) -> None:
    other_disk("datasets", is_told=False)  # as the same disk mounted twice
    assert main(["download", IRIS]) == 2
    assert "are on different disks" in capsys.readouterr().err
    assert main(["list", "--installed"]) == 0
    assert capsys.readouterr() == ("", "Nothing found.\n")
    assert list((config.root / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    "change", [remove, lambda id, config: datasets_cli.convert(id, "compact", config=config).path]
)
def test_what_was_moved_to_another_disk_stays_whole_where_it_cannot_be_changed(
    change: Callable[[str, Config], Any], config: Config, other_disk: Callable[..., None]
) -> None:
    install_dataset(IRIS, config)
    other_disk("datasets")
    with pytest.raises(UsageError, match="are on different disks"):
        change(IRIS, config)
    assert verify(IRIS, config).layout == "ted"
    assert len(ExperienceReplay(IRIS, download=False)) == 150
    assert list((config.root / "tmp").iterdir()) == []


def test_raw_files_may_be_on_another_disk(
    config: Config, other_disk: Callable[..., None], tmp_path: Path
) -> None:
    path = tmp_path / FILENAME
    save(path, steps(path, (4, 2), num_steps=300))
    other_disk("downloads")
    with Origin() as origin:
        origin.put(FILENAME, path.read_bytes())
        install_dataset(MAZE, config, InstallOptions(source=origin.url, keep_raw=True))
    assert verify(MAZE, config).num_transitions > 200
    assert (config.root / "downloads" / MAZE / FILENAME).read_bytes() == path.read_bytes()
