"""The end of a run: what follows from all rows, and one commit."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import BinaryIO

import numpy as np

from datasets_cli.errors import UsageError
from datasets_cli.preprocessing.origin import refuse_used
from datasets_cli.preprocessing.remaining import (
    Bounds,
    RemainingRows,
    close_gaps,
    read_mark,
    remaining_rows,
)
from datasets_cli.preprocessing.returned import ResultColumns
from datasets_cli.preprocessing.run import Run
from datasets_cli.preprocessing.work import Work
from datasets_cli.progress import Progress, reporting_to
from datasets_cli.sources.disk import disk_errors, make_folder
from datasets_cli.store.commit import commit_folder, sweep
from datasets_cli.store.dataset import Dataset
from datasets_cli.store.manifest import Manifest
from datasets_cli.store.schema.columns import DONE, TRUNCATED, Column
from datasets_cli.store.schema.meta_files import write_meta_files
from datasets_cli.store.schema.summary import CHUNK_ROWS, summarise
from datasets_cli.store.schema.texts import TextColumn, text_files
from datasets_cli.store.ted.writer import reward_column, write_beside
from datasets_cli.store.text.writer import TextWriter
from datasets_cli.version import TOOL


def commit(
    run: Run,
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
    if left.dropped:
        reporting_to(progress).note(f"{id}: the function dropped {left.dropped}.")
    return manifest


def _described(
    run: Run, work: Work, columns: ResultColumns, left: RemainingRows, data: Path, id: str
) -> Manifest:
    """Write what follows from all rows, and return the manifest of all that is there."""
    parent, origin, numbers = run.dataset.manifest, run.origin, columns.numbers
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
            # Notes are about the parent's rows and fields, which a function may have changed.
            metadata={name: known for name, known in parent.metadata.items() if name != "notes"},
            texts=columns.texts,
            statistics=summarise(data, reward_column(numbers), left.offsets),
            parent=dict(origin.parent, dropped=left.dropped) if left.dropped else origin.parent,
            function=origin.function,
            arguments=origin.arguments,
            seed=origin.seed,
            tool=TOOL,
        )


def _rows_left(run: Run, work: Work) -> RemainingRows:
    """Return what the function kept of all rows."""
    dataset, num_rows = run.dataset, run.num_rows

    def kept(number: int) -> np.ndarray | None:
        start, stop = run.bounds[number]
        return read_mark(work.mark(number), stop - start)

    left = remaining_rows(run.offsets, _early_ends(dataset, num_rows), run.bounds, kept)
    if not left.num_rows:
        shutil.rmtree(work.folder, ignore_errors=True)  # of no use to another call
        raise UsageError(
            f"The function must return a row or more: it dropped all {num_rows:,} rows of "
            f"{dataset.manifest.id}. Look at the mask by which it chooses rows."
        )
    return left


def _join_text(data: Path, texts: tuple[TextColumn, ...], work: Work, places: Bounds) -> list[str]:
    """Write the text of all tasks, in their order, and return the names of its files."""
    parts = [work.part(number) for number, (_, count) in enumerate(places) if count]
    for name in text_files(texts):  # of a run that was killed here
        (data / name).unlink(missing_ok=True)
    writer = TextWriter(data)
    try:
        if texts:
            writer.join(parts, texts)
        return writer.finish()
    finally:
        writer.close()


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
