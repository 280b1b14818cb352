"""preprocess() in several processes: held locks, killed runs; nothing half-made gets its name."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

import datasets_cli
from datasets_cli import ExperienceReplay
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import LockedError, UsageError
from datasets_cli.preprocessing import execution, origin
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.check import check_digests
from datasets_cli.store.dataset import open_dataset
from tests.support.forked import Forked
from tests.support.interpreters import Piped, preloaded

FUNCTIONS = """
import os, signal
from pathlib import Path

def same(batch):
    return batch

def dies_once(batch):
    mark = Path("killed")
    if int(batch["episode"][-1]) == 3 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    with open("calls", "a") as file:
        file.write("x")
    return batch
"""

SMALL_PARTS = """
import sys
from datasets_cli.preprocessing import origin
origin.rows_per_block = lambda row_bytes: 200
"""

CLI = SMALL_PARTS + "from datasets_cli.cli.main import main; sys.exit(main(sys.argv[1:]))"

IN_PYTHON = """
from datasets_cli import ExperienceReplay
import functions
replay = ExperienceReplay(sys.argv[1], download=False)
replay.preprocess(functions.same, dest=sys.argv[2], num_workers=0)
"""

HOLD_LOCK = """
import sys
from pathlib import Path
from datasets_cli.store.cache_root import lock_of
from datasets_cli.store.lock import locked
with locked(lock_of(Path(sys.argv[1]).resolve()), "it", 1.0):
    print("locked", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """The folder that child processes work in."""
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "functions.py").write_text(FUNCTIONS)
    return folder


@pytest.fixture
def out(config: Config) -> Path:
    """The folder that ``rlds preprocess --name out`` makes."""
    return CacheRoot(config.root).dataset("derived/out")


@pytest.fixture
def holder(out: Path) -> Iterator[Piped]:
    """Another process that works on that folder."""
    with Piped("-c", HOLD_LOCK, str(out)) as child:
        assert child.stdout.readline() == "locked\n"
        yield child


def forked(here: Path, arguments: list[str], **environment: str) -> Forked:
    """Start a command in a process of its own, with small parts."""

    def command() -> int:
        origin.rows_per_block = lambda row_bytes: 200
        return main(arguments)

    return Forked(command, here, **environment)


def command(door: str, function: str = "same", workers: int = 0) -> list[str]:
    fn = f"functions:{function}"
    return ["preprocess", door, "--fn", fn, "--name", "out", "--workers", str(workers)]


def assert_whole(folder: Path, door: str) -> None:
    """Check that a dataset has every byte that it should, and nothing is left beside it."""
    dataset = open_dataset(folder)
    check_digests(folder, dataset.manifest)
    source = ExperienceReplay(door, download=False).storage.dataset.manifest
    assert data_files(dataset.manifest.files) == data_files(source.files)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def data_files(files: Any) -> dict[str, Any]:
    return {
        name: entry
        for name, entry in files.items()
        if name.endswith(".memmap") and not name.startswith("final/")
    }


