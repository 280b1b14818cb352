"""Caches that a group shares, that one user has alone, and that nobody can write."""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import datasets_cli
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import RldsError
from datasets_cli.experience.replay import ExperienceReplay
from datasets_cli.install.install import install_dataset
from datasets_cli.install.options import InstallOptions
from tests.support.d4rl_files import save, steps
from tests.support.listing import listing
from tests.support.origin import Origin

IRIS = "demo/iris"
MAZE, FILENAME = "d4rl/maze2d-open-v0", "maze2d-open-sparse.hdf5"
Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


def same(batch: Any) -> Any:
    return batch


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
    datasets_cli.verify(MAZE, deep=True, config=config)  # leaves a table
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


@pytest.fixture
def read_only(config: Config, monkeypatch: Patch) -> Callable[[], None]:
    """Return a function that makes the disk of the root read-only, for root and everyone."""

    def refuse(path: Any) -> None:
        if Path(os.fsdecode(path)).is_relative_to(config.root):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    def refusing(original: Callable[..., Any]) -> Callable[..., Any]:
        def changed(path: Any, *arguments: Any, **options: Any) -> Any:
            refuse(path)
            return original(path, *arguments, **options)

        return changed

    opened, io_opened, accessible = os.open, io.open, os.access

    def open_to_read(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and not Path(path).is_dir():
            refuse(path)
        return opened(path, flags, *arguments, **options)

    def io_open_to_read(path: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if not isinstance(path, int) and set(mode) & set("wax+"):
            refuse(path)
        return io_opened(path, mode, *arguments, **options)

    def may(path: Any, mode: int, **options: Any) -> bool:
        is_below = Path(path).is_relative_to(config.root)
        return not (is_below and mode & os.W_OK) and accessible(path, mode, **options)

    def make() -> None:
        for name in ("mkdir", "rename", "replace", "unlink", "rmdir"):
            monkeypatch.setattr(os, name, refusing(getattr(os, name)))
        monkeypatch.setattr(os, "open", open_to_read)
        monkeypatch.setattr(os, "access", may)
        monkeypatch.setattr(io, "open", io_open_to_read)

    return make


def test_a_read_only_root_is_read_and_what_would_write_names_it(
    door: str,
    config: Config,
    read_only: Callable[[], None],
    tmp_path: Path,
    monkeypatch: Patch,
    capsys: Capture,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    before = listing(config.root)
    read_only()
    for command in ("list --installed", f"info {door}", f"path {door}", f"verify --deep {door}"):
        assert main(command.split()) == 0, command
    assert len(ExperienceReplay(door, download=False, batch_size=9).sample()) == 9
    capsys.readouterr()
    for command in (f"download {IRIS}", f"delete {door} --yes", f"convert {door} --layout compact"):
        assert main(command.split()) == 2, command
        error = capsys.readouterr().err
        assert str(config.root) in error and "Read-only file system" in error, error
    assert listing(config.root) == before
