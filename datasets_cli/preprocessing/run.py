"""A run: tasks on any executor, then one commit.

Each task writes its rows' bytes into preallocated files and then a mark, so that any number of
workers on any executor gives the same bytes, and the next run continues one that was killed.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import nullcontext
from pathlib import Path

from datasets_cli.config import LOCK_TIMEOUT_SECONDS
from datasets_cli.errors import UsageError
from datasets_cli.parallel.tasks import local_pool, run_tasks
from datasets_cli.parallel.workers import pickle_by_value
from datasets_cli.preprocessing.chunks import chunk_bounds, first_chunk
from datasets_cli.preprocessing.destination import is_made
from datasets_cli.preprocessing.finish import commit
from datasets_cli.preprocessing.function_digest import function_entry
from datasets_cli.preprocessing.options import PreprocessOptions
from datasets_cli.preprocessing.origin import Origin
from datasets_cli.preprocessing.results import Per
from datasets_cli.preprocessing.task import Function, PreprocessTask, apply, write_rows
from datasets_cli.preprocessing.work import Work, lock_of, make_plan
from datasets_cli.progress import Progress, reporting_to
from datasets_cli.replay.storages.dataset import DatasetStorage, open_storage
from datasets_cli.store.dataset import Dataset, open_dataset
from datasets_cli.store.lock import locked
from datasets_cli.store.schema.columns import Column, rows_per_block
from datasets_cli.store.schema.texts import TextColumn, any_column
from datasets_cli.store.schema.trajectories import first_rows


def preprocess(
    source: Path,
    function: Function,
    dest: Path,
    *,
    id: str | None = None,
    num_workers: int | None = None,
    num_frames: int | None = None,
    chunksize: int | None = None,
    num_chunks: int | None = None,
    per: Per = "trajectory",
    executor: Executor | None = None,
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
        id: id of the new dataset; ``derived/<name of dest>`` by default.
        num_workers: processes; all cores where None, the calling process where 0.
        num_frames: as in ``PreprocessOptions``, and so are the next three and ``seed``.
        chunksize: rows that the function takes at once, to the next end of a trajectory.
        num_chunks: the number of chunks instead.
        per: whether chunks are whole trajectories.
        executor: where to run; its workers must see both folders. Processes of this machine, as
            ``num_workers`` says, where None.
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
        id=id,
        num_workers=num_workers,
        executor=executor,
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
    id: str | None = None,
    num_workers: int | None = None,
    executor: Executor | None = None,
    lock_timeout: float = LOCK_TIMEOUT_SECONDS,
    progress: Progress | None = None,
) -> bool:
    """Write ``function`` of every row into a new dataset; see ``preprocess`` for the arguments.

    Returns:
        False where ``dest`` has it already.

    Raises:
        RldsError: as ``preprocess``.
    """
    if num_workers is not None and num_workers < 0:
        raise UsageError(f"{num_workers} workers cannot work; expected 0 or more.")
    dest = dest.resolve()
    dataset = open_dataset(source, text=True)
    run = Run(dataset, function, options)
    if is_made(dest, run.origin):
        return False
    columns, texts = run.probe()
    work = Work(dest, make_plan(run.origin, columns, texts))
    with locked(lock_of(dest), str(dest), lock_timeout, progress):
        if is_made(dest, run.origin):  # by the process that we waited for
            return False
        work.prepare(columns, run.num_rows)
        tasks = list(run.tasks(work, columns, texts))
        if num_workers is None and len(tasks) <= 1:
            num_workers = 0  # starting a process takes longer than one task
        # An executor that a caller gives is the caller's to end; one made here ends here.
        try:
            with nullcontext(executor) if executor else local_pool(num_workers) as pool:
                _run(pool, tasks, work, run.num_rows, reporting_to(progress))
        except BaseException:
            if executor is None:  # tasks of a caller's executor may still write
                work.sweep_if_nothing_is_done()
            raise
        parts = [work.part(number) for number in range(len(run.bounds))] if texts else []
        new_id = id or f"derived/{dest.name}"
        commit(dataset, work, columns, texts, parts, run.num_rows, new_id, run.origin)
        # Whoever waits for it, or makes a new one, finds the dataset.
        lock_of(dest).unlink(missing_ok=True)
    return True


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
        self.num_rows = min(options.num_frames or len(dataset), len(dataset))
        self._offsets = first_rows(dataset.offsets.numpy(), self.num_rows)
        self._row_bytes = sum(column.row_bytes for column in manifest.columns)
        # A run of fewer rows than the function takes at once is one call.
        task_rows = options.task_rows(self.num_rows, rows_per_block(self._row_bytes))
        self.bounds = chunk_bounds(
            self._offsets, task_rows, self._row_bytes, options.per, manifest.id
        )
        arguments = {"num_frames": self.num_rows, "chunksize": task_rows, "per": options.per}
        parent = {"id": manifest.id, "content": manifest.content, "state": manifest.state}
        self.origin = Origin(parent, function_entry(function), arguments, options.seed)

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
        self, work: Work, columns: tuple[Column, ...], texts: tuple[TextColumn, ...]
    ) -> Iterator[PreprocessTask]:
        """Yield the tasks that are not done."""
        pickled = pickle_by_value(self.function)
        for number, (start, stop) in enumerate(self.bounds):
            mark = work.mark(number)
            if not mark.exists():
                yield PreprocessTask(
                    source=self.dataset.folder,
                    data=work.data,
                    mark=mark,
                    start=start,
                    stop=stop,
                    seed=self.options.seed,
                    function=pickled,
                    columns=columns,
                    texts=texts,
                    part=work.part(number),
                )


def _run(
    pool: Executor, tasks: list[PreprocessTask], work: Work, num_rows: int, progress: Progress
) -> None:
    """Write the tasks' rows, and tell of the rows done."""
    kept = f"What is done is kept in {work.folder}; the same call continues from there."
    done = num_rows - sum(task.stop - task.start for task in tasks)
    progress.writing(done)
    for task, _ in run_tasks(pool, write_rows, tasks, kept):
        done += task.stop - task.start
        progress.writing(done)
