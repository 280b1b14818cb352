"""The end of a run: dropped rows leave no gaps, trajectories are counted, one commit.

    data/x.memmap      a a a . b b . .       each chunk at the place of all its rows
    closed/x.memmap    a a a b b

A file gets its name once it is complete, and the files with gaps stay until the commit, so the next
run continues one that was killed at any moment.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from datasets_cli.core.progress import Note, Progress, silent
from datasets_cli.core.quantities import counted
from datasets_cli.errors import WrongRows
from datasets_cli.preprocessing.frames import PartOfFrames, join_parts
from datasets_cli.preprocessing.origin import refuse_used
from datasets_cli.preprocessing.returned import ResultColumns, read_mark
from datasets_cli.preprocessing.row_checks import notes_of
from datasets_cli.preprocessing.run import PreprocessRun
from datasets_cli.preprocessing.work import Work
from datasets_cli.schema.columns import DONE, TRUNCATED, Column
from datasets_cli.schema.summary import CHUNK_ROWS
from datasets_cli.schema.texts import TextColumn, text_files
from datasets_cli.schema.trajectories import runs_of, trajectory_of
from datasets_cli.sources.disk import check_free_space, copy_bytes, disk_errors, flush, make_folder
from datasets_cli.sources.new_files import replace_file
from datasets_cli.store.commit import commit_folder
from datasets_cli.store.dataset import Dataset
from datasets_cli.store.layouts.ted_writer import Written, complete_leaves, describe_files
from datasets_cli.store.manifest import Manifest
from datasets_cli.store.texts import TextWriter
from datasets_cli.version import TOOL

ChunkBounds = list[tuple[int, int]]
"""The first row of every chunk, and one past its last."""


@dataclass(frozen=True)
class RemainingRows:
    """The rows that are left of a run whose function may drop some, in the order of the input.

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
    # A trajectory without a piece is gone; one without a whole piece remains in part.
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
    work: Work,
    columns: ResultColumns,
    id: str,
    trash: Path | None = None,
    progress: Progress = silent,
) -> Manifest:
    """Complete the folder and commit it; return its manifest."""
    left = _rows_left(run, work)
    leaves = work.data
    if left.dropped:
        leaves = work.closed
        close_gaps(work.data, leaves, columns.leaves, left.places, id)
    data = leaves if columns.layout == "ted" else work.packed
    manifest = _described(run, work, columns, left, leaves, data, id)
    if trash is not None:
        make_folder(trash.parent)
    if not commit_folder(data, work.dest, manifest, trash):
        refuse_used(work.dest)
    shutil.rmtree(work.folder, ignore_errors=True)
    dropped = [f"the function dropped {left.dropped}"] if left.dropped else []
    for text in [*dropped, *manifest.metadata.get("notes", ())]:
        progress(Note(f"{id}: {text}."))
    return manifest


def _described(
    run: PreprocessRun,
    work: Work,
    columns: ResultColumns,
    left: RemainingRows,
    leaves: Path,
    data: Path,
    id: str,
) -> Manifest:
    """Write the files that depend on all rows, and return the manifest."""
    parent, origin = run.dataset.manifest, run.origin
    # The parent's notes describe its rows and fields, which a function may have changed.
    metadata = {name: known for name, known in parent.metadata.items() if name != "notes"}
    if notes := notes_of([work.mark(number) for number in range(len(run.bounds))]):
        metadata["notes"] = notes
    with disk_errors(data):
        _end_cut_trajectories(leaves, columns.leaves, left.early_ends)
        if columns.layout == "ted":
            written = complete_leaves(data, columns.leaves, left.offsets, {})
        else:
            written = _packed(run, work, columns, left, leaves)
        texts = describe_files(data, _join_text(data, columns.texts, work, left.places))
    files = dict(sorted({**written.files, **texts}.items()))
    return Manifest(
        id=id,
        **vars(replace(written, files=files, texts=columns.texts)),
        recipe=parent.recipe,
        metadata=metadata,
        parent=dict(origin.parent, dropped=left.dropped) if left.dropped else origin.parent,
        function=origin.function.entry,
        arguments=origin.arguments,
        seed=origin.seed,
        tool=TOOL,
    )


def _packed(
    run: PreprocessRun, work: Work, columns: ResultColumns, left: RemainingRows, leaves: Path
) -> Written:
    """Join the frames of all tasks and pack the leaves; return the written files."""
    from datasets_cli.store.layouts.compact_writer import write_packed  # with its compressor

    counts = [count for _, count in left.places]
    is_end = np.isin(np.cumsum(counts), left.offsets).tolist()
    parts = [
        PartOfFrames(work.part(number), stop, continues=not is_end[number])
        for number, (_, stop) in enumerate(run.bounds)
        if counts[number]
    ]
    work.packed.mkdir(exist_ok=True)
    join_parts(work.packed, columns.frames, parts)
    return write_packed(leaves, columns.leaves, columns.frames, left.offsets, work.packed, {})


def _rows_left(run: PreprocessRun, work: Work) -> RemainingRows:
    dataset, num_rows = run.dataset, run.num_rows

    def kept(number: int) -> np.ndarray | None:
        start, stop = run.bounds[number]
        return read_mark(work.mark(number), stop - start)

    left = remaining_rows(run.offsets, _early_ends(dataset, num_rows), run.bounds, kept)
    if not left.num_rows:
        shutil.rmtree(work.folder, ignore_errors=True)  # no other call could use it
        raise WrongRows(
            f"The function must return a row or more: it dropped all {counted(num_rows, 'row')} of "
            f"{dataset.id}.",
            id=dataset.id,
            found=0,
            advice="Check the mask by which it chooses rows.",
        )
    return left


def _join_text(
    data: Path, texts: tuple[TextColumn, ...], work: Work, places: ChunkBounds
) -> list[str]:
    """Join the text of all tasks, in their order; return the names of its files."""
    if not texts:
        return []
    parts = [work.part(number) for number, (_, count) in enumerate(places) if count]
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
