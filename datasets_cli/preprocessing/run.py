"""A run: tasks on any executor, then one commit.

Each task writes its rows' bytes into preallocated files and then a mark, so that any number of
workers on any executor gives the same bytes, and the next run continues one that was killed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from pathlib import Path

from datasets_cli.config import LOCK_TIMEOUT_SECONDS
from datasets_cli.errors import DiskFull, UsageError
from datasets_cli.parallel.engine import Engine, Workers
from datasets_cli.parallel.workers import pickle_by_value
from datasets_cli.preprocessing.chunks import chunk_bounds, first_chunk
from datasets_cli.preprocessing.destination import is_made
from datasets_cli.preprocessing.finish import commit
from datasets_cli.preprocessing.function_digest import function_entry
from datasets_cli.preprocessing.options import PreprocessOptions
from datasets_cli.preprocessing.origin import Origin
from datasets_cli.preprocessing.requests import Request
from datasets_cli.preprocessing.results import Per
from datasets_cli.preprocessing.running import Running
from datasets_cli.preprocessing.task import Function, PreprocessTask, apply
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
from datasets_cli.store.schema.texts import TextColumn, any_column
from datasets_cli.store.schema.trajectories import first_rows


def preprocess(
    source: Path,
    function: Function,
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
    """Write ``function`` of every row into a new dataset and return it as a read-only storage.

    Where ``dest`` has it already, made of the same data by the same function and arguments, nothing
    is done.

    Args:
        source: folder of the dataset to read.
        function: takes a TensorDict ``[n]`` of consecutive rows, a copy, and returns a TensorDict
            ``[n]``, always with the same keys, element types and row shapes.
        dest: folder of the new dataset; it must not hold anything else.
        selection: the rows that are read, of a view; all by default.
        id: id of the new dataset; ``derived/<name of dest>`` by default.
        num_workers: processes, the calling process where 0. Where None it begins in the calling
            process, and goes on on all cores where that is worth starting processes for.
        num_frames: as in ``PreprocessOptions``, and so are the next three and ``seed``.
        chunksize: rows that the function takes at once, to the next end of a trajectory.
        num_chunks: the number of chunks instead.
        per: whether chunks are whole trajectories.
        executor: where to run; its workers must see both folders. Processes of this machine, as
            ``num_workers`` says, where None.
        engine: what runs the tasks, as in ``Workers``, and so is ``address``.
        address: of a cluster.
        seed: seeds torch for every chunk.
        lock_timeout: seconds to wait for another process that writes ``dest``.
        progress: told of the rows done, and that we wait.

    Raises:
        LockedError: another process still writes ``dest``.
        UsageError: ``dest`` has something else, the function does not return rows, or a trajectory
            is too long to be taken at once.
        RldsError: the function raised (file, line, trajectory and rows are named), or a worker
            process died. What is done is kept: the same call continues.
    """
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
    function: Function,
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
    """Write ``function`` of every row into a new dataset; see ``preprocess`` for most arguments.

    Args:
        source: folder of the dataset to read.
        function: maps its rows.
        dest: folder of the new dataset.
        options: of the run.
        selection: the rows that are read, of a view.
        id: of the new dataset.
        workers: who runs the function.
        lock_timeout: seconds to wait for another process that writes ``dest``.
        progress: told of the rows done.
        trash: the name, on the same disk, that a result made otherwise has on its way out: it
            stays until the new one is committed. None refuses one.
        request: kept with the unfinished work, for whoever resumes it.

    Returns:
        False where ``dest`` has it already.

    Raises:
        RldsError: as ``preprocess``.
    """
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
    columns, texts = run.probe()
    work = Work(dest, make_plan(run.origin, columns, texts), request)
    with dest_locked(dest, lock_timeout, progress):
        if is_made(dest, run.origin, trash is not None):  # by the process that we waited for
            return False
        new_id = id or f"derived/{dest.name}"
        try:
            _fill(run, work, columns, texts, workers, new_id, progress)
            parts = [work.part(number) for number in range(len(run.bounds))] if texts else []
            commit(dataset, work, columns, texts, parts, run.num_rows, new_id, run.origin, trash)
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
    tasks = list(run.tasks(work, columns, texts, elsewhere=workers.engine != "local"))
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
    """What a run reads, and in which chunks.

    Args:
        dataset: gives the rows; opened with its text.
        function: maps them.
        options: of the run.
    """

    def __init__(self, dataset: Dataset, function: Function, options: PreprocessOptions) -> None:
        manifest = dataset.manifest
        self.dataset, self.function, self.options = dataset, function, options
        self.num_rows = options.num_rows(len(dataset))
        self._offsets = first_rows(dataset.offsets.numpy(), self.num_rows)
        self._row_bytes = row_bytes_of(manifest)
        self.origin = origin_of(manifest, function_entry(function), options, dataset.selection)
        self.bounds = chunk_bounds(
            self._offsets,
            self.origin.arguments["chunksize"],
            self._row_bytes,
            options.per,
            manifest.id,
        )

    def probe(self) -> tuple[tuple[Column, ...], tuple[TextColumn, ...]]:
        """Return the columns that the function gives, learned from the first rows."""
        options = self.options
        stop = first_chunk(self._offsets, self._row_bytes, options.per, self.dataset.manifest.id)
        rows = apply(self.dataset, self.function, options.seed, 0, stop)
        found = [any_column(key, values) for key, values in sorted(rows.items())]
        return (
            tuple(column for column in found if isinstance(column, Column)),
            tuple(column for column in found if isinstance(column, TextColumn)),
        )

    def tasks(
        self,
        work: Work,
        columns: tuple[Column, ...],
        texts: tuple[TextColumn, ...],
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
                )


def origin_of(
    manifest: Manifest,
    function: Mapping[str, str],
    options: PreprocessOptions,
    selection: Selection | None = None,
) -> Origin:
    """Return everything that decides the values of a derived dataset.

    Args:
        manifest: of the dataset that is read.
        function: name and digest.
        options: of the run.
        selection: the rows that are read, of a view.
    """
    rows = manifest.num_transitions if selection is None else int(selection.lengths.sum())
    num_rows = options.num_rows(rows)
    # A run of fewer rows than the function takes at once is one call.
    task_rows = options.task_rows(num_rows, rows_per_block(row_bytes_of(manifest)))
    arguments: dict[str, str | int] = {
        "num_frames": num_rows,
        "chunksize": task_rows,
        "per": options.per,
    }
    parent = {"id": manifest.id, "content": manifest.content, "state": manifest.state}
    if selection is not None:  # its rows decide the values, and not how they were chosen
        arguments["view"] = selection.digest
        parent["view"] = ".".join(selection.steps)
    return Origin(parent, function, arguments, options.seed)


def row_bytes_of(manifest: Manifest) -> int:
    """Return the bytes of one row in memory."""
    return sum(column.row_bytes for column in manifest.columns)
