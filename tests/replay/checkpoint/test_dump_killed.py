"""A process killed at any system call of a dump over an older one leaves the old or the new one."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from datasets_cli import (
    LazyTensorStorage,
    OfflineToOnline,
    PrioritizedSampler,
    RandomSampler,
    ReplayBuffer,
    ReplayBufferEnsemble,
    TensorDictReplayBuffer,
)
from datasets_cli.errors import DamagedDataset, UsageError
from datasets_cli.replay.checkpoint import dump_folder

CALLS = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir"}
"""Python says when it makes one of these; a write is one of C's, and has a test of its own."""


def member(count: int, is_new: bool) -> ReplayBuffer:
    """Return a buffer whose dump has other parts, and other rows, by age."""
    sampler: Any = RandomSampler() if is_new else PrioritizedSampler(8, 0.7, 0.5)
    generator = {} if is_new else {"generator": torch.Generator()}
    buffer = ReplayBuffer(storage=LazyTensorStorage(8), sampler=sampler, **generator)
    numbers = torch.arange(count) + 100 * is_new
    nested = TensorDict({"number": numbers}, [count])
    buffer.extend(TensorDict({"number": numbers, "next": nested}, [count]))
    return buffer


def buffer_of(is_new: bool) -> ReplayBuffer:
    return member(3 + is_new, is_new)


def ensemble_of(is_new: bool) -> ReplayBufferEnsemble:
    generator = None if is_new else torch.Generator()
    members = [member(3 + is_new, is_new) for _ in range(2)]
    return ReplayBufferEnsemble(*members, generator=generator)


def pair_of(is_new: bool) -> OfflineToOnline:
    def one(count: int) -> TensorDictReplayBuffer:
        buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(8))
        buffer.extend(TensorDict({"number": torch.arange(count) + 100 * is_new}, [count]))
        return buffer

    return OfflineToOnline(one(3 + is_new), one(2), batch_size=2)


def kept(buffer: Any) -> str:
    """Return the rows of a buffer, or of each of several, and where the next one goes."""
    members = [buffer]
    if isinstance(buffer, ReplayBufferEnsemble):
        members = list(buffer.buffers)
    if isinstance(buffer, OfflineToOnline):
        members = [buffer.offline, buffer.online]
    return repr([(member[:].to_dict(), member.writer.state_dict()) for member in members])


def files_of(folder: Path) -> str:
    """Return all that is in a folder, but for what was written of a dump that is not whole."""
    paths = [path for path in folder.rglob("*") if ".partial" not in path.parts]
    return repr(sorted((str(path), path.is_dir() or path.read_bytes()) for path in paths))


def read(make: Callable[[bool], Any], folder: Path) -> str:
    for is_new in (True, False):
        found = make(is_new)
        with suppress(UsageError):  # each is refused by the other's sampler
            found.loads(folder)
            return kept(found)
    raise AssertionError(folder)


