"""A process killed at any system call of a dump over an older one leaves the old or the new one."""

from __future__ import annotations

import os
import resource
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
from datasets_cli.errors import WrongState

CALLS = {"open", "os.rename", "os.remove", "os.mkdir"}
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


def read(make: Callable[[bool], Any], folder: Path) -> str:
    for is_new in (True, False):
        found = make(is_new)
        with suppress(WrongState):  # each is refused by the other's sampler
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
    assert point > 4


@pytest.mark.parametrize("make", [buffer_of, ensemble_of, pair_of])
def test_at_every_call_the_old_or_the_new_dump_is_whole(
    make: Callable[[bool], Any], tmp_path: Path
) -> None:
    old, new = make(False), make(True)
    results = [kept(old), kept(new)]
    assert results[0] != results[1]
    old.dumps(tmp_path)
    (tmp_path / "notes.txt").write_text("the user's")
    found = []
    for _ in points(lambda: new.dumps(tmp_path)):
        found.append(results.index(read(make, tmp_path)))
        assert (tmp_path / "notes.txt").read_text() == "the user's"
        old.dumps(tmp_path)  # over what the killed process left
        assert read(make, tmp_path) == results[0]
        assert {path.name for path in tmp_path.iterdir()} == {"notes.txt", "buffer.pt"}
    assert read(make, tmp_path) == results[1]
    assert found == sorted(found) and {*found} == {0, 1}


def test_a_write_that_is_cut_off_leaves_the_old_dump(tmp_path: Path) -> None:
    old, new = buffer_of(False), buffer_of(True)
    old.dumps(tmp_path)
    for size in (0, 1, 100, 1000):
        limit = (size, resource.RLIM_INFINITY)

        def arm(limit: tuple[int, int] = limit) -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)

        assert ends_by({signal.SIGXFSZ}, lambda: new.dumps(tmp_path), arm), size
        assert read(buffer_of, tmp_path) == kept(old)
    assert not ends_by(set(), lambda: new.dumps(tmp_path), lambda: None)
    assert read(buffer_of, tmp_path) == kept(new)
