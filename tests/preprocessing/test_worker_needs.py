"""Workers that would give other bytes are refused, by the first task too."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from datasets_cli import ExperienceReplay
from datasets_cli.errors import RldsError
from datasets_cli.parallel import cluster
from datasets_cli.parallel.workers import pickle_by_value
from datasets_cli.preprocessing.task import open_source
from tests.support.refusals import refused

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


@pytest.mark.parametrize("library", ["rlds-cli", "Python", "torch", "the zstd library"])
def test_a_worker_of_another_version_is_refused(
    library: str, replay: ExperienceReplay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Older(Elsewhere):
        def submit(self, *arguments: Any, **options: Any) -> Future[Any]:
            here = cluster.versions_here()
            monkeypatch.setattr(cluster, "versions_here", lambda: here | {library: "0.1"})
            return super().submit(*arguments, **options)

    expected = cluster.versions_here()[library]
    with refused(RldsError, found=[f"{library} is 0.1, expected {expected}"]):
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
