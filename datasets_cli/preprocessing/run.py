"""A run: tasks on any executor, then one commit.

Each task writes its rows' bytes into preallocated files and then a mark, so that any number of
workers on any executor gives the same bytes, and the next run continues one that was killed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from functools import cached_property
from pathlib import Path
from typing import Any

from datasets_cli.config import LOCK_TIMEOUT_SECONDS
from datasets_cli.errors import DiskFull, RldsError, UsageError
from datasets_cli.parallel.engine import Engine, Workers
from datasets_cli.parallel.workers import pickle_by_value
from datasets_cli.preprocessing.chunks import chunk_bounds, first_chunk
from datasets_cli.preprocessing.destination import is_made
from datasets_cli.preprocessing.finish import commit
from datasets_cli.preprocessing.function_digest import function_entry
from datasets_cli.preprocessing.options import PreprocessOptions
from datasets_cli.preprocessing.origin import Origin
from datasets_cli.preprocessing.pipelines.mapping import PipelineFunction
from datasets_cli.preprocessing.pipelines.pipeline import Pipeline
from datasets_cli.preprocessing.requests import Request
from datasets_cli.preprocessing.results import Per
from datasets_cli.preprocessing.returned.columns import Returned
from datasets_cli.preprocessing.returned.row_numbers import ROW_KEY
from datasets_cli.preprocessing.running import Running
from datasets_cli.preprocessing.task import Function, Mapped, PreprocessTask, apply
from datasets_cli.preprocessing.work import Work, make_plan
from datasets_cli.preprocessing.worker_needs import WorkerNeeds
from datasets_cli.progress import Progress, expect_rows, reporting_to
from datasets_cli.replay.storages.dataset import DatasetStorage, open_storage
from datasets_cli.store.cache_root import runs_to
from datasets_cli.store.dataset import Dataset, open_dataset
from datasets_cli.store.lock import dest_locked
from datasets_cli.store.manifest import Manifest
from datasets_cli.store.rows.selection import Selection
from datasets_cli.store.schema.columns import Column, rows_per_block
from datasets_cli.store.schema.texts import TextColumn, is_text
from datasets_cli.store.schema.trajectories import first_rows


def preprocess(
    source: Path,
    function: Mapped,
    dest: Path,
    *,
    selection: Selection | None = None,
    id: str | None = None,
    num_workers: int | None = None,
    num_frames: int | None = None,
    chunksize: int | None = None,
    num_chunks: int | None = None,
    per: Per = "trajectory",
    executor: Executor | None = None,
    engine: Engine = "local",
    address: str | None = None,
    seed: int = 0,
    lock_timeout: float = LOCK_TIMEOUT_SECONDS,
    progress: Progress | None = None,
) -> DatasetStorage:
    """Write ``function`` of every row into a new dataset and return it as a read-only storage."""
    # Where `dest` has it already, made of the same data by the same function and arguments, nothing
    # is done.
    # function: takes a TensorDict `[n]` of consecutive rows, a copy, and returns a TensorDict
    # `[n]`, or one of fewer of these rows in their order, always with the same keys, element types
    # and row shapes; or a `Pipeline`.
    write_derived(
        source,
        function,
        dest,
        PreprocessOptions(num_frames, chunksize, num_chunks, per, seed),
        selection=selection,
        id=id,
        workers=Workers(num_workers, executor, engine, address),
        lock_timeout=lock_timeout,
        progress=progress,
    )
    return open_storage(dest)


def write_derived(
    source: Path,
    function: Mapped,
    dest: Path,
    options: PreprocessOptions,
    *,
    selection: Selection | None = None,
    id: str | None = None,
    workers: Workers,
    lock_timeout: float = LOCK_TIMEOUT_SECONDS,
    progress: Progress | None = None,
    trash: Path | None = None,
    request: Request | None = None,
) -> bool:
    """Write ``function`` of every row into a new dataset; see ``preprocess`` for most arguments."""
    dest = dest.resolve()
    dataset = open_dataset(source, text=True)
    if selection is not None:
        dataset = dataset.select(selection)
    if not len(dataset):
        raise UsageError(f"The view of {dataset.manifest.id} has no rows to preprocess.")
    run = Run(dataset, function, options)
    if is_made(dest, run.origin, trash is not None):
        if runs_to(dest):  # of a process that was killed after its last rename, for example
            with dest_locked(dest, lock_timeout, progress):
                for folder in runs_to(dest):
                    shutil.rmtree(folder, ignore_errors=True)
        return False
    columns, texts, is_numbered = run.probe()
    work = Work(dest, make_plan(run.origin, columns, texts), request)
    with dest_locked(dest, lock_timeout, progress):
        if is_made(dest, run.origin, trash is not None):  # by the process that we waited for
            return False
        new_id = id or f"derived/{dest.name}"
        try:
            _fill(run, work, columns, texts, is_numbered, workers, new_id, progress)
            commit(dataset, work, columns, texts, run.bounds, new_id, run.origin, trash, progress)
        except FileNotFoundError:
            # Where locks do not work, another process that makes the same may have been faster: it
            # filled the same files with the same bytes, and has renamed their folder.
            if work.data.exists() or not is_made(dest, run.origin):
                raise
            return False
    return True


def _fill(
    run: Run,
    work: Work,
    columns: tuple[Column, ...],
    texts: tuple[TextColumn, ...],
    is_numbered: bool,
    workers: Workers,
    id: str,
    progress: Progress | None,
) -> None:
    """Do the tasks that are not done yet."""
    try:
        work.prepare(columns, run.num_rows)
    except DiskFull:
        work.sweep_what_is_of_no_use()
        raise
    elsewhere = workers.engine != "local"
    tasks = list(run.tasks(work, columns, texts, is_numbered, elsewhere=elsewhere))
    told = reporting_to(progress)
    running = Running(tasks, run.dataset, run.num_rows, work.kept, told)
    expect_rows(told, id, running.rows_done, run.num_rows)
    try:
        running.run(workers)
    except BaseException:
        # Tasks of other workers may still write.
        if workers.end_with_the_call or not running.workers_began:
            work.sweep_what_is_of_no_use()
        raise


class Run:
    """What a run reads, and in which chunks."""

    def __init__(self, dataset: Dataset, function: Mapped, options: PreprocessOptions) -> None:
        manifest = dataset.manifest
        self.dataset, self.options = dataset, options
        self._mapped = function
        self.num_rows = options.num_rows(len(dataset))
        self._offsets = first_rows(dataset.offsets.numpy(), self.num_rows)
        self._row_bytes = row_bytes_of(manifest)
        self.origin = origin_of(manifest, entry_of(function), options, dataset.selection)
        self.bounds = chunk_bounds(
            self._offsets,
            self.origin.arguments["chunksize"],
            self._row_bytes,
            options.per,
            manifest.id,
        )

    @property
    def num_trajectories(self) -> int:
        """Trajectories of the rows that are read; ``num_frames`` may cut the last of them."""
        return len(self._offsets) - 1

    @cached_property
    def function(self) -> Function:
        """What maps rows; a pipeline reads the statistics that it needs first."""
        if not isinstance(self._mapped, Pipeline):
            return self._mapped
        if self._mapped.needs_trajectories and self.options.per != "trajectory":
            raise UsageError(
                'returns_to_go and n_step need per="trajectory", since a row depends on others of '
                f"its trajectory; found per={self.options.per!r}."
            )
        return PipelineFunction(self._mapped, self.dataset, self.num_rows)

    def probe(self) -> tuple[tuple[Column, ...], tuple[TextColumn, ...], bool]:
        """Return the columns that the function gives, and whether it gets the numbers of rows."""
        # They are learned from the first rows. A function that drops some of these, or looks for
        # their numbers, gets the numbers of all rows at once.
        per, id = self.options.per, self.dataset.manifest.id
        is_numbered = False
        for bounds in [(0, first_chunk(self._offsets, self._row_bytes, per, id)), *self.bounds]:
            found, is_numbered = self._try(*bounds, is_numbered)
            # Of no rows tensordict knows the shape of numbers, and not that of text.
            if not (found.is_empty and any(map(is_text, found.rows.values()))):
                break
        columns = found.columns.values()
        return (
            tuple(column for column in columns if isinstance(column, Column)),
            tuple(column for column in columns if isinstance(column, TextColumn)),
            is_numbered,
        )

    def _try(self, start: int, stop: int, is_numbered: bool) -> tuple[Returned, bool]:
        """Return what the function returns for some rows, and whether it gets their numbers."""
        arguments = (self.dataset, self.function, self.options.seed, start, stop)
        if not is_numbered:
            try:
                found = apply(*arguments)
                return found, found.kept is not None
            except UsageError:
                raise
            except RldsError:  # it may have looked for the numbers; if not, it fails again
                if ROW_KEY in self.dataset.keys:
                    raise
        return apply(*arguments, is_numbered=True), True

    def tasks(
        self,
        work: Work,
        columns: tuple[Column, ...],
        texts: tuple[TextColumn, ...],
        is_numbered: bool,
        *,
        elsewhere: bool,
    ) -> Iterator[PreprocessTask]:
        """Yield the tasks that are not done; ``elsewhere`` are workers with another Python path."""
        pickled, selection = pickle_by_value(self.function, elsewhere), self.dataset.selection
        needs = WorkerNeeds.of_this_process(work.folder, pickled, self.dataset)
        for number, (start, stop) in enumerate(self.bounds):
            mark = work.mark(number)
            if not mark.exists():
                yield PreprocessTask(
                    needs=needs,
                    data=work.data,
                    mark=mark,
                    start=start,
                    stop=stop,
                    seed=self.options.seed,
                    function=pickled,
                    columns=columns,
                    texts=texts,
                    part=work.part(number),
                    selection=selection.rows(start, stop) if selection else None,
                    is_numbered=is_numbered,
                )


def entry_of(function: Mapped) -> dict[str, Any]:
    """Return the manifest's entry of a function or a pipeline."""
    return function.entry if isinstance(function, Pipeline) else function_entry(function)


def origin_of(
    manifest: Manifest,
    function: Mapping[str, Any],
    options: PreprocessOptions,
    selection: Selection | None = None,
) -> Origin:
    """Return everything that decides the values of a derived dataset."""
    rows = manifest.num_transitions if selection is None else int(selection.lengths.sum())
    num_rows = options.num_rows(rows)
    # A run of fewer rows than the function takes at once is one call.
    task_rows = options.task_rows(num_rows, rows_per_block(row_bytes_of(manifest)))
    arguments: dict[str, str | int] = {
        "num_frames": num_rows,
        "chunksize": task_rows,
        "per": options.per,
    }
    parent: dict[str, Any] = {
        "id": manifest.id,
        "content": manifest.content,
        "state": manifest.state,
    }
    if selection is not None:  # its rows decide the values, and not how they were chosen
        arguments["view"] = selection.digest
        parent["view"] = ".".join(selection.steps)
        chosen = {"where": options.where, "max_trajectories": options.max_trajectories}
        parent |= {name: value for name, value in chosen.items() if value is not None}
    return Origin(parent, function, arguments, options.seed)


def row_bytes_of(manifest: Manifest) -> int:
    """Return the bytes of one row in memory."""
    return sum(column.row_bytes for column in manifest.columns)
