"""The same bytes from processes, Dask and Ray; what is lost on the way; who may not take part."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

import datasets_cli
from datasets_cli import ExperienceReplay
from datasets_cli.core.progress import File, Note, Rows
from datasets_cli.errors import RldsError
from datasets_cli.store.manifest import read_manifest
from tests.support.clusters import DaskCluster, ray_cluster
from tests.support.events import Events

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    with DaskCluster(tmp_path_factory.mktemp("dask")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def ray() -> Iterator[None]:
    with ray_cluster():
        yield


@pytest.fixture
def replay(door: str) -> ExperienceReplay:
    return ExperienceReplay(door, download=False)


def noisy(batch: TensorDict) -> TensorDict:
    """A random function, with a reduction whose bits depend on the number of threads."""
    noise = torch.rand(len(batch), 3) + batch["observation"].mean()
    return TensorDict({"noise": noise, "action": batch["action"]}, batch.batch_size)


def hashes(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


@pytest.mark.parametrize(("per", "chunksize"), [("transition", 400), ("trajectory", 1)])
def test_the_bytes_are_the_same_for_every_engine(
    per: Any, chunksize: int, replay: ExperienceReplay, tmp_path: Path, dask: DaskCluster, ray: None
) -> None:
    engines: dict[str, dict[str, Any]] = {
        **{str(number): {"num_workers": number} for number in (0, 1, 3)},
        "dask": {"engine": "dask", "address": dask.address},
        "ray": {"engine": "ray"},
    }
    found = {}
    for name, engine in engines.items():
        dest = tmp_path / name / "out"
        dest.parent.mkdir()
        replay.preprocess(noisy, dest=dest, per=per, chunksize=chunksize, **engine)
        found[name] = hashes(dest)
    assert len(found["0"]) > 3
    assert all(files == found["0"] for files in found.values())


def dies_once(batch: TensorDict, mark: Path) -> TensorDict:
    if int(batch["episode"][0]) == 2 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return batch.select("action")


def raises(batch: TensorDict) -> TensorDict:
    if int(batch["episode"][0]) == 3:
        raise ValueError("the fourth")
    return batch


@pytest.mark.parametrize("engine", ["dask", "ray"])
def test_a_function_that_raises_on_a_cluster_is_named_by_its_line_and_trajectory(
    engine: Any, replay: ExperienceReplay, tmp_path: Path, dask: DaskCluster, ray: None
) -> None:
    address = dask.address if engine == "dask" else None
    named = (
        r"^The function failed on .*\(trajectory 3\): ValueError: the fourth \(.* in raises\)\.$"
    )
    with pytest.raises(RldsError, match=named):
        replay.preprocess(
            raises, dest=tmp_path / "out", engine=engine, address=address, chunksize=1
        )
    assert not (tmp_path / "out").exists()


class Kills:
    """A progress that kills a cluster once, when the first rows are done."""

    def __init__(self, cluster: DaskCluster) -> None:
        self._clusters = [cluster]

    def __call__(self, event: File | Rows | Note) -> None:
        if isinstance(event, Rows) and event.done and self._clusters:
            self._clusters.pop().kill()


def made(door: str, out: str, mark: Path, **arguments: Any) -> dict[str, Any]:
    function = partial(dies_once, mark=mark)
    dataset = datasets_cli.preprocess(door, function, out, chunksize=1, **arguments)
    return dict(read_manifest(dataset.path).files)


def test_lost_workers_and_a_lost_scheduler_of_dask_change_no_byte(
    door: str, tmp_path: Path
) -> None:
    mark = tmp_path / "killed"
    with DaskCluster(tmp_path) as cluster:
        engine: Any = {"engine": "dask", "address": cluster.address}
        lost = rf"The scheduler of Dask at {cluster.address} was lost.*Finished chunks are kept"
        with pytest.raises(RldsError, match=lost):
            made(door, "out", mark, progress=Kills(cluster), **engine)
        cluster.start()
        found = made(door, "out", mark, **engine)
    assert mark.exists() and found == made(door, "alone", mark)


def test_a_lost_worker_of_ray_is_told_and_changes_no_byte(
    door: str, tmp_path: Path, ray: None
) -> None:
    events, mark = Events(), tmp_path / "killed"
    found = made(door, "out", mark, progress=events, engine="ray")
    assert mark.exists() and found == made(door, "alone", mark)
    (lost,) = [note for note in events.notes if note.startswith("the worker ")]
    assert lost.startswith(
        "the worker of rows 598 to 896 of d4rl/door-human-v0 (trajectory 2) died"
    )


OTHER_WORKERS = """
import os, pathlib
number = os.environ["RLDS_TEST_WORKER"]
if number == "0":
    import datasets_cli.version
    datasets_cli.version.__version__ = "0.0.1"
if number == "1":
    def not_shared(path, *arguments, read_text=pathlib.Path.read_text, **options):
        if path.name == "token":
            raise FileNotFoundError(path)
        return read_text(path, *arguments, **options)
    pathlib.Path.read_text = not_shared
"""


def test_a_worker_that_differs_is_refused_before_its_first_task(
    replay: ExperienceReplay, tmp_path: Path
) -> None:
    with DaskCluster(tmp_path, 2, OTHER_WORKERS) as cluster, pytest.raises(RldsError) as caught:
        replay.preprocess(noisy, dest=tmp_path / "out", engine="dask", address=cluster.address)
    (difference,) = caught.value.found
    assert difference.startswith(("rlds-cli is 0.0.1, expected", "the folder "))
    assert not list(tmp_path.glob(".out.*.partial/parts/*.done"))
