"""Missing tables of installed datasets: planning them, and making them in parallel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from datasets_cli.config import Config
from datasets_cli.core.progress import Progress, Rows
from datasets_cli.errors import RldsError
from datasets_cli.install.find import condition_of
from datasets_cli.install.options import FailedDataset
from datasets_cli.parallel.engine import IN_THIS_PROCESS, Workers
from datasets_cli.parallel.tasks import run_tasks
from datasets_cli.project.results import DatasetTables, PlannedTables
from datasets_cli.project.statistics import (
    RowStatistics,
    parts_of,
    save_statistics,
    seconds_for,
    table_bytes,
    trajectory_columns,
)
from datasets_cli.sources.disk import check_free_space
from datasets_cli.store.arrays import DatasetArrays, open_arrays
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.check import folder_size
from datasets_cli.store.lock import dest_locked
from datasets_cli.store.tables import STATISTICS, load_summary

WORTH_PROCESSES_ROWS = 1_000_000
"""The rows of all datasets that are worth starting processes for, which takes a second or two."""

LOCKED_AT_ONCE = 64
"""The number of datasets whose tables are made together: each lock is an open file."""


def plan_tables(
    ids: Iterable[str], to_come: Iterable[str], config: Config
) -> tuple[PlannedTables, ...]:
    """Return the due tables of installed datasets, and of datasets that are made first."""
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
            dataset = open_arrays(root.dataset(id))
            reason = f"its {manifest.num_transitions:,} transitions have no statistics yet"
            size_bytes, seconds = table_bytes(manifest), seconds_for(dataset)
            planned.append(PlannedTables(id, reason, "", size_bytes, seconds))
    return (*planned, *(PlannedTables(id, "it is made first") for id in coming))


def make_due_tables(
    ids: Sequence[str], config: Config, workers: Workers, progress: Progress
) -> Iterator[DatasetTables | FailedDataset]:
    """Make the tables of datasets in tasks of some rows; yield each result or failure."""
    root, size_bytes = CacheRoot(config.root), 0
    due: dict[str, _DueTables] = {}
    for id in ids:
        try:
            dataset = open_arrays(root.dataset(id))
            folder, needed = root.tables(dataset.manifest.content), table_bytes(dataset.manifest)
            check_free_space(folder, size_bytes + needed, f"The tables of {id} and those before")
        except RldsError as error:
            yield FailedDataset(id, error)
            continue
        due[id], size_bytes = _DueTables(id, dataset, root), size_bytes + needed
    while due:
        # Of datasets with the same data only one: the next round finds its tables.
        ids_of = {each.content: id for id, each in due.items()}
        together = {id: due.pop(id) for id in [*ids_of.values()][:LOCKED_AT_ONCE]}
        with ExitStack() as locks:
            yield from _lock(together, root, config, progress, locks)
            if together:
                yield from _made(root, together, workers, progress)


def _lock(
    due: dict[str, _DueTables],
    root: CacheRoot,
    config: Config,
    progress: Progress,
    locks: ExitStack,
) -> Iterator[DatasetTables | FailedDataset]:
    """Lock the tables; yield and remove the tables that another process has written."""
    # In the same order in all processes, so no two wait for each other.
    for id, each in sorted(due.items(), key=lambda item: item[1].content):
        try:
            dest, what = root.tables(each.content) / STATISTICS, f"the tables of {id}"
            locks.enter_context(dest_locked(dest, config.lock_timeout, progress, what))
        except RldsError as error:
            yield FailedDataset(id, error)
        else:
            if load_summary(root, each.content) is None:
                continue
            yield each.result
        del due[id]


class _Task(NamedTuple):
    """Rows of a dataset to measure; the task of the first rows computes the trajectories, too."""

    id: str
    content: str
    rows: range


class _DueTables:
    """The tables of a dataset: the results of its tasks, joined in the order of its rows."""

    def __init__(self, id: str, dataset: DatasetArrays, root: CacheRoot) -> None:
        self._id, self.dataset, self._root = id, dataset, root
        self.content = dataset.manifest.content
        self._waiting: dict[int, RowStatistics] = {}
        self._joined: RowStatistics | None = None
        self._has_failed = False

    @property
    def tasks(self) -> list[_Task]:
        """The tasks, which do not depend on the number of workers."""
        return [_Task(self._id, self.content, rows) for rows in parts_of(self.dataset.manifest)]

    @property
    def result(self) -> DatasetTables:
        """The description of the finished tables."""
        size = folder_size(self._root.tables(self.content), with_unfinished=False)
        return DatasetTables(self._id, self.dataset.folder, len(self.dataset), size)

    def add(self, part: RowStatistics | FailedDataset) -> DatasetTables | FailedDataset | None:
        """Add the result of a task; return the result of the dataset once it is known."""
        if self._has_failed:
            return None
        if isinstance(part, FailedDataset):
            self._has_failed = True
            return part
        self._waiting[part.rows.start] = part
        while following := self._waiting.pop(self._joined.rows.stop if self._joined else 0, None):
            if self._joined:
                self._joined.join(following)
            else:
                self._joined = following
        if self._joined is None or self._joined.rows.stop < len(self.dataset):
            return None
        try:
            save_statistics(self.dataset, self._root, self._joined)
        except RldsError as error:
            return FailedDataset(self._id, error)
        return self.result


def _made(
    root: CacheRoot, due: dict[str, _DueTables], workers: Workers, progress: Progress
) -> Iterator[DatasetTables | FailedDataset]:
    num_rows, rows_done = sum(len(each.dataset) for each in due.values()), 0
    progress(Rows("tables", 0, num_rows))
    kept = "Finished tables are kept: the same command makes the missing ones."
    if workers.is_optional and num_rows < WORTH_PROCESSES_ROWS:
        workers = IN_THIS_PROCESS
    tasks = [task for each in due.values() for task in each.tasks]
    with workers.at_most(len(tasks)).pool() as pool:
        measure = partial(_measured, root)
        for task, part in run_tasks(
            pool, measure, tasks, kept, name=attrgetter("id"), progress=progress
        ):
            rows_done += len(task.rows)
            progress(Rows("tables", rows_done, num_rows))
            if result := due[task.id].add(part):
                yield result


def _measured(root: CacheRoot, task: _Task) -> RowStatistics | FailedDataset:
    try:
        dataset = open_arrays(root.dataset(task.id))
        if dataset.manifest.content != task.content:
            raise RldsError(
                f"The tables of {task.id} are not made: expected the content {task.content[:16]}, "
                f"and another process replaced it by {dataset.manifest.content[:16]}.",
                id=task.id,
                expected=task.content,
                found=dataset.manifest.content,
                advice="Run the command again.",
            )
        if task.rows.start == 0:
            trajectory_columns(dataset, root)  # stored for the process that joins the parts
        return RowStatistics(dataset, task.rows)
    except RldsError as error:
        return FailedDataset(task.id, error)
