"""The execution of a run: its tasks, in this process or on workers, then one commit.

Each task writes the bytes of its rows into preallocated files, and then a mark. So any number of
workers gives the same bytes, and the next run continues one that was killed. If the function drops
rows, the commit copies the remaining rows into files without gaps:

    data/x.memmap      a a a . b b . .       each chunk at the place of all its rows
    closed/x.memmap    a a a b b

A file gets its name once it is complete, and the files with gaps stay until the commit.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from datasets_cli.core.progress import Note, Progress, Rows, silent
from datasets_cli.core.quantities import counted
from datasets_cli.errors import DiskFull, WrongRows
from datasets_cli.parallel.cluster import WorkerCheck
from datasets_cli.parallel.engine import WORTH_PROCESSES_SECONDS, Workers
from datasets_cli.parallel.tasks import CallingProcess, run_tasks
from datasets_cli.preprocessing.chunk import RowChunk
from datasets_cli.preprocessing.frames import PartOfFrames, join_parts
from datasets_cli.preprocessing.options import PreprocessOptions
from datasets_cli.preprocessing.origin import existing_result, refuse_used
from datasets_cli.preprocessing.pipeline import Mapped
from datasets_cli.preprocessing.result import read_mark
from datasets_cli.preprocessing.run import PreprocessRun, RunFolder
from datasets_cli.preprocessing.task import PreprocessTask, write_in_worker, write_rows
from datasets_cli.schema.columns import (
    DONE,
    EPISODE,
    FINAL_FOLDER,
    RECORDED_STEP,
    TRUNCATED,
    Column,
    rows_per_block,
)
from datasets_cli.schema.summary import CHUNK_ROWS
from datasets_cli.schema.texts import TextColumn, text_files
from datasets_cli.schema.trajectories import runs_of, trajectory_of
from datasets_cli.sources.disk import check_free_space, copy_bytes, disk_errors, flush, make_folder
from datasets_cli.sources.new_files import replace_file
from datasets_cli.store.cache_root import runs_to
from datasets_cli.store.commit import commit_folder
from datasets_cli.store.dataset import Dataset
from datasets_cli.store.layouts.ted_writer import Written, complete_leaves, describe_files
from datasets_cli.store.lock import dest_locked
from datasets_cli.store.manifest import Manifest
from datasets_cli.store.texts import TextWriter, count_splits
from datasets_cli.store.writer import FinalWriter
from datasets_cli.version import TOOL

LOOK_SECONDS = 0.5
"""How long tasks run in this process before the remaining time is estimated."""


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
    if made := existing_result(dest, run.origin, trash is not None):
        if runs_to(dest):  # of a process that was killed after its last rename, for example
            with dest_locked(dest, lock_timeout, progress):
                for leftover in runs_to(dest):
                    shutil.rmtree(leftover, ignore_errors=True)
        return made, False
    folder = RunFolder(dest, run.plan)
    with dest_locked(dest, lock_timeout, progress):
        # By the process that we waited for.
        if made := existing_result(dest, run.origin, trash is not None):
            return made, False
        new_id = id or f"derived/{dest.name}"
        for note in (*run.notes, *run.final_notes):
            progress(Note(f"{new_id}: {note}."))
        try:
            _fill(run, folder, workers, new_id, progress)
            return commit(run, folder, new_id, trash, progress), True
        except FileNotFoundError:
            # Where locks do not work, another process with the same run may have been faster: it
            # filled the same files with the same bytes and renamed their folder.
            if folder.data.exists() or not (made := existing_result(dest, run.origin)):
                raise
            return made, False


def _fill(
    run: PreprocessRun, folder: RunFolder, workers: Workers, id: str, progress: Progress
) -> None:
    try:
        folder.prepare(run)
    except DiskFull:
        folder.discard_unusable()
        raise
    tasks = list(run.tasks(folder, elsewhere=workers.engine != "local"))
    execution = _Execution(tasks, run, folder, id, progress)
    try:
        execution.run(workers)
    except BaseException:
        # Tasks on a caller's or a cluster's workers may still write.
        if workers.ends_tasks or not execution.workers_began:
            folder.discard_unusable()
        raise


class _Execution:
    """The tasks of a run: first in this process, then on workers if they take long."""

    def __init__(
        self,
        tasks: list[PreprocessTask],
        run: PreprocessRun,
        folder: RunFolder,
        id: str,
        progress: Progress,
    ) -> None:
        self._tasks, self._dataset, self._folder = tasks, run.dataset, folder
        self._id, self._progress, self._num_rows = id, progress, run.num_rows
        self._rows_left = sum(task.stop - task.start for task in tasks)
        self.rows_done = run.num_rows - self._rows_left
        self.workers_began = False

    def run(self, workers: Workers) -> None:
        """Do all tasks; on all cores if ``workers`` has no number and it is worth it."""
        self._report()
        if workers.ends_tasks and workers.num_workers is None:
            self._begin_here()
        if not self._tasks:
            return
        with workers.at_most(len(self._tasks)).pool() as pool:
            if isinstance(pool, CallingProcess):
                done = self._done_here()
            else:
                check = WorkerCheck(self._folder.path)
                check.write_token()
                source = self._dataset.folder, self._dataset.manifest.content
                done = self._done_by(pool, partial(write_in_worker, check, *source))
            self.workers_began = True
            for _ in done:
                pass

    def _begin_here(self) -> None:
        """Execute tasks in this process until the rest is worth starting processes."""
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
        tasks, kept, progress = self._tasks, self._folder.kept, self._progress
        for task, _ in run_tasks(pool, write, tasks, kept, name=self._name, progress=progress):
            self._rows_left -= task.stop - task.start
            self.rows_done += task.stop - task.start
            self._report()
            yield

    def _report(self) -> None:
        self._progress(Rows(self._id, self.rows_done, self._num_rows))

    def _name(self, task: PreprocessTask) -> str:
        return str(RowChunk(self._dataset, task.start, task.stop))


ChunkBounds = list[tuple[int, int]]
"""The first row of every chunk, and one past its last."""


@dataclass(frozen=True)
class RemainingRows:
    """The remaining rows of a run whose function may drop rows, in the order of the input.

    read        0 0 0 0 0 1 1 2 2        trajectories 0 to 2
    kept        x x . x x . . x x
    remain      0 0   1 1     2 2        the first is cut into two; the second is gone
    """

    # offsets: of the trajectories, int64 `[K + 1]`.
    # early_ends: rows that end a trajectory early, as the cut of a view does, int64 `[n]`.

    places: ChunkBounds
    offsets: np.ndarray
    early_ends: np.ndarray
    dropped: str = ""

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return int(self.offsets[-1])


def remaining_rows(
    offsets: np.ndarray,
    early_ends: np.ndarray,
    bounds: ChunkBounds,
    kept_of: Callable[[int], np.ndarray | None],
) -> RemainingRows:
    """Return the remaining rows; memory grows with trajectories, and not with rows."""
    # offsets: of the trajectories of the input, int64 `[K + 1]`.
    # early_ends: rows of the input that may end a trajectory early, int64 `[n]`.
    # kept_of: returns the mask `[n]` of the kept rows of a chunk, by its number; None for all.
    places = []
    for number, (start, stop) in enumerate(bounds):
        kept = kept_of(number)
        places.append((start, stop - start if kept is None else int(kept.sum())))
    num_rows = sum(count for _, count in places)
    if num_rows == offsets[-1]:
        return RemainingRows(places, offsets, early_ends)
    firsts, lengths = runs_of(offsets, _left(bounds, kept_of))
    left = np.append(0, np.cumsum(lengths))
    # A piece is consecutive rows of the input: its first row and its length give its last row.
    lasts = firsts + lengths - 1
    numbers = trajectory_of(offsets, firsts)
    # offsets[number + 1] is one past the last row of a trajectory, and of an uncut piece.
    is_cut = lasts + 1 != offsets[numbers + 1]
    ends_early = is_cut | np.isin(lasts, early_ends)
    num_whole = int((~is_cut & (firsts == offsets[numbers])).sum())
    # A trajectory without a piece is dropped; one without a complete piece remains in part.
    dropped = _in_words(offsets, num_rows, len(np.unique(numbers)), num_whole)
    return RemainingRows(places, left, left[1:][ends_early] - 1, dropped)


def _in_words(offsets: np.ndarray, num_rows: int, num_found: int, num_whole: int) -> str:
    num_read, num_trajectories = int(offsets[-1]), len(offsets) - 1
    return (
        f"{num_read - num_rows:,} of {counted(num_read, 'row')}: "
        f"{num_trajectories - num_found:,} of {counted(num_trajectories, 'trajectory')} whole, "
        f"{num_found - num_whole:,} in part"
    )


def _left(bounds: ChunkBounds, kept_of: Callable[[int], np.ndarray | None]) -> Iterator[np.ndarray]:
    """Yield the numbers of the remaining rows, int64 ``[k]``, chunk by chunk."""
    for number, (start, stop) in enumerate(bounds):
        kept = kept_of(number)
        yield np.arange(start, stop) if kept is None else np.flatnonzero(kept) + start


def close_gaps(
    data: Path, closed: Path, columns: tuple[Column, ...], places: ChunkBounds, what: str
) -> None:
    """Copy the remaining rows into new files, in bounded memory."""
    num_rows = sum(count for _, count in places)
    missing = [
        column for column in columns if column.row_bytes and not (closed / column.filename).exists()
    ]
    size = sum(column.row_bytes for column in missing) * num_rows
    check_free_space(closed.parent, size, f"{what}, whose function drops rows,")
    with disk_errors(closed):
        closed.mkdir(exist_ok=True)
        for column in missing:
            # A name of this process, as locks may not work; outside of the committed folder.
            new = closed.with_name(f"{closed.name}.{os.getpid()}")
            with (data / column.filename).open("rb") as source, new.open("wb") as target:
                for start, count in places:
                    source.seek(start * column.row_bytes)
                    copy_bytes(source, target, count * column.row_bytes)
            flush(new)
            (closed / column.filename).parent.mkdir(parents=True, exist_ok=True)
            replace_file(new, closed / column.filename)


def commit(
    run: PreprocessRun,
    folder: RunFolder,
    id: str,
    trash: Path | None = None,
    progress: Progress = silent,
) -> Manifest:
    """Complete the folder of a run and commit it; return its manifest."""
    rows = _remaining_rows(run, folder)
    leaves = folder.data
    if rows.dropped:
        leaves = folder.closed
        close_gaps(folder.data, leaves, run.columns.leaves, rows.places, id)
    data = leaves if run.columns.layout == "ted" else folder.packed
    with disk_errors(data):
        written = _complete(run, folder, rows, leaves, data)
    manifest = _manifest(run, rows, written, id)
    if trash is not None:
        make_folder(trash.parent)
    if not commit_folder(data, folder.dest, manifest, trash):
        refuse_used(folder.dest)
    shutil.rmtree(folder.path, ignore_errors=True)
    if rows.dropped:
        progress(Note(f"{id}: the function dropped {rows.dropped}."))
    return manifest


def _complete(
    run: PreprocessRun, folder: RunFolder, rows: RemainingRows, leaves: Path, data: Path
) -> Written:
    """Write the files that depend on all rows; return the description of all files."""
    columns = run.columns
    _end_cut_trajectories(leaves, columns.leaves, rows.early_ends)
    names = _copy_final(run.dataset, *run.final, data)  # the statistics count them
    if columns.layout == "ted":
        written = complete_leaves(data, columns.leaves, rows.offsets, {})
    else:
        written = _packed(run, folder, rows, leaves)
    names += _join_text(data, columns.texts, folder, rows.places)
    files = dict(sorted({**written.files, **describe_files(data, names)}.items()))
    return replace(
        written,
        files=files,
        texts=columns.texts,
        splits=count_splits(data, columns.texts, files),
        final_steps=len(run.final[0]),
        final_steps_alone=int((run.final[1] < 0).sum()),
    )


def _copy_final(
    dataset: Dataset, places: np.ndarray, episodes: np.ndarray, steps: np.ndarray, data: Path
) -> list[str]:
    """Write the final steps that are kept; return the names of their files."""
    shutil.rmtree(data / FINAL_FOLDER, ignore_errors=True)  # of a run that was killed here
    if not len(places):
        return []
    columns = {key: dataset.final[key] for key in dataset.final.keys}
    size = rows_per_block(dataset.row_bytes)
    with closing(FinalWriter("ted", data / FINAL_FOLDER, dataset.id)) as writer:
        for start in range(0, len(places), size):
            part = slice(start, start + size)
            rows = {key: values[places[part]] for key, values in columns.items()}
            writer.write(rows | {EPISODE: episodes[part], RECORDED_STEP: steps[part]})
        return [f"{FINAL_FOLDER}/{name}" for name in writer.complete()]


def _manifest(run: PreprocessRun, rows: RemainingRows, written: Written, id: str) -> Manifest:
    parent, origin = run.dataset.manifest, run.origin
    # They describe the parent's rows and fields, which a function may have changed.
    of_rows = ("notes", "known_traps")
    metadata = {name: known for name, known in parent.metadata.items() if name not in of_rows}
    metadata |= {"notes": notes} if (notes := run.final_notes) else {}
    return Manifest(
        id=id,
        **vars(written),
        recipe=parent.recipe,
        recorded=run.recorded,
        metadata=metadata,
        parent=dict(origin.parent, dropped=rows.dropped) if rows.dropped else origin.parent,
        function=origin.function.entry,
        arguments=origin.arguments,
        seed=origin.seed,
        tool=TOOL,
    )


def _packed(run: PreprocessRun, folder: RunFolder, rows: RemainingRows, leaves: Path) -> Written:
    """Join the frames of all tasks and pack the leaves; return the written files."""
    from datasets_cli.store.layouts.compact_writer import write_packed  # with its compressor

    columns, counts = run.columns, [count for _, count in rows.places]
    is_end = np.isin(np.cumsum(counts), rows.offsets).tolist()
    parts = [
        PartOfFrames(folder.part(number), stop, continues=not is_end[number])
        for number, (_, stop) in enumerate(run.bounds)
        if counts[number]
    ]
    folder.packed.mkdir(exist_ok=True)
    join_parts(folder.packed, columns.frames, parts)
    return write_packed(leaves, columns.leaves, columns.frames, rows.offsets, folder.packed, {})


def _remaining_rows(run: PreprocessRun, folder: RunFolder) -> RemainingRows:
    dataset, num_rows = run.dataset, run.num_rows

    def kept(number: int) -> np.ndarray | None:
        start, stop = run.bounds[number]
        return read_mark(folder.mark(number), stop - start)

    rows = remaining_rows(run.offsets, _early_ends(dataset, num_rows), run.bounds, kept)
    if not rows.num_rows:
        shutil.rmtree(folder.path, ignore_errors=True)  # no other call could use it
        raise WrongRows(
            f"The function must return a row or more: it dropped all {counted(num_rows, 'row')} of "
            f"{dataset.id}.",
            id=dataset.id,
            expected="a row or more",
            found=0,
            advice="Check the mask by which it chooses rows.",
        )
    return rows


def _join_text(
    data: Path, texts: tuple[TextColumn, ...], folder: RunFolder, places: ChunkBounds
) -> list[str]:
    """Join the text of all tasks, in their order; return the names of its files."""
    if not texts:
        return []
    parts = [folder.part(number) for number, (_, count) in enumerate(places) if count]
    for name in text_files(texts):  # of a run that was killed here
        (data / name).unlink(missing_ok=True)
    with closing(TextWriter(data)) as writer:
        writer.join(parts, texts)
        return writer.finish()


def _early_ends(dataset: Dataset, num_rows: int) -> np.ndarray:
    """Return the rows int64 ``[n]`` at which a trajectory may be cut."""
    # `num_frames` may cut the last trajectory, and a view any.
    last = np.array([num_rows - 1])
    selection = dataset.selection
    if selection is None:
        return last
    ends = dataset.offsets.numpy()[1:] - 1
    is_cut = selection.ends_early(dataset.whole.offsets.numpy()) & (ends < num_rows)
    return np.union1d(last, ends[is_cut])


def _end_cut_trajectories(data: Path, columns: tuple[Column, ...], rows: np.ndarray) -> None:
    """Mark rows int64 ``[n]``, increasing, as truncated unless they are done."""
    single = (column for column in columns if (column.dtype, column.shape) == ("bool", (1,)))
    flags = {column.key: data / column.filename for column in single}
    if not (len(rows) and {DONE, TRUNCATED} <= flags.keys()):
        return
    with flags[DONE].open("r+b") as done, flags[TRUNCATED].open("r+b") as truncated:
        # A flag is one byte a row. In blocks of rows, as a function may cut all trajectories.
        for block in np.split(rows, np.flatnonzero(np.diff(rows // CHUNK_ROWS)) + 1):
            first, last = int(block[0]), int(block[-1])
            done_rows, truncated_rows = (_flags(file, first, last) for file in (done, truncated))
            early = block[~done_rows[block - first]] - first
            done_rows[early] = truncated_rows[early] = True
            # In this order: a run that continues a killed one skips rows that are done.
            _put(truncated, first, truncated_rows)
            _put(done, first, done_rows)


def _flags(file: BinaryIO, first: int, last: int) -> np.ndarray:
    """Return the flags of the rows ``first`` to ``last``, bool ``[n]``."""
    file.seek(first)
    return np.fromfile(file, np.bool_, last - first + 1)


def _put(file: BinaryIO, first: int, flags: np.ndarray) -> None:
    file.seek(first)
    file.write(flags.data)
    file.flush()
