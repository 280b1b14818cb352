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
from datasets_cli.parallel import expectation
from datasets_cli.parallel.cluster import Cluster
from datasets_cli.parallel.expectation import refuse_unfit
from datasets_cli.parallel.user_modules import is_stale
from datasets_cli.parallel.workers import imported_sources, pickle_by_value
from datasets_cli.preprocessing.task import WorkerNeeds

CODE = "import torch\ndef scaled(batch):\n    batch['action'] *= {}\n    return batch\n"


class Elsewhere(Executor):
    """Runs tasks here, as a process that has not worked for this run yet."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        expectation._fit.clear()
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
            here = expectation.versions_here()
            monkeypatch.setattr(expectation, "versions_here", lambda: here | {library: "0.1"})
            return super().submit(*arguments, **options)

    message = rf"process \d+, cannot take part: it has {library} 0\.1, and .* is expected\. Equal"
    with pytest.raises(RldsError, match=message):
        replay.preprocess(lambda batch: batch, dest=tmp_path / "out", executor=Older())
    assert not (tmp_path / "out").exists()


def test_a_worker_that_does_not_share_the_files_is_refused(
    replay: ExperienceReplay, tmp_path: Path
) -> None:
    class Apart(Elsewhere):
        def submit(self, fn: Any, /, *args: Any, **options: Any) -> Future[Any]:
            next(tmp_path.glob(".out.*/token")).write_text("of another folder of that name")
            return super().submit(fn, *args, **options)

    with pytest.raises(RldsError, match=r"does not see the folder .*\.partial: it must have the"):
        replay.preprocess(lambda batch: batch, dest=tmp_path / "out", executor=Apart())


def needs(replay: ExperienceReplay, folder: Path, function: Any, elsewhere: bool) -> WorkerNeeds:
    pickled = pickle_by_value(function, elsewhere)
    return WorkerNeeds.of_this_process(folder, pickled, replay.storage.dataset)


def test_a_worker_with_other_data_or_none_is_refused(
    replay: ExperienceReplay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = needs(replay, tmp_path, len, False)
    assert found.differences() == []
    other = WorkerNeeds(found.expected, found.source, "other")
    assert other.differences() == [f"{found.source} has other data there"]
    none = WorkerNeeds(found.expected, tmp_path, found.content)
    assert "it cannot read the dataset" in none.differences()[0]
    with pytest.raises(RldsError, match="has other data than when the run began"):
        monkeypatch.setattr(expectation, "_fit", {other.expected.secret})
        other.open()


def test_a_module_with_another_text_is_refused(
    replay: ExperienceReplay, module: ModuleType, tmp_path: Path
) -> None:
    found = needs(replay, tmp_path, module.scaled, False)
    (tmp_path / "mapping_of_a_user.py").write_text(CODE.format(3))
    (difference,) = found.differences()
    assert difference.startswith("its module mapping_of_a_user (")
    assert difference.endswith(") has another text than the one here")


def test_a_module_that_was_imported_before_an_edit_is_refused(
    replay: ExperienceReplay, module: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "mapping_of_a_user.py").write_text(CODE.format(3))
    importlib.reload(module)
    found = needs(replay, tmp_path, module.scaled, False)
    exec(CODE.format(2), old := {"__name__": module.__name__})
    old["scaled"].__code__ = old["scaled"].__code__.replace(co_filename=module.__file__)
    module.scaled = old["scaled"]  # type: ignore[attr-defined]
    assert is_stale(module)
    assert "imported the module mapping_of_a_user before" in found.differences()[0]


def test_a_function_travels_by_value_where_its_file_is_not_installed_or_was_edited(
    module: ModuleType, tmp_path: Path
) -> None:
    assert imported_sources(pickle_by_value(module.scaled)).keys() == {"mapping_of_a_user"}
    assert not imported_sources(pickle_by_value(module.scaled, elsewhere=True))
    (tmp_path / "mapping_of_a_user.py").write_text(CODE.format(3))
    assert not imported_sources(pickle_by_value(module.scaled))


class Asked(Cluster):
    """A cluster whose workers answer what they are told to."""

    def __init__(self, *answers: Any) -> None:
        self._answers = answers

    def ask_each(self, function: Callable[[Any], Any], argument: Any) -> dict[str, Any]:
        return {f"tcp://host:{number}": each for number, each in enumerate(self._answers)}

    def actor(self, kind: type, argument: Any) -> Any:
        raise NotImplementedError

    def put(self, value: Any) -> Any:
        raise NotImplementedError


def test_each_worker_of_a_cluster_that_differs_is_named() -> None:
    old = ModuleNotFoundError("No module named 'datasets_cli'", name="datasets_cli")
    cluster = Asked([], ["it is odd", "it is old"], old, OSError("gone"), ["a"], ["b"])
    with pytest.raises(RldsError) as caught:
        refuse_unfit(cluster, len, [], "All is kept.")
    assert str(caught.value).startswith(
        "The worker tcp://host:1 cannot take part: it is odd, and it is old; "
        "the worker tcp://host:2 cannot take part: it has no rlds-cli "
    )
    assert "OSError: gone; and 2 more. Equal bytes need" in str(caught.value)
    assert str(caught.value).endswith("All is kept.")
    refuse_unfit(Asked([], []), len, [], "")


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
