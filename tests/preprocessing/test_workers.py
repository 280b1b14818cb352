"""Workers of a preprocess run: killed, lost, or different from this process."""

from __future__ import annotations

import importlib
import os
import random
import signal
import sys
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from tensordict import TensorDict

import datasets_cli
from datasets_cli import ExperienceReplay
from datasets_cli.errors import RldsError
from datasets_cli.parallel import cluster
from datasets_cli.parallel.workers import pickle_by_value
from datasets_cli.preprocessing.function import RowFunction
from datasets_cli.preprocessing.task import open_source
from datasets_cli.store.manifest import read_manifest
from tests.support.events import Events
from tests.support.refusals import refused


def dies_at(first_actions: list[bytes], marks: Path, times: int = 1) -> RowFunction:
    """A function that kills its process at the chunks that begin with some actions."""

    def doubled(batch: TensorDict) -> TensorDict:
        first = batch["action"][0].numpy().tobytes()
        if first in first_actions:
            deaths = len(list(marks.glob(f"{first_actions.index(first)}-*")))
            if deaths < times:
                (marks / f"{first_actions.index(first)}-{deaths}").touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return TensorDict({"action": batch["action"] * 2}, batch.batch_size)

    return doubled


def starts(door: str, chunksize: int) -> list[bytes]:
    actions = ExperienceReplay(door, download=False)["action"].numpy()
    return [action.tobytes() for action in actions[chunksize::chunksize]]


def files(dataset: Any) -> dict[str, Any]:
    return dict(read_manifest(dataset.path).files)


@pytest.mark.parametrize("count", [2, pytest.param(10, marks=pytest.mark.slow)])
def test_killed_workers_are_told_and_change_no_byte(count: int, door: str, tmp_path: Path) -> None:
    fatal, events = random.sample(starts(door, 50), count), Events()
    options: dict[str, Any] = {"per": "transition", "chunksize": 50}
    found = datasets_cli.preprocess(
        door, dies_at(fatal, tmp_path), "out", num_workers=2, progress=events, **options
    )
    deaths = [note for note in events.notes if note.startswith("the worker of rows ")]
    assert len(list(tmp_path.glob("*-0"))) == len(deaths) == count
    assert files(found) == files(
        datasets_cli.preprocess(door, dies_at([], tmp_path), "alone", **options)
    )


def test_a_chunk_that_kills_every_worker_is_named_and_the_rest_is_kept(
    door: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"per": "transition", "chunksize": 299, "num_workers": 2}
    function = dies_at(starts(door, 299)[1:2], tmp_path, times=3)
    named = (
        r"rows 598 to 896 of d4rl/door-human-v0 \(trajectory 2\): the last one was killed by "
        r"SIGKILL.*are kept in"
    )
    with pytest.raises(RldsError, match=named):
        datasets_cli.preprocess(door, function, "out", **options)
    found = datasets_cli.preprocess(door, function, "out", **options)
    assert found.num_transitions == 1495 and not found.unchanged


DIED = r"A worker process died.*Finished chunks are kept"


class SchedulerGone(Exception):
    """What a cluster's own client says, which this program knows nothing of."""


LOST = [(BrokenExecutor("lost"), False, DIED), (BrokenProcessPool("killed"), True, DIED)]
LOST += [(CancelledError(), False, DIED), (SchedulerGone("gone"), False, "^gone$")]


class Losing(Executor):
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


def doubled(batch: TensorDict) -> TensorDict:
    return TensorDict({"x": batch["action"] * 2}, batch.batch_size)


@pytest.mark.parametrize(("error", "at_submit", "told"), LOST)
def test_lost_workers_are_told_and_the_next_run_continues(
    error: Exception, at_submit: bool, told: str, door: str, tmp_path: Path
) -> None:
    replay, dest = ExperienceReplay(door, download=False), tmp_path / "out"

    def preprocess(executor: Executor | None, to: Path = dest) -> dict[str, Any]:
        replay.preprocess(doubled, dest=to, executor=executor, chunksize=1, num_workers=0)
        return dict(read_manifest(to).files)

    broken = Losing(2, error, at_submit)
    raised = RldsError if told == DIED else type(error)
    with pytest.raises(raised, match=told) as caught:
        preprocess(broken)
    assert getattr(caught.value, "exit_code", 1) == 1 and not dest.exists()
    whole = Losing(99, error, at_submit)
    assert preprocess(whole) == preprocess(None, tmp_path / "alone")
    assert (len(broken.done), len(whole.done)) == (2, 3)  # five trajectories, no task twice
    assert sorted(path.name for path in tmp_path.glob("[.ao]*")) == ["alone", "out"]


