"""A run: tasks on any executor, then one commit.

Each task writes its rows' bytes into preallocated files and then a mark, so that any number of
workers on any executor gives the same bytes, and the next run continues one that was killed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import cloudpickle

from datasets_cli.config import LOCK_TIMEOUT_SECONDS
from datasets_cli.errors import UsageError
from datasets_cli.parallel.tasks import local_pool, run_tasks
from datasets_cli.preprocessing.function_digest import function_entry
from datasets_cli.preprocessing.task import Function, PreprocessTask, apply, write_rows
from datasets_cli.preprocessing.work import (
    Work,
    check_destination,
    lock_of,
    make_plan,
    refuse_used,
)
from datasets_cli.progress import Progress, reporting_to
from datasets_cli.replay.storages.dataset import DatasetStorage, open_storage
from datasets_cli.sources.disk import disk_errors
from datasets_cli.store.commit import commit_folder
from datasets_cli.store.dataset import Dataset, open_dataset
from datasets_cli.store.lock import locked
from datasets_cli.store.manifest import Manifest
from datasets_cli.store.schema.columns import (
    DONE,
    TRUNCATED,
    Column,
    rows_per_block,
)
from datasets_cli.store.schema.meta_files import write_meta_files
from datasets_cli.store.schema.summary import summarise
from datasets_cli.store.schema.texts import TextColumn, any_column, text_files
from datasets_cli.store.schema.trajectories import first_rows
from datasets_cli.store.ted.writer import reward_column, write_beside
from datasets_cli.store.text.writer import TextWriter
from datasets_cli.version import TOOL


def preprocess(
    source: Path,
    function: Function,
    dest: Path,
    *,
    id: str | None = None,
    num_workers: int | None = None,
    num_frames: int | None = None,
    chunksize: int | None = None,
    executor: Executor | None = None,
    seed: int = 0,
    lock_timeout: float = LOCK_TIMEOUT_SECONDS,
    progress: Progress | None = None,
) -> DatasetStorage:
    """Write ``function`` of every row into a new dataset and return it as a read-only storage.

    Args:
        source: folder of the dataset to read.
        function: takes a TensorDict ``[n]`` of consecutive rows, a copy, and returns a TensorDict
            ``[n]``, always with the same keys, element types and row shapes.
        dest: folder of the new dataset; it must not hold anything.
        id: id of the new dataset; ``derived/<name of dest>`` by default.
        num_workers: processes; all cores where None, the calling process where 0.
        num_frames: only the first n rows, to try a function.
        chunksize: rows of a task, which the function takes at once; by default about 8 MiB of
            them, at most 65,536.
        executor: where to run; its workers must see both folders. Processes of this machine, as
            ``num_workers`` says, where None.
        seed: torch is seeded from it for every task, so that random functions repeat.
        lock_timeout: seconds to wait for another process that writes ``dest``.
        progress: told of the rows done, and that we wait.

    Raises:
        LockedError: another process still writes ``dest``.
        UsageError: ``dest`` is not empty, or the function does not return rows.
        RldsError: the function raised (the rows are named), or a worker process died. What is done
            is kept: the same call continues.
    """
    if num_workers is not None and num_workers < 0:
        raise UsageError(f"{num_workers} workers cannot work; expected 0 or more.")
    if num_frames is not None and num_frames < 1:
        raise UsageError(f"num_frames is {num_frames}; expected 1 or more.")
    if chunksize is not None and chunksize < 1:
        raise UsageError(f"chunksize is {chunksize}; expected 1 or more.")
    dest = dest.resolve()
    dataset = open_dataset(source, text=True)
    num_rows = min(num_frames or len(dataset), len(dataset))
    check_destination(dest)
    columns, texts = _probe(dataset, function, seed, num_rows)
    pickled = cloudpickle.dumps(function)
    row_bytes = sum(column.row_bytes for column in dataset.manifest.columns)
    task_rows = chunksize or rows_per_block(row_bytes)
    entry = function_entry(function)
    work = Work(dest, make_plan(dataset, entry, columns, texts, num_rows, task_rows, seed))
    with locked(lock_of(dest), str(dest), lock_timeout, progress):
        check_destination(dest)
        work.prepare(columns, num_rows)
        tasks = list(_tasks(dataset, work, pickled, columns, texts, num_rows, task_rows, seed))
        if num_workers is None and len(tasks) <= 1:
            num_workers = 0  # starting a process takes longer than one task
        # An executor that a caller gives is the caller's to end; one made here ends here.
        with nullcontext(executor) if executor else local_pool(num_workers) as pool:
            _run(pool, tasks, work, num_rows, reporting_to(progress))
        num_tasks = -(-num_rows // task_rows)
        parts = [work.part(number) for number in range(num_tasks)] if texts else []
        origin: dict[str, Any] = {
            "function": entry,
            # A run of fewer rows than the function takes at once is one call.
            "arguments": {"num_frames": num_rows, "chunksize": min(task_rows, num_rows)},
            "seed": seed,
        }
        new_id = id or f"derived/{dest.name}"
        _commit(dataset, work, columns, texts, parts, num_rows, new_id, origin)
        # Whoever waits for it, or makes a new one, is refused: the destination is not empty now.
        lock_of(dest).unlink(missing_ok=True)
    return open_storage(dest)


def _probe(
    dataset: Dataset, function: Function, seed: int, num_rows: int
) -> tuple[tuple[Column, ...], tuple[TextColumn, ...]]:
    """Return the columns that the function gives, learned from the first two rows."""
    rows = apply(dataset, function, seed, 0, min(2, num_rows))
    found = [any_column(key, values) for key, values in sorted(rows.items())]
    return (
        tuple(column for column in found if isinstance(column, Column)),
        tuple(column for column in found if isinstance(column, TextColumn)),
    )


def _tasks(
    dataset: Dataset,
    work: Work,
    pickled: bytes,
    columns: tuple[Column, ...],
    texts: tuple[TextColumn, ...],
    num_rows: int,
    task_rows: int,
    seed: int,
) -> Iterator[PreprocessTask]:
    """Yield the tasks that are not done; their bounds do not depend on the workers."""
    for number, start in enumerate(range(0, num_rows, task_rows)):
        mark = work.mark(number)
        if not mark.exists():
            stop = min(start + task_rows, num_rows)
            yield PreprocessTask(
                source=dataset.folder,
                data=work.data,
                mark=mark,
                start=start,
                stop=stop,
                seed=seed,
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


def _commit(
    dataset: Dataset,
    work: Work,
    columns: tuple[Column, ...],
    texts: tuple[TextColumn, ...],
    parts: list[Path],
    num_rows: int,
    id: str,
    origin: Mapping[str, Any],
) -> None:
    """Write what follows from all rows, and commit the folder.

    Args:
        dataset: that the rows were made of.
        work: where they are.
        columns: of the new dataset.
        texts: of the new dataset.
        parts: the folders of the tasks' text, in their order.
        num_rows: of the new dataset.
        id: of the new dataset.
        origin: function, arguments and seed, for the manifest.
    """
    parent = dataset.manifest
    offsets = first_rows(dataset.offsets.numpy(), num_rows)
    data = work.data
    with disk_errors(data):
        _end_last_trajectory(data, columns, num_rows)
        names = write_meta_files(data, columns, num_rows)
        names += [column.filename for column in columns if column.row_bytes]
        names += _join_text(data, texts, parts)
        manifest = Manifest(
            id=id,
            layout="ted",
            num_transitions=num_rows,
            num_trajectories=len(offsets) - 1,
            columns=columns,
            files=write_beside(data, names, offsets, {}),
            recipe=parent.recipe,
            # Notes are about the parent's rows and fields, which a function may have changed.
            metadata={name: known for name, known in parent.metadata.items() if name != "notes"},
            texts=texts,
            statistics=summarise(data, reward_column(columns), offsets),
            parent={"id": parent.id, "content": parent.content, "state": parent.state},
            **origin,
            tool=TOOL,
        )
    if not commit_folder(data, work.dest, manifest):
        refuse_used(work.dest)
    shutil.rmtree(work.folder, ignore_errors=True)


def _join_text(data: Path, texts: tuple[TextColumn, ...], parts: list[Path]) -> list[str]:
    """Write the text of all tasks, in their order, and return the names of its files."""
    for name in text_files(texts):  # of a run that was killed here
        (data / name).unlink(missing_ok=True)
    writer = TextWriter(data)
    try:
        if texts:
            writer.join(parts, texts)
        return writer.finish()
    finally:
        writer.close()


def _end_last_trajectory(data: Path, columns: tuple[Column, ...], num_rows: int) -> None:
    """Mark the last row as truncated unless it is done: ``num_frames`` may cut a trajectory.

    A flag is one byte per row, so row n is byte n of its file.
    """
    single = (column for column in columns if (column.dtype, column.shape) == ("bool", (1,)))
    flags = {column.key: data / column.filename for column in single}
    if not {DONE, TRUNCATED} <= flags.keys():
        return
    with flags[DONE].open("r+b") as done, flags[TRUNCATED].open("r+b") as truncated:
        done.seek(num_rows - 1)
        if done.read(1) == b"\0":
            for file in (done, truncated):
                file.seek(num_rows - 1)
                file.write(b"\1")
