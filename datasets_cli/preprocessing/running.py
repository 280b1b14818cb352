"""The execution of a run: its tasks, in this process or on workers, then one commit.

Each task writes the bytes of its rows into preallocated files, and then a mark. So any number of
workers gives the same bytes, and the next run continues one that was killed.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from functools import partial
from pathlib import Path

from datasets_cli.core.progress import Note, Progress, Rows, silent
from datasets_cli.errors import DiskFull
from datasets_cli.parallel.engine import WORTH_PROCESSES_SECONDS, Workers
from datasets_cli.parallel.tasks import CallingProcess, run_tasks
from datasets_cli.preprocessing.finish import commit
from datasets_cli.preprocessing.options import PreprocessOptions
from datasets_cli.preprocessing.origin import made_at
from datasets_cli.preprocessing.returned import ResultColumns
from datasets_cli.preprocessing.run import PreprocessRun
from datasets_cli.preprocessing.task import (
    Mapped,
    PreprocessTask,
    SourceCheck,
    rows_named,
    write_elsewhere,
    write_rows,
)
from datasets_cli.preprocessing.work import Work, make_plan
from datasets_cli.store.cache_root import runs_to
from datasets_cli.store.dataset import Dataset
from datasets_cli.store.lock import dest_locked
from datasets_cli.store.manifest import Manifest

LOOK_SECONDS = 0.5
"""How long tasks run in this process before the time of the others is estimated."""


def write_derived(
    dataset: Dataset,
    function: Mapped,
    dest: Path,
    options: PreprocessOptions,
    *,
    id: str | None = None,
    workers: Workers,
    lock_timeout: float,
    progress: Progress = silent,
    trash: Path | None = None,
) -> tuple[Manifest, bool]:
    """Map a function over a dataset into a new one; return its manifest and whether it is new."""
    # dataset: with its text, or a view of one.
    # trash: where a different dataset in `dest` is moved; None refuses it.
    dest = dest.resolve()
    run = PreprocessRun(dataset, function, options)
    if made := made_at(dest, run.origin, trash is not None):
        if runs_to(dest):  # of a process that was killed after its last rename, for example
            with dest_locked(dest, lock_timeout, progress):
                for folder in runs_to(dest):
                    shutil.rmtree(folder, ignore_errors=True)
        return made, False
    columns = run.probe()
    work = Work(dest, make_plan(run.origin, columns))
    with dest_locked(dest, lock_timeout, progress):
        # By the process that we waited for.
        if made := made_at(dest, run.origin, trash is not None):
            return made, False
        new_id = id or f"derived/{dest.name}"
        for note in run.notes:
            progress(Note(f"{new_id}: {note}."))
        try:
            _fill(run, work, columns, workers, new_id, progress)
            return commit(run, work, columns, new_id, trash, progress), True
        except FileNotFoundError:
            # Where locks do not work, another process with the same run may have been faster: it
            # filled the same files with the same bytes and renamed their folder.
            if work.data.exists() or not (made := made_at(dest, run.origin)):
                raise
            return made, False


def _fill(
    run: PreprocessRun,
    work: Work,
    columns: ResultColumns,
    workers: Workers,
    id: str,
    progress: Progress,
) -> None:
    try:
        work.prepare(columns, run.num_rows, partial(run.first_frames, columns))
    except DiskFull:
        work.discard_unusable()
        raise
    tasks = list(run.tasks(work, columns, elsewhere=workers.engine != "local"))
    execution = _Execution(tasks, run, work, id, progress)
    try:
        execution.run(workers)
    except BaseException:
        # Tasks on a caller's or a cluster's workers may still write.
        if workers.end_with_the_call or not execution.workers_began:
            work.discard_unusable()
        raise


class _Execution:
    """The tasks of a run: first in this process, then on workers if they take long."""

    def __init__(
        self,
        tasks: list[PreprocessTask],
        run: PreprocessRun,
        work: Work,
        id: str,
        progress: Progress,
    ) -> None:
        self._tasks, self._dataset, self._work = tasks, run.dataset, work
        self._id, self._progress, self._num_rows = id, progress, run.num_rows
        self._rows_left = sum(task.stop - task.start for task in tasks)
        self.rows_done = run.num_rows - self._rows_left
        self.workers_began = False

    def run(self, workers: Workers) -> None:
        """Do all tasks; on all cores if ``workers`` has no number and it is worth it."""
        self._report()
        if workers.end_with_the_call and workers.num_workers is None:
            self._begin_here()
        if not self._tasks:
            return
        with workers.at_most(len(self._tasks)).pool() as pool:
            if isinstance(pool, CallingProcess):
                done = self._done_here()
            else:
                done = self._done_by(pool, partial(write_elsewhere, self._check(pool)))
            self.workers_began = True
            for _ in done:
                pass

    def _check(self, pool: Executor) -> SourceCheck:
        """Return the check of each worker; refuse a cluster with a worker that fails it."""
        manifest = self._dataset.manifest
        check = SourceCheck(
            folder=self._work.folder, source=self._dataset.folder, content=manifest.content
        )
        check.write_token()
        check.check_each(pool, self._work.kept)
        return check

    def _begin_here(self) -> None:
        """Do tasks in this process until the others are worth starting processes for."""
        began, num_rows, num_done = time.monotonic(), self._rows_left, 0
        for _ in self._done_here():
            num_done += 1
            seconds = time.monotonic() - began
            rest = seconds * self._rows_left / (num_rows - self._rows_left)
            if seconds > LOOK_SECONDS and rest > WORTH_PROCESSES_SECONDS:
                break
        self._tasks = self._tasks[num_done:]

    def _done_here(self) -> Iterator[None]:
        return self._done_by(CallingProcess(), partial(write_rows, dataset=self._dataset))

    def _done_by(self, pool: Executor, write: Callable[[PreprocessTask], None]) -> Iterator[None]:
        tasks, kept, progress = self._tasks, self._work.kept, self._progress
        for task, _ in run_tasks(pool, write, tasks, kept, name=self._name, progress=progress):
            self._rows_left -= task.stop - task.start
            self.rows_done += task.stop - task.start
            self._report()
            yield

    def _report(self) -> None:
        self._progress(Rows(self._id, self.rows_done, self._num_rows))

    def _name(self, task: PreprocessTask) -> str:
        return rows_named(self._dataset, task.start, task.stop)
