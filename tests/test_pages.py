"""What the pages show is so: their Python runs, and commands print what stands below them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.install.install import install_dataset
from datasets_cli.install.options import InstallOptions
from tests.support import executed, maze_files
from tests.support.executed import Run
from tests.support.paths import DEMO_DATA

AT_MOST_NOT_RUN = 10
CHECKS: dict[str, Callable[[Run], None]] = {}
"""What is asked of a page's values once it has run."""


def after(page: str) -> Callable[[Callable[[Run], None]], Callable[[Run], None]]:
    """Have a function check what a page's blocks left."""

    def keep(check: Callable[[Run], None]) -> Callable[[Run], None]:
        CHECKS[page] = check
        return check

    return keep


@pytest.fixture(scope="session")
def root_of_pages(
    root_with_hopper: Path, root_with_door: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A cache root with all that the pages' ids stand for, to be copied."""
    root = tmp_path_factory.mktemp("pages")
    for made in (root_with_hopper, root_with_door):
        shutil.copytree(made, root, dirs_exist_ok=True)
    assert main(["--root", str(root), "download", "demo/*", "-q", "--yes"]) == 0
    folder = DEMO_DATA / "minari" / "D4RL" / "door" / "human-v2" / "data"
    door = InstallOptions(source=str(folder), accept_any=True)
    install_dataset("minari/D4RL/door/human-v2", Config(root), door)
    maze_files.install(maze_files.unpack("open", root.with_suffix(".maze")), Config(root))
    return root


@pytest.mark.parametrize("page", executed.pages())
def test_a_page_shows_what_is_so(
    page: str, config: Config, root_of_pages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(root_of_pages, config.root, dirs_exist_ok=True)
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("RLDS_OFFLINE", "1")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(DEMO_DATA / "minari"))
    run = Run()
    run.all(executed.blocks(page))
    if page in CHECKS:
        CHECKS[page](run)


def test_few_blocks_are_not_run_and_each_says_why() -> None:
    left_out = [block for page in executed.pages() for block in executed.blocks(page)]
    left_out = [block for block in left_out if block.reason]
    for block in left_out:
        print(f"{block.page}:{block.line}: {block.reason}")
    assert len(left_out) <= AT_MOST_NOT_RUN