CODE = "import torch\ndef scaled(batch):\n    batch['action'] *= {}\n    return batch\n"


class Elsewhere(Executor):
    """Runs tasks here, as a process that has not worked for this run yet."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        cluster._passed.clear()
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@pytest.fixture
def replay(door: str) -> ExperienceReplay:
    return ExperienceReplay(door, download=False)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mapping_of_a_user.py").write_text(CODE.format(2))
    sys.modules.pop("mapping_of_a_user", None)
    return importlib.import_module("mapping_of_a_user")


def test_a_worker_that_is_like_this_process_may_work(
    replay: ExperienceReplay, module: ModuleType, tmp_path: Path
) -> None:
    storage = replay.preprocess(module.scaled, dest=tmp_path / "out", executor=Elsewhere())
    assert torch.equal(storage.column(("action",)), replay["action"] * 2)


def test_a_worker_of_another_version_is_refused(
    replay: ExperienceReplay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    libraries = ["rlds-cli", "Python", "torch", "the zstd library"]

    class Older(Elsewhere):
        def submit(self, *arguments: Any, **options: Any) -> Future[Any]:
            here = cluster.versions_here()
            monkeypatch.setattr(
                cluster, "versions_here", lambda: here | dict.fromkeys(libraries, "0.1")
            )
            return super().submit(*arguments, **options)

    expected = cluster.versions_here()
    found = [f"{library} is 0.1, expected {expected[library]}" for library in libraries]
    with refused(RldsError, found=found):
        replay.preprocess(lambda batch: batch, dest=tmp_path / "out", executor=Older())
    assert not (tmp_path / "out").exists()


def test_a_worker_that_does_not_share_the_files_is_refused(
    replay: ExperienceReplay, tmp_path: Path
) -> None:
    class Apart(Elsewhere):
        def submit(self, fn: Any, /, *args: Any, **options: Any) -> Future[Any]:
            next(tmp_path.glob(".out.*/token")).write_text("of another folder of that name")
            return super().submit(fn, *args, **options)

    with pytest.raises(RldsError) as caught:
        replay.preprocess(lambda batch: batch, dest=tmp_path / "out", executor=Apart())
    (difference,) = caught.value.found
    assert difference.startswith(f"the folder {tmp_path}/.out.")


def test_a_worker_with_other_data_is_refused(replay: ExperienceReplay) -> None:
    dataset = replay.storage.dataset
    with refused(RldsError, expected="other", found=dataset.manifest.content, path=dataset.folder):
        open_source(dataset.folder, "other")


def test_a_function_travels_by_value_where_its_file_is_not_installed_or_was_edited(
    module: ModuleType, tmp_path: Path
) -> None:
    assert b"cloudpickle" not in pickle_by_value(module.scaled), "its name is enough"
    assert b"cloudpickle" in pickle_by_value(module.scaled, elsewhere=True)
    (tmp_path / "mapping_of_a_user.py").write_text(CODE.format(3))
    assert b"cloudpickle" in pickle_by_value(module.scaled)


def random_rows(batch: TensorDict) -> TensorDict:
    return TensorDict({"noise": torch.rand(len(batch), 50)}, batch.batch_size)


def test_tasks_in_threads_of_one_process_do_not_mix_their_seeds(
    replay: ExperienceReplay, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"per": "transition", "chunksize": 20}
    alone = replay.preprocess(random_rows, dest=tmp_path / "alone", num_workers=0, **options)
    threads = torch.get_num_threads()
    with ThreadPoolExecutor(4) as pool:
        found = replay.preprocess(random_rows, dest=tmp_path / "out", executor=pool, **options)
    assert found.dataset.manifest.files == alone.dataset.manifest.files
    assert torch.get_num_threads() == threads
