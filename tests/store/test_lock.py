"""The lock: one holder at a time, a time limit, and a word while waiting."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from datasets_cli.core.progress import Progress, log_notes
from datasets_cli.errors import LockedError, NotWritable
from datasets_cli.store import lock
from datasets_cli.store.lock import dest_locked, locked
from tests.support.events import Events


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "locks" / "d4rl.lock"


def test_a_lock_is_let_go_after_an_error(path: Path) -> None:
    with pytest.raises(ZeroDivisionError), locked(path, "d4rl/x", 0):
        raise ZeroDivisionError
    with locked(path, "d4rl/x", 0):
        pass


def test_a_lock_file_that_somebody_else_removed_is_no_error(tmp_path: Path) -> None:
    with dest_locked(tmp_path / "out", 1.0):
        (file,) = tmp_path.iterdir()
        file.unlink()
    assert not [*tmp_path.iterdir()]


def test_a_held_lock_is_an_error_after_the_time_limit(path: Path) -> None:
    events = Events()
    with locked(path, "d4rl/x", 0):
        begun = time.monotonic()
        with (
            pytest.raises(LockedError) as caught,
            locked(path, "d4rl/x", 0.2, events),
        ):
            pass
        assert time.monotonic() - begun >= 0.2
        assert path.exists()  # it is the holder's
    assert caught.value.path == path
    assert caught.value.expected == "the lock within 0.2 s"
    assert events.notes == []  # a moment is not worth a word


def test_a_lock_that_cannot_be_made_is_not_waited_for() -> None:
    begun = time.monotonic()
    with pytest.raises(NotWritable) as caught, dest_locked(Path("/proc/x"), 600):
        pass
    assert caught.value.path == Path("/proc")
    assert time.monotonic() - begun < 60


def test_who_waits_says_so_once_and_then_works(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lock, "QUIET_SECONDS", 0.1)
    done = []

    def wait(progress: Progress) -> None:
        with locked(path, "d4rl/x", 60, progress):
            done.append(progress)

    events = Events()
    with caplog.at_level(logging.WARNING), ThreadPoolExecutor(2) as pool:
        with locked(path, "d4rl/x", 0):
            waiting = [pool.submit(wait, each) for each in (events, log_notes)]
            time.sleep(0.4)
            assert done == []
        for future in waiting:
            future.result(30)
    text = "waiting for another process that works on d4rl/x (RLDS_LOCK_TIMEOUT: 60 s)"
    assert events.notes == [text]
    assert [record.getMessage() for record in caplog.records] == [text]


def test_many_holders_of_a_lock_never_overlap(path: Path) -> None:
    inside: list[int] = []
    most: list[int] = []

    def work(number: int) -> None:
        for _ in range(50):
            with locked(path, "d4rl/x", 60):
                inside.append(number)
                most.append(len(inside))
                inside.remove(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 200 and set(most) == {1}


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EBADF])
def test_a_file_system_without_locks_is_used_without(
    path: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with locked(path, "d4rl/x", 0), locked(path, "d4rl/x", 0):
        pass


def test_a_lock_file_of_another_user_is_locked_all_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.parent.mkdir()
    path.touch()
    opened = os.open

    def refuse_writing(name: Path, flags: int, mode: int = 0o777) -> int:
        if name == path and flags & os.O_RDWR:
            raise PermissionError(errno.EACCES, "not yours", str(name))
        return opened(name, flags, mode)

    monkeypatch.setattr(os, "open", refuse_writing)
    with locked(path, "d4rl/x", 0), pytest.raises(LockedError), locked(path, "d4rl/x", 0):
        pass