def ends_by(signals: set[int], function: Callable[[], object], arm: Callable[[], object]) -> bool:
    """Call a function in a forked process; return whether a signal that ``arm`` sets ended it."""
    number = os.fork()
    if not number:
        status = 1
        try:
            torch.set_num_threads(1)
            arm()
            function()
            status = 0
        finally:
            os._exit(status)
    status = os.waitpid(number, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    assert not os.WIFSIGNALED(status) or os.WTERMSIG(status) in signals
    return os.WIFSIGNALED(status)


def kill_at(point: int) -> Callable[[], None]:
    """Return what has this process killed at a system call, before it is made."""
    calls = iter(range(point))

    def count() -> None:
        if next(calls, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    def arm() -> None:
        os.fsync = lambda descriptor: count()
        sys.addaudithook(lambda event, _: count() if event in CALLS else None)

    return arm


def points(function: Callable[[], object]) -> Iterator[int]:
    """Yield each system call after a process was killed there, until there is none left."""
    point = 0
    while ends_by({signal.SIGKILL}, function, kill_at(point)):
        yield point
        point += 1
    assert point > 20


def check(make: Callable[[bool], Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what a folder has, which is the same where it cannot be written."""
    with monkeypatch.context() as patch:
        patch.setattr(dump_folder, "_finish", read_only)
        found = read(make, folder)
    assert read(make, folder) == found
    assert not (folder / ".next").exists()
    assert (folder / "notes.txt").read_text() == "the user's"
    return found


def read_only(folder: Path) -> None:
    if (folder / ".next").exists():
        raise PermissionError(30, "Read-only file system", str(folder))


SLOW = pytest.mark.slow  # a buffer is written as each member of these is


@pytest.mark.parametrize(
    "make",
    [buffer_of, pytest.param(ensemble_of, marks=SLOW), pytest.param(pair_of, marks=SLOW)],
)
def test_at_every_call_the_old_or_the_new_dump_is_whole(
    make: Callable[[bool], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = make(False), make(True)
    results = [kept(old), kept(new)]
    assert results[0] != results[1]
    old.dumps(tmp_path)
    (tmp_path / "notes.txt").write_text("the user's")
    found, untouched = [], files_of(tmp_path)
    for _ in points(lambda: new.dumps(tmp_path)):
        if files_of(tmp_path) == untouched:
            found.append(0)
            continue
        shutil.copytree(tmp_path, tmp_path.with_name("copy"))
        found.append(results.index(check(make, tmp_path, monkeypatch)))
        shutil.rmtree(tmp_path)
        tmp_path.with_name("copy").rename(tmp_path)
        old.dumps(tmp_path)  # over whatever was left
        assert read(make, tmp_path) == results[0]
    assert read(make, tmp_path) == results[1]
    assert found == sorted(found) and found.count(0) > 10 and found.count(1) > 10


@pytest.mark.parametrize("make", [buffer_of, pytest.param(ensemble_of, marks=SLOW)])
def test_who_loads_finishes_and_may_be_killed_too(
    make: Callable[[bool], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new, folder, right = make(False), make(True), tmp_path / "folder", tmp_path / "right"
    old.dumps(folder)
    (folder / "notes.txt").write_text("the user's")
    finish = dump_folder._finish
    with monkeypatch.context() as patch:
        patch.setattr(dump_folder, "_finish", lambda path: path == folder or finish(path))
        new.dumps(folder)
    shutil.copytree(folder, right)
    for _ in points(lambda: read(make, folder)):
        assert check(make, folder, monkeypatch) == kept(new)
        shutil.rmtree(folder)
        shutil.copytree(right, folder)


def test_a_write_that_is_cut_off_leaves_the_old_dump(tmp_path: Path) -> None:
    old, new = buffer_of(False), buffer_of(True)
    old.dumps(tmp_path)
    for size in (0, 1, 7, 20, 31, 33, 100):
        limit = (size, resource.RLIM_INFINITY)

        def arm(limit: tuple[int, int] = limit) -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)

        assert ends_by({signal.SIGXFSZ}, lambda: new.dumps(tmp_path), arm), size
        assert read(buffer_of, tmp_path) == kept(old)
    assert not ends_by(set(), lambda: new.dumps(tmp_path), lambda: None)
    assert read(buffer_of, tmp_path) == kept(new)


def test_a_smaller_ensemble_leaves_no_older_member_and_every_file_of_the_users(
    tmp_path: Path,
) -> None:
    ReplayBufferEnsemble(*[member(3, False) for _ in range(3)]).dumps(tmp_path)
    (tmp_path / "7").mkdir()
    for name in ("notes.txt", "0/notes.txt", "2/notes.txt", "7/notes.txt"):
        (tmp_path / name).write_text("the user's")
    ensemble_of(True).dumps(tmp_path)
    assert read(ensemble_of, tmp_path) == kept(ensemble_of(True))
    for name in ("notes.txt", "0/notes.txt", "2/notes.txt", "7/notes.txt"):
        assert (tmp_path / name).read_text() == "the user's"
    assert [path.name for path in (tmp_path / "2").iterdir()] == ["notes.txt"]
    buffer_of(True).dumps(tmp_path)  # which has no members, and is another dump in the same folder
    assert read(ensemble_of, tmp_path) == kept(ensemble_of(True))


@pytest.mark.parametrize("names", [["../other"], ["notes.txt"], ["a/b"], [7], "storage", None])
def test_only_parts_of_a_dump_are_moved_or_removed(tmp_path: Path, names: Any) -> None:
    buffer_of(False).dumps(tmp_path / "dump")
    (tmp_path / "dump" / "notes.txt").write_text("the user's")
    (tmp_path / "dump" / ".next").mkdir()
    (tmp_path / "dump" / ".next" / "parts.json").write_text(json.dumps({"new": [], "old": names}))
    before = sorted(path for path in tmp_path.rglob("*"))
    for call in (buffer_of(True).loads, buffer_of(True).dumps):
        with pytest.raises(DamagedDataset, match=r"parts\.json"):
            call(tmp_path / "dump")
    assert sorted(path for path in tmp_path.rglob("*")) == before


def test_a_link_in_place_of_a_dump_that_is_whole_is_refused(tmp_path: Path) -> None:
    buffer_of(False).dumps(tmp_path / "dump")
    buffer_of(True).dumps(tmp_path / "other")
    (tmp_path / "dump" / ".next").symlink_to(tmp_path / "other")
    with pytest.raises(DamagedDataset, match=r"\.next is not a folder"):
        read(buffer_of, tmp_path / "dump")
