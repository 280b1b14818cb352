"""Workers of a caller's executor that are lost: told, and continued by the same call."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest
from tensordict import TensorDict

from datasets_cli.errors import RldsError
from datasets_cli.experience.replay import ExperienceReplay
from datasets_cli.store.manifest import read_manifest

LOST = [BrokenExecutor("lost"), BrokenProcessPool("killed"), CancelledError()]


class Cluster(Executor):
    """Runs tasks at once, and has lost all its workers after some of them."""

    def __init__(self, num_tasks: int, error: Exception, at_submit: bool) -> None:
        self.done: list[Any] = []
        self._num_tasks, self._error, self._at_submit = num_tasks, error, at_submit

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if len(self.done) < self._num_tasks:
            self.done.append(args)
            future.set_result(fn(*args, **kwargs))
        elif self._at_submit:
            raise self._error
        else:
            future.set_exception(self._error)
        return future


class SchedulerGone(Exception):
    """What a cluster's own client says, which this program knows nothing of."""


def doubled(batch: TensorDict) -> TensorDict:
    return TensorDict({"x": batch["action"] * 2}, batch.batch_size)


@pytest.mark.parametrize("at_submit", [False, True])
@pytest.mark.parametrize("error", LOST, ids=lambda error: type(error).__name__)
def test_lost_workers_are_told_and_the_next_run_continues(
    error: Exception, at_submit: bool, door: str, tmp_path: Path
) -> None:
    replay, dest = ExperienceReplay(door, download=False), tmp_path / "out"

    def preprocess(executor: Executor | None, to: Path = dest) -> dict[str, Any]:
        replay.preprocess(doubled, dest=to, executor=executor, chunksize=1, num_workers=0)
        return dict(read_manifest(to).files)

    broken = Cluster(2, error, at_submit)
    with pytest.raises(
        RldsError, match=r"A worker process died.*Finished chunks are kept"
    ) as caught:
        preprocess(broken)
    assert caught.value.exit_code == 1 and not dest.exists()
    whole = Cluster(99, error, at_submit)
    assert preprocess(whole) == preprocess(None, tmp_path / "alone")
    assert (len(broken.done), len(whole.done)) == (2, 3)  # five trajectories, no task twice
    assert sorted(path.name for path in tmp_path.glob("[.ao]*")) == ["alone", "out"]


def test_an_error_of_the_clusters_own_is_raised_and_what_is_done_is_kept(
    door: str, tmp_path: Path
) -> None:
    replay, dest = ExperienceReplay(door, download=False), tmp_path / "out"
    broken, whole = (Cluster(count, SchedulerGone("gone"), at_submit=False) for count in (2, 99))
    with pytest.raises(SchedulerGone, match="gone"):
        replay.preprocess(doubled, dest=dest, executor=broken, chunksize=1, num_workers=0)
    assert not dest.exists()
    assert len(replay.preprocess(doubled, dest=dest, executor=whole, chunksize=1)) == len(replay)
    assert (len(broken.done), len(whole.done)) == (2, 3)  # no task twice
