"""A task of a run: some consecutive rows, mapped and written by one worker."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import torch
from tensordict import TensorDict, is_leaf_nontensor, is_non_tensor

from datasets_cli.errors import RldsError, SourceError, UsageError
from datasets_cli.preprocessing.chunks import trajectories_named
from datasets_cli.preprocessing.failures import failure_of
from datasets_cli.preprocessing.pipelines.mapping import PipelineFunction
from datasets_cli.preprocessing.pipelines.pipeline import Pipeline
from datasets_cli.replay.storages.dataset import DatasetStorage
from datasets_cli.sources.disk import disk_errors, flush
from datasets_cli.store.dataset import Dataset, open_dataset
from datasets_cli.store.rows.selection import Selection
from datasets_cli.store.schema.arrays import row_data
from datasets_cli.store.schema.bits import to_array
from datasets_cli.store.schema.columns import Column, Key, show_key
from datasets_cli.store.schema.texts import AnyColumn, TextColumn, any_column, is_text, text_files
from datasets_cli.store.text.writer import TextWriter

Function = Callable[[TensorDict], TensorDict]
"""Takes a TensorDict ``[n]`` of consecutive rows, a copy, and returns one of ``[n]`` rows."""

Mapped = Function | Pipeline
"""What ``preprocess`` maps over rows."""


@dataclass(frozen=True)
class PreprocessTask:
    """Consecutive rows, and everything a worker on any machine that sees the folders needs.

    Args:
        source: folder of the dataset to read.
        data: folder of the preallocated files.
        mark: the file that says that the task is done.
        start: first row.
        stop: one past the last.
        seed: of the whole run.
        function: pickled by cloudpickle.
        columns: what the function gave for the first rows, and must give for all.
        texts: the same of text.
        part: folder for the text of these rows; the commit joins those of all tasks.
        selection: of a view, the part that these rows are; None where all rows are read.
    """

    source: Path
    data: Path
    mark: Path
    start: int
    stop: int
    seed: int
    function: bytes
    columns: tuple[Column, ...]
    texts: tuple[TextColumn, ...]
    part: Path
    selection: Selection | None


def write_rows(task: PreprocessTask) -> None:
    """Write one task's bytes and its mark; runs in a worker.

    Raises:
        RldsError: the function raised.
        UsageError: it returned other columns than for the first rows.
    """
    dataset, first = open_dataset(task.source, text=True), 0
    if task.selection is not None:
        dataset, first = dataset.select(task.selection), task.start
    function = cloudpickle.loads(task.function)
    rows = apply(dataset, function, task.seed, task.start, task.stop, first)
    found = {key: any_column(key, values) for key, values in rows.items()}
    expected: dict[Key, AnyColumn] = {column.key: column for column in task.columns}
    expected |= {column.key: column for column in task.texts}
    if found != expected:
        wrong = min(
            key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key)
        )
        raise UsageError(
            f"The function must return the same columns everywhere: for rows {task.start} to "
            f"{task.stop - 1}, {show_key(wrong)} is {found.get(wrong)}, but for the first rows it "
            f"was {expected.get(wrong)}."
        )
    with disk_errors(task.data):
        if task.texts:
            _write_text(task, {column.key: rows[column.key] for column in task.texts})
        for column in task.columns:
            if column.row_bytes:
                with (task.data / column.filename).open("r+b") as file:
                    file.seek(task.start * column.row_bytes)
                    file.write(row_data(rows[column.key], column.dtype))
                    file.flush()
                    os.fsync(file.fileno())
        task.mark.touch()


def _write_text(task: PreprocessTask, rows: dict[Key, np.ndarray]) -> None:
    """Write the text of one task's rows into a folder of its own."""
    shutil.rmtree(task.part, ignore_errors=True)  # what a killed worker left
    writer = TextWriter(task.part)
    try:
        writer.write(rows)
    except SourceError as error:
        raise UsageError(f"The function returned what cannot be stored: {error}") from error
    finally:
        writer.close()
    for name in text_files(task.texts):
        flush(task.part / name)


def apply(
    dataset: Dataset, function: Function, seed: int, start: int, stop: int, first: int = 0
) -> dict[Key, np.ndarray]:
    """Return the function's columns ``[stop - start, ...]`` of consecutive rows.

    Text is an object array of str.

    Args:
        dataset: gives the rows; opened with its text.
        function: maps them.
        seed: of the run; with ``start`` it seeds torch.
        start: first row.
        stop: one past the last.
        first: the row of the run that is the dataset's row 0.

    Raises:
        RldsError: the function raised; its file, line and trajectories are named.
        UsageError: it did not return one row for each row, or is a pipeline that cannot map them.
    """
    trajectories = trajectories_named(dataset, start - first, stop - first)
    rows_named = f"rows {start} to {stop - 1} of {dataset.manifest.id} ({trajectories})"
    batch = DatasetStorage(dataset).run(start - first, stop - first)
    # One thread and a seed of its own: the bytes must not depend on where a task runs.
    with torch.random.fork_rng(devices=[]), _one_thread():
        torch.manual_seed(int(np.random.SeedSequence([seed, start]).generate_state(1)[0]))
        try:
            result = function(batch)
        except Exception as error:
            if isinstance(error, UsageError) and isinstance(function, PipelineFunction):
                raise UsageError(f"{error} It was found in {rows_named}.") from error
            raise RldsError(f"The function failed on {rows_named}: {failure_of(error)}") from error
    if not isinstance(result, TensorDict) or result.batch_size[:1] != (stop - start,):
        found = f"a TensorDict {list(result.batch_size)}" if isinstance(result, TensorDict) else ""
        raise UsageError(
            f"The function must return a TensorDict with one row for each of {rows_named}, but "
            f"returned {found or type(result).__name__}."
        )
    keys = result.keys(include_nested=True, leaves_only=True, is_leaf=is_leaf_nontensor)
    names = [(key,) if isinstance(key, str) else key for key in keys]
    rows = {name: _array(name, result.get(name)) for name in names}
    if all(map(is_text, rows.values())):
        raise UsageError(f"The function returned no columns of numbers for {rows_named}.")
    return rows


def _array(key: Key, entry: Any) -> np.ndarray:
    """Return an entry of the result as an array ``[n, ...]``; text as an object array of str.

    Raises:
        UsageError: it is neither numbers nor text.
    """
    if not is_non_tensor(entry):
        try:
            return np.ascontiguousarray(to_array(entry))
        except (TypeError, AttributeError, RuntimeError) as error:  # sparse, or another's class
            raise UsageError(
                f"The function returned what cannot be stored: {show_key(key)} is a "
                f"{type(entry).__name__} that cannot become an array ({error}). Expected a dense "
                "tensor of numbers or bool, or text."
            ) from error
    shape, flat = entry.batch_size, entry.tolist()
    for _ in shape[1:]:  # a list less deep each time
        flat = [value for values in flat for value in values]
    wrong = [type(value).__name__ for value in flat if not isinstance(value, str)]
    if wrong or len(flat) != shape.numel():
        found = wrong[0] if wrong else "rows of different shapes"
        raise UsageError(
            f"The function returned what cannot be stored: {show_key(key)} is no tensor; expected "
            f"a str for each row, or arrays of one shape of them, found {found}. An object of "
            "another kind may become numbers in tensors, or text, such as json.dumps of it."
        )
    texts = np.empty(len(flat), object)
    texts[:] = [*map(str, flat)]
    return texts.reshape(shape)


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
