"""Running the tasks of a run: in this process while they take no time, then on workers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Executor

from datasets_cli.parallel.engine import Workers
from datasets_cli.parallel.executors import CallingProcess
from datasets_cli.parallel.expectation import refuse_unfit
from datasets_cli.parallel.tasks import run_tasks
from datasets_cli.preprocessing.chunks import trajectories_named
from datasets_cli.preprocessing.task import PreprocessTask, write_rows
from datasets_cli.preprocessing.worker_needs import WorkerNeeds
from datasets_cli.progress import Progress
from datasets_cli.store.dataset import Dataset

WORTH_PROCESSES_SECONDS = 10.0
"""Work that is worth starting processes for: they import torch for some seconds."""

LOOK_SECONDS = 0.5
"""How long work stays in this process before the rest of it is estimated."""


class Running:
    """The tasks of a run, on their way."""

    def __init__(
        self,
        tasks: list[PreprocessTask],
        dataset: Dataset,
        num_rows: int,
        kept: str,
        progress: Progress,
    ) -> None:
        self._tasks, self._dataset, self._kept, self._progress = tasks, dataset, kept, progress
        self._rows_left = sum(task.stop - task.start for task in tasks)
        self.rows_done = num_rows - self._rows_left
        self.workers_began = False

    def run(self, workers: Workers) -> None:
        """Do all tasks; with all cores where ``workers`` leaves that open and it is worth it."""
        self._progress.writing(self.rows_done)
        if workers.end_with_the_call and workers.num_workers is None:
            self._begin_here()
        if not self._tasks:
            return
        with workers.at_most(len(self._tasks)).pool() as pool:
            refuse_unfit(pool, WorkerNeeds.differences, self._tasks[0].needs, self._kept)
            self.workers_began = True
            for _ in self._done_by(pool):
                pass

    def _begin_here(self) -> None:
        """Do tasks in this process until the rest is known to be worth processes."""
        began, num_rows, num_done = time.monotonic(), self._rows_left, 0
        for _ in self._done_by(CallingProcess()):
            num_done += 1
            seconds = time.monotonic() - began
            rest = seconds * self._rows_left / (num_rows - self._rows_left)
            if seconds > LOOK_SECONDS and rest > WORTH_PROCESSES_SECONDS:
                break
        self._tasks = self._tasks[num_done:]

    def _done_by(self, pool: Executor) -> Iterator[None]:
        """Have tasks done; yield after each."""
        tasks, note = self._tasks, self._progress.note
        for task, _ in run_tasks(pool, write_rows, tasks, self._kept, name=self._name, note=note):
            self._rows_left -= task.stop - task.start
            self.rows_done += task.stop - task.start
            self._progress.writing(self.rows_done)
            yield

    def _name(self, task: PreprocessTask) -> str:
        trajectories = trajectories_named(self._dataset, task.start, task.stop)
        return f"rows {task.start} to {task.stop - 1} ({trajectories})"
