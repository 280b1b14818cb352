"""The end of a run: what is left of the rows, what follows from them, and one commit.

    read        0 0 0 0 0 1 1 2 2        trajectories 0 to 2
    kept        x x . x x . . x x
    remain      0 0   1 1     2 2        the first is cut into two; the second is gone

The last row of a piece that a cut made ends early, as that of a view does.

    data/x.memmap      a a a . b b . .       each chunk at the place of all its rows
    closed/x.memmap    a a a b b

A file gets its name when it is whole, and the files with gaps stay until the commit: the next run
continues one that was killed at any moment.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from datasets_cli.errors import UsageError
from datasets_cli.preprocessing.comparison import notes_of
from datasets_cli.preprocessing.origin import refuse_used
from datasets_cli.preprocessing.returned import ResultColumns, read_mark
from datasets_cli.preprocessing.run import PreprocessRun
from datasets_cli.preprocessing.work import Work
from datasets_cli.progress import Progress, reporting_to
from datasets_cli.quantities import counted
from datasets_cli.schema.columns import BLOCK_BYTES, DONE, TRUNCATED, Column
from datasets_cli.schema.summary import CHUNK_ROWS, summarise
from datasets_cli.schema.texts import TextColumn, text_files
from datasets_cli.schema.trajectories import lengths_of
from datasets_cli.sources.disk import (
    check_free_space,
    disk_errors,
    flush,
    make_folder,
    replace_file,
)
from datasets_cli.store.commit import commit_folder, sweep
from datasets_cli.store.dataset import Dataset
from datasets_cli.store.layouts.ted_writer import reward_column, write_beside, write_meta_files
from datasets_cli.store.manifest import Manifest
from datasets_cli.store.text_writer import TextWriter
from datasets_cli.version import TOOL

ChunkBounds = list[tuple[int, int]]
"""First row and one past the last of every chunk."""


@dataclass(frozen=True)
class RemainingRows:
    """The rows of a result, in the order in which they were read."""

    # offsets: of the trajectories, int64 `[K + 1]`.
    # early_ends: rows that may end a trajectory too early, int64 `[n]`.

    places: ChunkBounds
    offsets: np.ndarray
    early_ends: np.ndarray
    dropped: str = ""

    @property
    def num_rows(self) -> int:
        """How many rows are left."""
        return int(self.offsets[-1])


def remaining_rows(
    offsets: np.ndarray,
    early_ends: np.ndarray,
    bounds: ChunkBounds,
    kept_of: Callable[[int], np.ndarray | None],
) -> RemainingRows:
    """Return what is left of rows; memory grows with trajectories, and not with rows."""
    # offsets: of the trajectories that were read, int64 `[K + 1]`.
    # early_ends: rows of them that may end a trajectory too early, int64 `[n]`.
    # kept_of: gives bool `[n]`, which rows of a chunk are left, by its number; None for all.
    places = []
    for number, (start, stop) in enumerate(bounds):
        kept = kept_of(number)
        places.append((start, stop - start if kept is None else int(kept.sum())))
    num_rows = sum(count for _, count in places)
    if num_rows == offsets[-1]:
        return RemainingRows(places, offsets, early_ends)
    firsts, starts = _pieces(offsets, _left(bounds, kept_of))
    left = np.append(starts, num_rows)
    # A piece is consecutive rows: its last one, of those that were read, follows from its first.
    lasts = firsts + lengths_of(left) - 1
    numbers = np.searchsorted(offsets, firsts, side="right") - 1
    # offsets[number + 1] is one past the last row of a trajectory, and of a piece that is not cut.
    is_cut = lasts + 1 != offsets[numbers + 1]
    ends_early = is_cut | np.isin(lasts, early_ends)
    num_whole = int((~is_cut & (firsts == offsets[numbers])).sum())
    # A trajectory without a piece is gone; one whose only piece is not whole is there in part.
    dropped = _in_words(offsets, num_rows, len(np.unique(numbers)), num_whole)
    return RemainingRows(places, left, left[1:][ends_early] - 1, dropped)


def _in_words(offsets: np.ndarray, num_rows: int, num_found: int, num_whole: int) -> str:
    num_read, num_trajectories = int(offsets[-1]), len(offsets) - 1
    return (
        f"{num_read - num_rows:,} of {counted(num_read, 'row')}: "
        f"{num_trajectories - num_found:,} of {counted(num_trajectories, 'trajectory')} whole, "
        f"{num_found - num_whole:,} in part"
    )


def _left(bounds: ChunkBounds, kept_of: Callable[[int], np.ndarray | None]) -> Iterable[np.ndarray]:
    """Yield the numbers of the rows that are left, int64 ``[k]``, chunk by chunk."""
    for number, (start, stop) in enumerate(bounds):
        kept = kept_of(number)
        yield np.arange(start, stop) if kept is None else np.flatnonzero(kept) + start


def _pieces(offsets: np.ndarray, left: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return where runs of consecutive rows of one trajectory begin."""
    # The number of each run's first row among all, and its place among those left: int64 `[K]`.
    firsts, starts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    previous, num_before = -2, 0
    for rows in left:
        is_next = np.diff(rows, prepend=previous) == 1
        # offsets[-1] is beyond every row, so that each search finds an offset.
        begins = offsets[np.searchsorted(offsets, rows)] == rows
        places = np.flatnonzero(~is_next | begins)
        firsts.append(rows[places])
        starts.append(places + num_before)
        num_before += len(rows)
        previous = int(rows[-1]) if len(rows) else previous
    return np.concatenate(firsts), np.concatenate(starts)


