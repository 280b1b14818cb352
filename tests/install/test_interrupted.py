"""Installations that end before they are done: by a signal, a missing file, a lack of room."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import datasets_cli
from datasets_cli import recipes
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.sources.partial_download import PartialDownload
from datasets_cli.store.layouts.ted_writer import TedWriter
from datasets_cli.verbs.verify import verify_installed as verify
from tests.catalogue.conftest import clear
from tests.install.test_killed import TWO_FILES
from tests.support.d4rl_files import save, steps
from tests.support.origin import Origin

MAZE, FILENAME = "d4rl/maze2d-open-v0", "maze2d-open-sparse.hdf5"
HOPPER, HOPPER_BYTES = "d4rl/hopper-medium-v2", 152_756_557
Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


@pytest.fixture
def origin(tmp_path: Path) -> Iterator[Origin]:
    path = tmp_path / FILENAME
    save(path, steps(path, (4, 2), num_steps=3000))
    with Origin() as running:
        running.put(FILENAME, path.read_bytes())
        yield running


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


# --- 32, 34: SIGINT and SIGTERM -----------------------------------------------------------------


def after(
    place: Any, name: str, number: int, is_it: Callable[..., bool]
) -> Callable[[Patch], None]:
    """Return what has a signal sent once, after a call that ``is_it``."""
    original, sent = getattr(place, name), []

    def changed(*arguments: Any, **options: Any) -> Any:
        found = original(*arguments, **options)
        if not sent and is_it(*arguments):
            sent.append(True)
            signal.raise_signal(number)
        return found

    return lambda patch: patch.setattr(place, name, changed)


STAGES: dict[str, tuple[Any, str, Callable[..., bool]]] = {
    "download": (PartialDownload, "write", lambda self, data: self.size > 0),
    "rows": (TedWriter, "write", lambda *_: True),
    "manifest": (os, "fsync", lambda _: True),
    "rename": (os, "rename", lambda _, target: "/datasets/" in str(target)),
}


@pytest.mark.parametrize(
    ("stage", "number", "code"),
    [*((stage, signal.SIGINT, 130) for stage in STAGES), ("rows", signal.SIGTERM, 143)],
)
def test_a_signal_at_any_stage_has_its_code_and_the_next_run_continues(
    stage: str,
    number: int,
    code: int,
    origin: Origin,
    config: Config,
    monkeypatch: Patch,
    capsys: Capture,
) -> None:
    place, name, is_it = STAGES[stage]
    call = ["download", MAZE, "--source", origin.url]
    with monkeypatch.context() as patch:
        after(place, name, number, is_it)(patch)
        assert main(call) == code
    assert "run the same command again" in capsys.readouterr().err
    installed = [MAZE] if stage == "rename" else []  # it was whole by then
    assert [
        found.id for found in datasets_cli.list_datasets(installed=True, config=config)
    ] == installed
    assert list((config.root / "tmp").glob("*")) == []
    # What is installed is compared with --source, which is read for that.
    assert main(call if stage != "rename" else call[:2]) == 0
    first, *more = origin.ranges(FILENAME)
    assert first is None and None not in more
    assert len(more) == (stage == "download")
    assert verify(MAZE, config).num_transitions > 2000
    assert list((config.root / "tmp").iterdir()) == []
    orphans = {FILENAME, f"{FILENAME}.json"} if stage == "rename" else set()
    assert names(config.root / "downloads") == orphans
    datasets_cli.prune(config=config, raw=True)
    assert names(config.root / "downloads") == set()


# --- 21: one file of several --------------------------------------------------------------------


@pytest.fixture
def two_files(tmp_path: Path, monkeypatch: Patch) -> Iterator[Origin]:
    """The server of a dataset of two files, whose recipe is the user's."""
    monkeypatch.setattr(recipes, "__path__", [*recipes.__path__, str(tmp_path)])
    with Origin() as running:
        (tmp_path / "twofiles.py").write_text(TWO_FILES.format(origin=running.url))
        clear()
        yield running
    clear()
    sys.modules.pop("datasets_cli.recipes.twofiles", None)


def test_a_file_of_several_that_is_missing_is_named_and_the_others_are_kept(
    config: Config, two_files: Origin, capsys: Capture
) -> None:
    two_files.put("first", b"abcd" * 100)
    assert main(["download", "twofiles/pair"]) == 6
    error = capsys.readouterr().err
    assert f"{two_files.url}second" in error and "HTTP 404" in error
    assert list(datasets_cli.list_datasets(installed=True, config=config)) == []
    assert names(config.root / "downloads") == {"first", "first.json"}
    assert main(["download", "twofiles/pair", "demo/iris"]) == 9  # the other is installed
    assert verify("demo/iris", config).num_transitions == 150
    two_files.put("second", b"efgh" * 100)
    assert main(["download", "twofiles/pair"]) == 0
    assert len(two_files.log("first")) == 1  # it was kept
    assert verify("twofiles/pair", config).num_transitions > 190


# --- 37: no room for what is downloaded and what is made of it ----------------------------------


@pytest.mark.parametrize("missing", [1, 0])
def test_without_room_for_files_and_rows_nothing_is_asked_for(
    missing: int, config: Config, monkeypatch: Patch, capsys: Capture
) -> None:
    room = SimpleNamespace(total=1 << 40, free=3 * HOPPER_BYTES - missing)
    monkeypatch.setattr("datasets_cli.sources.disk.shutil.disk_usage", lambda path: room)
    with Origin() as origin:
        mirrors = [f"--mirror {host}={origin.url}" for host in ("https://", "http://rail")]
        call = f"download {HOPPER} {' '.join(mirrors)}"
        code = main(shlex.split(call))
    error = capsys.readouterr().err
    if missing:
        assert (code, origin.requests) == (7, [])
        assert f"{HOPPER} needs about {3 * HOPPER_BYTES:,} bytes" in error and "--root" in error
    else:
        assert code != 7 and origin.requests  # it is asked, and this server has no such file
    assert names(config.root) <= {next((config.root / "locks").iterdir()).name}
