"""Caches that a group shares, that one user has alone, and that nobody can write."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import datasets_cli
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import RldsError
from datasets_cli.experience.replay import ExperienceReplay
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from tests.support.d4rl_files import save, steps
from tests.support.disks import Disks
from tests.support.forked import Forked
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