def close_gaps(
    data: Path, closed: Path, columns: tuple[Column, ...], places: ChunkBounds, what: str
) -> None:
    """Copy the rows that are left into files of their own; memory does not grow with them."""
    num_rows = sum(count for _, count in places)
    missing = [
        column for column in columns if column.row_bytes and not (closed / column.filename).exists()
    ]
    size = sum(column.row_bytes for column in missing) * num_rows
    check_free_space(closed.parent, size, f"{what}, whose function drops rows,")
    with disk_errors(closed):
        closed.mkdir(exist_ok=True)
        for column in missing:
            # Its own in each process, where locks do not work; outside of what is committed.
            new = closed.with_name(f"{closed.name}.{os.getpid()}")
            with (data / column.filename).open("rb") as source, new.open("wb") as target:
                for start, count in places:
                    source.seek(start * column.row_bytes)
                    _copy(source, target, count * column.row_bytes)
            flush(new)
            (closed / column.filename).parent.mkdir(parents=True, exist_ok=True)
            replace_file(new, closed / column.filename)


def _copy(source: BinaryIO, target: BinaryIO, size: int) -> None:
    while size:
        block = source.read(min(size, BLOCK_BYTES))
        assert block, "a file has a place for each row that was read"
        target.write(block)
        size -= len(block)


