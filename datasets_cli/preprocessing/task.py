"""A task of a run: a chunk of rows, mapped and written by one worker."""

from __future__ import annotations

import os
import shutil
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import cloudpickle
import numpy as np

from datasets_cli.errors import RldsError, SourceError, WrongRows
from datasets_cli.parallel.cluster import WorkerCheck
from datasets_cli.preprocessing.chunk import RowChunk
from datasets_cli.preprocessing.frames import check_chained, write_part
from datasets_cli.preprocessing.function_call import CallOptions, checked_result
from datasets_cli.preprocessing.result import (
    FunctionResult,
    ResultColumns,
    other_columns,
    write_mark,
)
from datasets_cli.schema.columns import Key, row_data
from datasets_cli.schema.texts import text_files
from datasets_cli.sources.disk import disk_errors, flush
from datasets_cli.store.dataset import Dataset, open_dataset
from datasets_cli.store.selection import Selection
from datasets_cli.store.texts import TextWriter


@dataclass(frozen=True)
class PreprocessTask:
    """A chunk to map, for any worker that sees the folders."""

    data: Path
    packed: Path
    mark: Path
    part: Path
    start: int
    stop: int
    function: bytes
    options: CallOptions
    columns: ResultColumns
    selection: Selection | None


def open_source(folder: Path, content: str) -> Dataset:
    """Return the dataset of a run, with its text."""
    dataset = open_dataset(folder, text=True)
    if dataset.manifest.content != content:
        raise RldsError(
            f"{folder} has other data than when the run began.",
            path=folder,
            expected=content,
            found=dataset.manifest.content,
            advice="Run the same call again: it begins from the new data.",
        )
    return dataset


def write_in_worker(check: WorkerCheck, folder: Path, content: str, task: PreprocessTask) -> None:
    """Write one task's bytes and its mark; runs in a worker."""
    check.check_here()
    dataset = open_source(folder, content)
    if task.selection is None:
        write_rows(task, dataset)
    else:
        write_rows(task, dataset.select(task.selection), task.start)


def write_rows(task: PreprocessTask, dataset: Dataset, first: int = 0) -> None:
    """Write one task's bytes and its mark; ``first`` is the number of the dataset's first row."""
    chunk, columns = RowChunk(dataset, task.start, task.stop, first), task.columns
    # By value in this process, too: the state that a function keeps from call to call must not
    # depend on where it runs.
    result = checked_result(cloudpickle.loads(task.function), chunk, task.options)
    with disk_errors(task.data):
        if not result.is_empty:
            is_end = check_columns(result, columns, chunk)
            _write(task, result.rows)
            if columns.frames:
                write_part(task.part, task.packed, columns.frames, result.rows, is_end)
        write_mark(task.mark, result.kept)


def check_columns(result: FunctionResult, columns: ResultColumns, chunk: RowChunk) -> np.ndarray:
    """Check that a result has the columns of the first rows, and chained frames.

    Return whether each row is the last of its piece, bool ``[k]``.
    """
    if (found := result.columns) != columns.by_key:
        raise other_columns(found, columns.by_key, chunk)
    is_end = chunk.ends_of(result.kept)
    check_chained(columns.frames, result.rows, is_end, chunk.numbers_of(result.kept))
    return is_end


def _write(task: PreprocessTask, rows: dict[Key, np.ndarray]) -> None:
    shutil.rmtree(task.part, ignore_errors=True)  # of a killed worker
    if texts := task.columns.texts:
        _write_text(task, {column.key: rows[column.key] for column in texts})
    for column in task.columns.leaves:
        if column.row_bytes:
            with (task.data / column.filename).open("r+b") as file:
                file.seek(task.start * column.row_bytes)
                file.write(row_data(rows[column.key], column.dtype))
                file.flush()
                os.fsync(file.fileno())


def _write_text(task: PreprocessTask, rows: dict[Key, np.ndarray]) -> None:
    with closing(TextWriter(task.part)) as writer:
        try:
            writer.write(rows)
        except SourceError as error:
            error.prepend("The function returned invalid rows: ")
            raise error.as_kind(WrongRows) from error
    for name in text_files(task.columns.texts):
        flush(task.part / name)