def test_a_held_lock_ends_the_command_after_the_time_limit_and_it_says_that_it_waits(
    door: str,
    here: Path,
    out: Path,
    holder: Piped,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RLDS_LOCK_TIMEOUT", "1.5")
    begun = time.monotonic()
    done = preloaded("-c", CLI, *command(door), folder=here)
    assert done.returncode == 8
    assert time.monotonic() - begun > 1.5
    waiting, failed = done.stderr.splitlines()
    assert waiting.startswith(f"waiting for another process that works on {out}")
    assert f"worked on {out} for over 1.5 s" in failed and "RLDS_LOCK_TIMEOUT" in failed
    assert not out.exists()


def test_a_lock_that_is_let_go_lets_the_command_work(
    door: str, here: Path, out: Path, holder: Piped
) -> None:
    child = forked(here, command(door), RLDS_LOCK_TIMEOUT="90")
    assert child.error_line().startswith("waiting for another process")
    holder.finish("\n")
    assert child.finish()[0] == 0
    assert_whole(out, door)


def test_the_lock_of_a_killed_process_is_free(
    door: str, here: Path, out: Path, holder: Piped
) -> None:
    holder.kill()
    holder.finish()
    assert forked(here, command(door), RLDS_LOCK_TIMEOUT="5").finish()[0] == 0
    assert_whole(out, door)


def test_every_process_and_spelling_of_a_destination_has_the_same_lock(
    door: str,
    here: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    holder: Piped,
    config: Config,
) -> None:
    """Also one that has another folder for temporary files, or comes by a link."""
    (tmp_path / "link").symlink_to(config.root / "datasets" / "derived")
    monkeypatch.setenv("RLDS_LOCK_TIMEOUT", "0.1")
    monkeypatch.setenv("TMPDIR", str(here))
    replay = ExperienceReplay(door, download=False)
    for dest in (tmp_path / "link" / "out", f"{config.root}/datasets/derived/../derived/out"):
        with pytest.raises(LockedError):
            replay.preprocess(lambda batch: batch, dest=dest, num_workers=0)


def test_a_python_user_who_waits_is_told_in_the_log(
    door: str,
    here: Path,
    out: Path,
    holder: Piped,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RLDS_LOCK_TIMEOUT", "1.2")
    done = preloaded("-c", SMALL_PARTS + IN_PYTHON, door, str(out), folder=here)
    assert done.returncode == 1
    warning, _, rest = done.stderr.partition("\n")
    assert f"UnverifiedDataset: {door} is unverified" in warning
    assert rest.startswith(f"waiting for another process that works on {out}")
    assert "LockedError: Another process has worked on" in done.stderr


def test_a_run_killed_in_the_middle_goes_on_where_it_was(door: str, here: Path, out: Path) -> None:
    assert forked(here, command(door, "dies_once")).finish()[0] == -signal.SIGKILL
    assert not out.exists()
    calls = len((here / "calls").read_text())
    assert forked(here, command(door, "dies_once")).finish()[0] == 0
    assert 1 < calls < len((here / "calls").read_text()) <= 8 + 2  # the first rows are tried twice
    assert_whole(out, door)


def test_a_run_killed_before_the_last_rename_is_finished_by_the_next(
    door: str, here: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.rename

    def die_or_rename(source: Any, target: Any) -> None:
        if str(target).endswith("out"):
            os.kill(os.getpid(), signal.SIGKILL)
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", die_or_rename)
        child = forked(here, command(door))
    assert child.finish()[0] == -signal.SIGKILL
    assert not out.exists()
    assert list(CacheRoot(out.parents[2]).installed()) == [door]
    assert forked(here, command(door)).finish()[0] == 0
    assert_whole(out, door)


def test_a_destination_that_another_run_filled_meanwhile_is_kept(
    door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where locks do not work, the first run that is done keeps the name."""
    dest = tmp_path / "out"

    def fill(batch: Any) -> Any:
        dest.mkdir(exist_ok=True)
        (dest / "theirs").write_text("precious")
        return batch

    replay = ExperienceReplay(door, download=False)
    check = "datasets_cli.preprocessing.origin.check_destination"
    monkeypatch.setattr(check, lambda dest: None)
    with pytest.raises(UsageError, match="is not empty"):
        replay.preprocess(fill, dest=dest, num_workers=0)
    assert (dest / "theirs").read_text() == "precious"


def test_what_the_process_that_was_waited_for_made_is_not_new(
    door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked, made = execution.dest_locked, []

    def same(batch: Any) -> Any:
        return batch

    @contextmanager
    def wait(*arguments: Any) -> Iterator[None]:
        monkeypatch.setattr(execution, "dest_locked", locked)
        made.append(datasets_cli.preprocess(door, same, "out"))
        with locked(*arguments):
            yield

    monkeypatch.setattr(execution, "dest_locked", wait)
    result = datasets_cli.preprocess(door, same, "out")
    assert (made[0].unchanged, result.unchanged) == (False, True)


def test_what_another_process_made_of_the_same_files_is_taken_where_locks_do_not_work(
    door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay, dest, commit = (
        ExperienceReplay(door, download=False),
        tmp_path / "new" / "out",
        execution.commit,
    )

    def preprocess() -> Any:
        return replay.preprocess(lambda batch: batch, dest=dest, num_workers=0)

    def be_slower(*arguments: Any) -> Any:
        monkeypatch.setattr(execution, "commit", commit)
        preprocess()
        return commit(*arguments)

    monkeypatch.setattr(execution, "dest_locked", lambda *_: nullcontext())
    monkeypatch.setattr(execution, "commit", be_slower)
    assert len(preprocess()) == 1495
    assert_whole(dest, door)
