"""Several datasets at a time: the same files for any number of workers, in any order."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import datasets_cli
from datasets_cli import recipes
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.core.progress import silent
from datasets_cli.errors import DiskFull, PartialFailure, RldsError
from datasets_cli.install.fetch import Room
from datasets_cli.install.installation import SharedProgress, Threads
from datasets_cli.install.options import FailedDataset, InstalledDataset
from datasets_cli.parallel.cluster import TOKEN, WorkerCheck
from datasets_cli.sources.http import HostLimits, Http
from datasets_cli.sources.partial_download import PartialDownload
from datasets_cli.store.cache_root import CacheRoot
from tests.catalogue.conftest import clear
from tests.support.d4rl_files import save, steps
from tests.support.events import Events
from tests.support.origin import Fault, Origin, Stall
from tests.support.refusals import refused

BERKELEY = "http://rail.eecs.berkeley.edu/datasets/offline_rl/"
FILES = {
    "d4rl/maze2d-open-v0": "maze2d/maze2d-open-sparse.hdf5",
    "d4rl/maze2d-umaze-v0": "maze2d/maze2d-umaze-sparse.hdf5",
    "d4rl/maze2d-medium-v0": "maze2d/maze2d-medium-sparse.hdf5",
}
IDS = [*FILES, "demo/pong"]  # whose frames are parts


def published(origin: Origin, folder: Path) -> None:
    """Have a server answer with the files of the datasets."""
    for file in FILES.values():
        path = folder / Path(file).name
        save(path, steps(path, (4, 2), num_steps=3000))
        origin.put(file, path.read_bytes())


@pytest.fixture
def origin(tmp_path: Path) -> Iterator[Origin]:
    with Origin() as running:
        published(running, tmp_path)
        yield running


@pytest.fixture
def config(config: Config, origin: Origin) -> Config:
    return replace(config, mirrors=((BERKELEY, origin.url),))


def digest(root: Path) -> str:
    """Return one digest of the names and the bytes of all files of all datasets."""
    found = hashlib.sha256()
    for path in sorted((root / "datasets").rglob("*")):
        if path.is_file():
            found.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return found.hexdigest()


def download(
    config: Config, workers: int, on_result: Callable[[list[str]], None] | None = None
) -> list[str]:
    """Download all; return the ids as they were done."""
    ids: list[str] = []

    def add(result: InstalledDataset | FailedDataset) -> None:
        ids.append(result.id)
        if on_result:
            on_result(ids)

    found = datasets_cli.download(
        IDS, verify=False, num_workers=workers, on_result=add, progress=silent, config=config
    )
    assert [dataset.id for dataset in found.datasets] == IDS
    assert sorted(ids) == sorted(IDS)
    return ids


def test_any_number_of_workers_gives_the_same_files(config: Config, tmp_path: Path) -> None:
    digests = set()
    for workers in (0, 2):
        root = tmp_path / str(workers)
        download(replace(config, root=root), workers)
        digests.add(digest(root))
        assert not any((root / "tmp").iterdir())
        assert not [path for path in (root / "downloads").rglob("*") if path.is_file()]
    assert len(digests) == 1


def test_a_dataset_that_is_done_is_told_before_slower_ones(config: Config, origin: Origin) -> None:
    stall = Stall()
    origin.script(FILES[IDS[0]], Fault(stall=stall))

    def release(done: list[str]) -> None:
        if len(done) == len(IDS) - 1:
            stall.release.set()

    assert download(config, 2, release)[-1] == IDS[0]


def test_one_that_fails_is_named_and_the_others_are_installed(
    config: Config, origin: Origin
) -> None:
    origin.always(FILES[IDS[1]], Fault(body=b"\x89HDF\r\n\x1a\n" + bytes(1000)))
    done: list[InstalledDataset | FailedDataset] = []
    with pytest.raises(PartialFailure, match=f"1 of 4 datasets failed: {IDS[1]}") as caught:
        datasets_cli.download(
            IDS, verify=False, num_workers=2, on_result=done.append, config=config
        )
    results = caught.value.results
    assert [dataset.id for dataset in results.datasets] == [IDS[0], *IDS[2:]]
    (failure,) = results.failures
    assert failure.id == IDS[1] and IDS[1] in str(failure.error) and len(done) == 4
    assert not any((config.root / "tmp").iterdir())


def test_a_host_has_few_connections_at_a_time(config: Config, origin: Origin) -> None:
    hosts, most, lock = HostLimits(2), [0], threading.Lock()
    open_now = 0

    def ask(number: int) -> None:
        nonlocal open_now
        with Http(config, hosts=hosts).open(f"{origin.url}{FILES[IDS[0]]}") as answer:
            with lock:
                open_now += 1
                most[0] = max(most[0], open_now)
            time.sleep(0.02)
            answer.raw.read()
            with lock:
                open_now -= 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(16)))
    assert most == [2]


def test_the_downloads_of_a_run_share_the_limit_of_a_host(
    config: Config, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HostLimits.__init__, "__defaults__", (1,))
    stalls, at_once = [Stall() for _ in FILES], []
    for file, stall in zip(FILES.values(), stalls, strict=True):
        origin.script(file, Fault(stall=stall))

    def open_now() -> list[Stall]:
        return [each for each in stalls if each.reached.is_set() and not each.release.is_set()]

    def release() -> None:
        for _ in stalls:
            while not open_now():
                time.sleep(0.01)
            time.sleep(0.2)  # for another one to come
            at_once.append(len(open_now()))
            for stall in open_now():
                stall.release.set()

    threading.Thread(target=release).start()
    download(config, 1)
    assert at_once == [1, 1, 1]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_all_and_the_next_run_continues(
    number: int,
    code: int,
    config: Config,
    origin: Origin,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call = ["download", *IDS, "--workers", "2", "--no-verify", "--yes"]
    call += ["--mirror", f"{BERKELEY}={origin.url}"]
    write, sent = PartialDownload.write, threading.Lock()

    def write_and_send(self: PartialDownload, data: bytes) -> None:
        write(self, data)
        if sent.acquire(blocking=False):
            os.kill(os.getpid(), number)

    with monkeypatch.context() as patch:
        patch.setattr(PartialDownload, "write", write_and_send)
        assert main(call) == code
    # The signal may come while a thread starts; that one sees at its first line that all ends.
    for thread in threading.enumerate():
        if thread.name == "installs datasets":
            thread.join(5)
            assert not thread.is_alive()
    assert not [*(config.root / "tmp").glob("*")]
    assert main(call) == 0
    assert {
        dataset.id for dataset in datasets_cli.list_datasets(installed=True, config=config)
    } == {*IDS}
    assert not any((config.root / "tmp").iterdir())


FRAGILE = """
import os, signal
from pathlib import Path
import numpy as np
from datasets_cli.recipe import Block, CatalogueEntry, Recipe, Resource