def commit(
    run: PreprocessRun,
    work: Work,
    columns: ResultColumns,
    id: str,
    trash: Path | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Write what follows from all rows, and commit the folder; return its manifest."""
    left = _rows_left(run, work)
    data = work.data
    if left.dropped:
        data = work.closed
        close_gaps(work.data, data, columns.numbers, left.places, id)
    manifest = _described(run, work, columns, left, data, id)
    if trash is not None:
        make_folder(trash.parent)
    if not commit_folder(data, work.dest, manifest, trash):
        refuse_used(work.dest)
    shutil.rmtree(work.folder, ignore_errors=True)
    if trash is not None:
        sweep(trash)
    told = [f"the function dropped {left.dropped}"] if left.dropped else []
    for text in [*told, *manifest.metadata.get("notes", ())]:
        reporting_to(progress).note(f"{id}: {text}.")
    return manifest


def _described(
    run: PreprocessRun, work: Work, columns: ResultColumns, left: RemainingRows, data: Path, id: str
) -> Manifest:
    """Write what follows from all rows, and return the manifest of all that is there."""
    parent, origin, numbers = run.dataset.manifest, run.origin, columns.numbers
    # The parent's notes are about its rows and fields, which a function may have changed.
    metadata = {name: known for name, known in parent.metadata.items() if name != "notes"}
    if notes := notes_of([work.mark(number) for number in range(len(run.bounds))]):
        metadata["notes"] = notes
    with disk_errors(data):
        _end_cut_trajectories(data, numbers, left.early_ends)
        names = write_meta_files(data, numbers, left.num_rows)
        names += [column.filename for column in numbers if column.row_bytes]
        names += _join_text(data, columns.texts, work, left.places)
        return Manifest(
            id=id,
            layout="ted",
            num_transitions=left.num_rows,
            num_trajectories=len(left.offsets) - 1,
            columns=numbers,
            files=write_beside(data, names, left.offsets, {}),
            recipe=parent.recipe,
            metadata=metadata,
            texts=columns.texts,
            statistics=summarise(data, reward_column(numbers), left.offsets),
            parent=dict(origin.parent, dropped=left.dropped) if left.dropped else origin.parent,
            function=origin.function.entry,
            arguments=origin.arguments,
            seed=origin.seed,
            tool=TOOL,
        )


def _rows_left(run: PreprocessRun, work: Work) -> RemainingRows:
    dataset, num_rows = run.dataset, run.num_rows

    def kept(number: int) -> np.ndarray | None:
        start, stop = run.bounds[number]
        return read_mark(work.mark(number), stop - start)

    left = remaining_rows(run.offsets, _early_ends(dataset, num_rows), run.bounds, kept)
    if not left.num_rows:
        shutil.rmtree(work.folder, ignore_errors=True)  # of no use to another call
        raise UsageError(
            f"The function must return a row or more: it dropped all {counted(num_rows, 'row')} of "
            f"{dataset.manifest.id}. Look at the mask by which it chooses rows."
        )
    return left


def _join_text(
    data: Path, texts: tuple[TextColumn, ...], work: Work, places: ChunkBounds
) -> list[str]:
    """Write the text of all tasks, in their order, and return the names of its files."""
    if not texts:
        return []
    parts = [work.part(number) for number, (_, count) in enumerate(places) if count]
    for name in text_files(texts):  # of a run that was killed here
        (data / name).unlink(missing_ok=True)
    with closing(TextWriter(data)) as writer:
        writer.join(parts, texts)
        return writer.finish()


def _early_ends(dataset: Dataset, num_rows: int) -> np.ndarray:
    """Return the rows int64 ``[n]`` that may end a trajectory of theirs too early: cut ones."""
    # `num_frames` may cut the last one, and a view any.
    last = np.array([num_rows - 1])
    selection = dataset.selection
    if selection is None:
        return last
    ends = dataset.offsets.numpy()[1:] - 1
    is_cut = selection.ends_early(dataset.whole.offsets.numpy()) & (ends < num_rows)
    return np.union1d(last, ends[is_cut])


def _end_cut_trajectories(data: Path, columns: tuple[Column, ...], rows: np.ndarray) -> None:
    """Mark rows int64 ``[n]``, increasing, as truncated, those of them that are not done."""
    single = (column for column in columns if (column.dtype, column.shape) == ("bool", (1,)))
    flags = {column.key: data / column.filename for column in single}
    if not (len(rows) and {DONE, TRUNCATED} <= flags.keys()):
        return
    with flags[DONE].open("r+b") as done, flags[TRUNCATED].open("r+b") as truncated:
        # A flag is one byte a row. Blocks of many rows, as a function may cut all trajectories.
        for block in np.split(rows, np.flatnonzero(np.diff(rows // CHUNK_ROWS)) + 1):
            first, last = int(block[0]), int(block[-1])
            done_rows, truncated_rows = (_flags(file, first, last) for file in (done, truncated))
            early = block[~done_rows[block - first]] - first
            done_rows[early] = truncated_rows[early] = True
            # In this order: the run after a killed one leaves alone what is done.
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
