"""What ``rlds preprocess`` alone makes of installed datasets: tables, once and in parallel."""

from __future__ import annotations

import errno
import fcntl
import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import datasets_cli
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.core.progress import File, Note, Rows
from datasets_cli.errors import DatasetNotInstalled, PartialFailure
from datasets_cli.project import statistics, tables
from datasets_cli.project.results import PreprocessResults
from datasets_cli.sources.new_files import replacing
from datasets_cli.store import lock
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.check import folder_size
from datasets_cli.store.dataset import open_dataset
from datasets_cli.store.manifest import read_manifest, write_manifest
from datasets_cli.store.tables import load_summary
from tests.project.conftest import DEMOS

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def here(
    config: Config, root_with_demos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Config:
    """Two installed datasets, and a folder without ``rlds.toml``."""
    shutil.copytree(root_with_demos, config.root)
    monkeypatch.chdir(tmp_path)
    return config


def kept(config: Config) -> list[str]:
    infos = {id: datasets_cli.dataset_info(id, config=config) for id in DEMOS}
    contents = {id: info.manifest.content for id, info in infos.items() if info.manifest}
    return [id for id in DEMOS if load_summary(CacheRoot(config.root), contents[id])]


class Waiting:
    """Knows that a process was told to wait for another one."""

    def __init__(self) -> None:
        self.said = threading.Event()

    def __call__(self, event: File | Rows | Note) -> None:
        if isinstance(event, Note):
            text = "waiting for another process that works on the tables of demo/"
            assert event.text.startswith(text)
            self.said.set()


def made_twice_at_once(
    config: Config, monkeypatch: pytest.MonkeyPatch, are_locked: bool
) -> tuple[list[str], list[PreprocessResults]]:
    """Have two runs make what both found due; return what was measured, and what both say."""
    monkeypatch.setattr(lock, "QUIET_SECONDS", 0.05)
    plan, waiting, measured = datasets_cli.plan_preprocess(config=config), Waiting(), []
    both, measure = threading.Barrier(2), tables._measured

    def slowly(root: CacheRoot, task: tables._Task) -> object:
        measured.append(task.id)
        assert waiting.said.wait(60) if are_locked else both.wait(60) in (0, 1)
        return measure(root, task)

    def run() -> PreprocessResults:
        return datasets_cli.run_plan(plan, num_workers=0, config=config, progress=waiting)

    monkeypatch.setattr(tables, "_measured", slowly)
    with ThreadPoolExecutor(2) as pool:
        return measured, [each.result(60) for each in [pool.submit(run), pool.submit(run)]]


def test_of_two_runs_at_once_the_second_waits_and_finds_the_tables_made(
    here: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured, (first, second) = made_twice_at_once(here, monkeypatch, are_locked=True)
    assert measured == DEMOS == kept(here)
    assert {*first.tables} == {*second.tables}
    assert not [*(here.root / "tables").glob("*/.*")]  # no lock file is left


def test_two_runs_at_once_make_the_same_tables_where_locks_do_not_work(
    here: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", refuse)
    measured, (first, second) = made_twice_at_once(here, monkeypatch, are_locked=False)
    assert sorted(measured) == sorted(DEMOS * 2)
    assert first.tables == second.tables and kept(here) == DEMOS


def test_a_file_that_another_process_writes_is_none_of_the_tables(here: Config) -> None:
    assert main(["preprocess", "demo/iris"]) == 0
    content = open_dataset(here.root / "datasets/demo/iris").manifest.content
    folder = here.root / "tables" / content
    whole = folder_size(folder)
    with replacing(folder / "statistics.json") as new:
        new.write_bytes(bytes(1000))
        assert folder_size(folder) == whole + 1000
        assert folder_size(folder, with_unfinished=False) == whole


def test_tables_that_another_process_makes_for_too_long_exit_with_8(
    here: Config, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("RLDS_LOCK_TIMEOUT", "0")
    content = open_dataset(here.root / "datasets/demo/iris").manifest.content
    with lock.dest_locked(here.root / "tables" / content / "statistics", 0):
        assert main(["preprocess", "demo/iris"]) == 8
    assert "the tables of demo/iris" in capsys.readouterr().err
    assert kept(here) == []


@pytest.mark.parametrize("workers", ["0", "2"])
def test_the_tables_of_all_that_is_installed_are_made_once(
    here: Config, workers: str, capsys: Capture
) -> None:
    assert main(["preprocess", "--workers", workers]) == 0
    assert kept(here) == DEMOS
    capsys.readouterr()
    assert main(["preprocess", "--workers", workers]) == 0
    assert capsys.readouterr() == ("", "Nothing is due.\n")


def test_tables_are_the_same_bytes_for_every_number_of_workers(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets_cli.download("demo/pong", config=config)
    shutil.rmtree(config.root / "tables")  # the report of the audit, which is made once
    monkeypatch.setattr(statistics, "PART_ROWS", 300)  # of 999
    made = []
    for workers in (1, 3):
        plan = datasets_cli.plan_preprocess(config=config)
        datasets_cli.run_plan(plan, num_workers=workers, config=config)
        [tables] = (config.root / "tables").iterdir()
        made.append({file.name: file.read_bytes() for file in tables.iterdir()})
        shutil.rmtree(tables)
    assert {"statistics.json", "statistics.array"} < made[0].keys()
    assert made[0] == made[1]


def test_of_two_ids_whose_manifests_name_the_same_data_one_is_measured(
    here: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (here.root / "datasets" / id for id in DEMOS)
    manifest = replace(read_manifest(one), content=read_manifest(other).content)
    write_manifest(one, manifest)
    measured, measure = [], tables._measured
    monkeypatch.setattr(tables, "_measured", lambda *a: measured.append(a[1].id) or measure(*a))
    results = datasets_cli.run_plan(datasets_cli.plan_preprocess(config=here), config=here)
    assert sorted(each.id for each in results.tables) == DEMOS and len(measured) == 1


def test_a_dataset_is_measured_in_parts_as_in_one(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets_cli.download("demo/pong", config=config)
    dataset = open_dataset(CacheRoot(config.root).dataset("demo/pong"))
    whole = statistics.RowStatistics(dataset, range(len(dataset)))
    monkeypatch.setattr(statistics, "PART_ROWS", 300)
    first, *others = statistics.parts_of(dataset.manifest)
    joined = statistics.RowStatistics(dataset, first)
    for rows in others:
        joined.join(statistics.RowStatistics(dataset, rows))
    assert [*map(len, (first, *others))] == [300, 300, 300, 99]
    for column, each in whole.columns.items():
        np.testing.assert_allclose(joined.columns[column].measures(), each.measures(), rtol=1e-12)
    for column, sums in whole.frames.items():
        assert joined.frames[column].tolist() == sums.tolist()


def test_the_tables_of_named_datasets_alone_are_made(here: Config) -> None:
    assert main(["preprocess", "demo/iris"]) == 0
    assert kept(here) == ["demo/iris"]
    with pytest.raises(DatasetNotInstalled):
        datasets_cli.plan_preprocess(ids="hopper-medium-v2", config=here)


def test_a_dry_run_tells_bytes_and_seconds_and_makes_nothing(here: Config, capsys: Capture) -> None:
    assert main(["preprocess", "--dry-run", "--json"]) == 0
    tables = json.loads(capsys.readouterr().out)["plan"]["tables"]
    assert [each["id"] for each in tables] == DEMOS
    assert all(each["size_bytes"] > 0 and each["seconds"] > 0 for each in tables)
    assert kept(here) == []


def test_without_room_for_all_tables_some_are_made(
    here: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = datasets_cli.plan_preprocess(config=here)
    sizes = [each.size_bytes or 0 for each in plan.tables]
    room = SimpleNamespace(total=1 << 40, free=sum(sizes) - 1)
    monkeypatch.setattr("datasets_cli.sources.disk.shutil.disk_usage", lambda path: room)
    with pytest.raises(PartialFailure) as caught:
        datasets_cli.run_plan(plan, config=here)
    [failure] = caught.value.results.failures
    assert f"{sum(sizes):,} bytes" in str(failure.error)
    assert kept(here) == DEMOS[:1]


def test_a_damaged_dataset_is_named_and_left(here: Config, capsys: Capture) -> None:
    (here.root / "datasets/demo/iris/action.memmap").unlink()
    assert main(["preprocess"]) == 0
    assert "demo/iris" in capsys.readouterr().err
    assert kept(here) == ["demo/door-human"]


def test_one_that_cannot_be_read_does_not_stop_the_others(
    here: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = datasets_cli.plan_preprocess(config=here)
    (here.root / "datasets/demo/iris/manifest.json").write_text("{}")
    with pytest.raises(PartialFailure) as caught:
        datasets_cli.run_plan(plan, config=here)
    assert [failure.id for failure in caught.value.results.failures] == ["demo/iris"]
    assert [tables.id for tables in caught.value.results.tables] == ["demo/door-human"]


def test_what_a_step_makes_gets_tables_in_the_same_run(here: Config, tmp_path: Path) -> None:
    step = '[[preprocess]]\ninput = "demo/iris"\ncast = "float32"\nname = "small"\n'
    (tmp_path / "rlds.toml").write_text(step)
    results = datasets_cli.run_plan(datasets_cli.plan_preprocess(config=here), config=here)
    assert [each.id for each in results.datasets] == ["derived/small"]
    assert {each.id for each in results.tables} == {*DEMOS, "derived/small"}


def test_tables_go_with_what_a_changed_step_replaces(here: Config, tmp_path: Path) -> None:
    step = '[[preprocess]]\ninput = "demo/iris"\ncast = "float32"\nname = "small"\n'
    made = []
    for text in (step, step, step.replace("32", "16")):
        (tmp_path / "rlds.toml").write_text(text)
        datasets_cli.run_plan(datasets_cli.plan_preprocess(config=here), config=here)
        made.append({folder.name for folder in (here.root / "tables").iterdir()})
    assert made[0] == made[1] and len(made[0]) == len(made[2]) == 3
    assert len(made[0] & made[2]) == 2