HERE = Path(__file__).parent

def blocks(source):
    kills = HERE / f"{source.name}.kills"
    left = int(kills.read_text()) if kills.exists() else 0
    yield rows()
    if left:
        kills.write_text(str(left - 1))
        os.kill(os.getpid(), signal.SIGKILL)

def rows():
    values = np.arange(4000, dtype=np.float32).reshape(-1, 1)
    return Block({("observation",): values, ("action",): values, ("next", "reward"): values})

RECIPE = Recipe("fragile", 1, "", "", "", "", lambda web: [CatalogueEntry(n) for n in "ab"],
                lambda name, web: [], blocks)
"""


@pytest.fixture
def fragile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a recipe of the user's, whose files say how often a worker is killed."""
    monkeypatch.setattr(recipes, "__path__", [*recipes.__path__, str(tmp_path)])
    monkeypatch.setenv("RLDS_RECIPES", str(tmp_path))
    (tmp_path / "fragile.py").write_text(FRAGILE)
    clear()
    yield tmp_path
    clear()
    sys.modules.pop("datasets_cli.recipes.fragile", None)


def test_a_signal_before_a_thread_has_begun_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: threading.Thread) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(threading.Thread, "start", interrupted)
        with Threads(SharedProgress(silent)) as threads:
            next(threads.outcomes(["a"], lambda _: pytest.fail("it began"), 1))


def test_a_worker_that_is_killed_is_named_and_its_dataset_is_tried_again(
    config: Config, fragile: Path
) -> None:
    (fragile / "a.kills").write_text("1")
    events = Events()
    found = datasets_cli.download("fragile/*", num_workers=2, progress=events, config=config)
    assert [dataset.num_transitions for dataset in found.datasets] == [3999, 3999]
    (note,) = events.notes
    assert "the worker of fragile/a was killed by SIGKILL" in note
    assert not any((config.root / "tmp").iterdir())


def test_a_dataset_that_kills_every_worker_fails_and_the_others_are_installed(
    config: Config, fragile: Path
) -> None:
    (fragile / "a.kills").write_text("3")
    with pytest.raises(PartialFailure) as caught:
        datasets_cli.download("fragile/*", num_workers=1, progress=silent, config=config)
    (failure,) = caught.value.results.failures
    assert "fragile/a: the last one was killed by SIGKILL" in (message := str(failure.error))
    assert "The downloaded files are kept" in message
    assert [dataset.id for dataset in caught.value.results.datasets] == ["fragile/b"]
    assert not any((config.root / "tmp").iterdir())
    assert len(datasets_cli.download("fragile/*", num_workers=1, config=config).datasets) == 2


def test_a_dataset_without_room_beside_the_others_waits_for_them(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = SimpleNamespace(total=1 << 40, free=100)
    monkeypatch.setattr("datasets_cli.sources.disk.shutil.disk_usage", lambda path: free)
    root, room, events, order = CacheRoot(config.root), Room(), Events(), []

    def second() -> None:
        with room.reserved(root, "second", 60, events):
            order.append("second")

    with room.reserved(root, "first", 60, events), room.reserved(root, "small", 40, events):
        thread = threading.Thread(target=second)
        thread.start()
        while not events.notes:
            time.sleep(0.01)
        order.append("first")
    thread.join()
    assert order == ["first", "second"] and "second waits for room on the disk" in events.notes[0]
    with refused(DiskFull, found=100):
        room.reserved(root, "third", 101, events).__enter__()


def test_a_worker_that_does_not_see_the_files_is_refused(tmp_path: Path) -> None:
    raw = tmp_path / "raw.hdf5"
    needs = WorkerCheck(tmp_path, files=(raw,))
    (tmp_path / TOKEN).write_text(needs.secret)
    with refused(RldsError, found=[f"the file {raw} is missing"]):
        needs.check_here()
    raw.touch()
    needs.check_here()
    apart = replace(needs, secret="another").differences()
    assert apart == [f"the folder {tmp_path} is not on its file system"]
