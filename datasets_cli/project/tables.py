"""Tables of installed datasets that have none yet: which are due, and making them, in parallel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from datasets_cli.config import Config
from datasets_cli.errors import RldsError
from datasets_cli.install.installed import condition_of
from datasets_cli.install.options import FailedDataset
from datasets_cli.look.statistics import make_tables, seconds_for, table_bytes
from datasets_cli.look.summary import load_summary
from datasets_cli.parallel.engine import IN_THIS_PROCESS, Workers
from datasets_cli.parallel.tasks import run_tasks
from datasets_cli.progress import Progress, Silent, expect_rows
from datasets_cli.project.results import DatasetTables, PlannedTables
from datasets_cli.sources.disk import check_free_space
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.check import folder_size
from datasets_cli.store.dataset import open_dataset

WORTH_PROCESSES_ROWS = 1_000_000
"""Rows of all datasets from which on processes are begun where nobody says how many: they take a
second or two to start."""


def plan_tables(
    ids: Iterable[str], to_come: Iterable[str], config: Config
) -> tuple[PlannedTables, ...]:
    """Return the tables that are due of installed datasets, and of those that are made first."""
    root, planned = CacheRoot(config.root), []
    coming = dict.fromkeys(to_come)
    for id in ids:
        condition = condition_of(root.dataset(id), id)
        manifest = condition.sound_manifest
        if id in coming:
            continue
        if manifest is None:
            planned.append(PlannedTables(id, "it is damaged", condition.problem))
        elif load_summary(root, manifest.content) is None:
            dataset = open_dataset(root.dataset(id))
            reason = f"no statistics of its {manifest.num_transitions:,} transitions are kept yet"
            size_bytes, seconds = table_bytes(dataset), seconds_for(dataset)
            planned.append(PlannedTables(id, reason, "", size_bytes, seconds))
    return (*planned, *(PlannedTables(id, "it is made first") for id in coming))


def make_due_tables(
    ids: Sequence[str], config: Config, workers: Workers, progress: Progress
) -> Iterator[DatasetTables | FailedDataset]:
    """Make the tables of datasets, each by one worker; yield each as it is made, or why not."""
    if not ids:
        return
    root = CacheRoot(config.root)
    manifests = {id: condition_of(root.dataset(id), id).sound_manifest for id in ids}
    num_rows = {id: each.num_transitions if each else 0 for id, each in manifests.items()}
    rows_done = 0
    expect_rows(progress, "tables", 0, sum(num_rows.values()))
    kept = "Tables that were made are kept: the same command makes the others."
    if workers.num_workers is None and sum(num_rows.values()) < WORTH_PROCESSES_ROWS:
        workers = IN_THIS_PROCESS
    with workers.at_most(len(ids)).pool() as pool:
        make = partial(_made, root)
        for id, result in run_tasks(pool, make, ids, kept, name=str, note=progress.note):
            rows_done += num_rows[id]
            progress.writing(rows_done)
            yield result


def _made(root: CacheRoot, id: str) -> DatasetTables | FailedDataset:
    try:
        dataset = open_dataset(root.dataset(id))
        check_free_space(root.path, table_bytes(dataset), f"The tables of {id}")
        make_tables(dataset, root, Silent())
    except RldsError as error:
        return FailedDataset(id, error)
    manifest = dataset.manifest
    size = folder_size(root.tables(manifest.content))
    return DatasetTables(id, dataset.folder, manifest.num_transitions, size)
