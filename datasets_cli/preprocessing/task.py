"""A task of a run: some consecutive rows, mapped and written by one worker."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import cloudpickle
import numpy as np
import torch
from tensordict import TensorDict

from datasets_cli.errors import RldsError, SourceError, UsageError
from datasets_cli.preprocessing.chunks import trajectories_named
from datasets_cli.preprocessing.failures import failure_of
from datasets_cli.preprocessing.pipelines.mapping import PipelineFunction
from datasets_cli.preprocessing.pipelines.pipeline import Pipeline
from datasets_cli.preprocessing.returned.columns import (
    Returned,
    arrays_of,
    first_difference,
    kind_of,
)
from datasets_cli.preprocessing.returned.marks import write_mark
from datasets_cli.preprocessing.returned.row_numbers import ROW, kept_rows, number_rows
from datasets_cli.preprocessing.worker_needs import WorkerNeeds
from datasets_cli.replay.storages.dataset import DatasetStorage
from datasets_cli.sources.disk import disk_errors, flush
from datasets_cli.store.dataset import Dataset
from datasets_cli.store.rows.selection import Selection
from datasets_cli.store.schema.arrays import row_data
from datasets_cli.store.schema.columns import Column, Key, show_key
from datasets_cli.store.schema.texts import AnyColumn, TextColumn, text_files
from datasets_cli.store.text.writer import TextWriter

_one_at_a_time = threading.RLock()  # a function may map another dataset

Function = Callable[[TensorDict], TensorDict]
"""Takes a TensorDict ``[n]`` of consecutive rows, a copy, and returns one of as many rows or fewer.
"""

Mapped = Function | Pipeline
"""What ``preprocess`` maps over rows."""


@dataclass(frozen=True)
class PreprocessTask:
    """Consecutive rows, and everything a worker on any machine that sees the folders needs."""

    needs: WorkerNeeds
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
    is_numbered: bool = False


def write_rows(task: PreprocessTask) -> None:
    """Write one task's bytes and its mark; runs in a worker."""
    dataset, first = task.needs.open(), 0
    if task.selection is not None:
        dataset, first = dataset.select(task.selection), task.start
    function = cloudpickle.loads(task.function)
    found = apply(
        dataset, function, task.seed, task.start, task.stop, first, is_numbered=task.is_numbered
    )
    with disk_errors(task.data):
        if not found.is_empty:
            _refuse_other_columns(
                task, found.columns, _named(dataset, task.start, task.stop, first)
            )
            _write(task, found.rows)
        write_mark(task.mark, found.kept)


def _refuse_other_columns(task: PreprocessTask, found: dict[Key, AnyColumn], named: str) -> None:
    expected: dict[Key, AnyColumn] = {column.key: column for column in task.columns}
    expected |= {column.key: column for column in task.texts}
    if found != expected:
        wrong = first_difference(found, expected)
        raise UsageError(
            f"The function must return the same columns everywhere: for {named}, "
            f"{show_key(wrong)} is {kind_of(found.get(wrong))}, but for the first rows it was "
            f"{kind_of(expected.get(wrong))}."
        )


def _write(task: PreprocessTask, rows: dict[Key, np.ndarray]) -> None:
    """Write rows from the place of the task's first row on."""
    if task.texts:
        _write_text(task, {column.key: rows[column.key] for column in task.texts})
    for column in task.columns:
        if column.row_bytes:
            with (task.data / column.filename).open("r+b") as file:
                file.seek(task.start * column.row_bytes)
                file.write(row_data(rows[column.key], column.dtype))
                file.flush()
                os.fsync(file.fileno())


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
    dataset: Dataset,
    function: Function,
    seed: int,
    start: int,
    stop: int,
    first: int = 0,
    *,
    is_numbered: bool = False,
) -> Returned:
    """Return what a function returns for consecutive rows."""
    # A function that drops rows is called again, with the numbers of the rows.
    named = _named(dataset, start, stop, first)

    def result(is_numbered: bool) -> TensorDict:
        batch = DatasetStorage(dataset).run(start - first, stop - first)
        if is_numbered:
            number_rows(batch, start, named)
        return _call(function, batch, [seed, start], named)

    if is_numbered:
        return _numbered(result(True), start, stop, named)
    plain = result(False)
    found = Returned(arrays_of(plain, named), None)
    if len(plain) == stop - start:
        return found
    again = _numbered(result(True), start, stop, named)
    if again.columns != found.columns:
        wrong = first_difference(again.columns, found.columns)
        raise UsageError(
            f"The function must return the same columns where its batch has {ROW} too, the numbers "
            f"of rows, as it drops some of {named}: {show_key(wrong)} is "
            f"{kind_of(again.columns.get(wrong))} with it, and "
            f"{kind_of(found.columns.get(wrong))} without. A "
            f'function that goes over all entries takes it out, rows = batch.pop("{ROW}"), and '
            f'puts rows[keep] into its result as "{ROW}".'
        )
    return again


def _named(dataset: Dataset, start: int, stop: int, first: int) -> str:
    """Return rows as messages name them."""
    trajectories = trajectories_named(dataset, start - first, stop - first)
    return f"rows {start} to {stop - 1} of {dataset.manifest.id} ({trajectories})"


def _call(function: Function, batch: TensorDict, seeds: list[int], named: str) -> TensorDict:
    """Return what the function returns: at most as many rows as it gets."""
    num_rows = len(batch)  # a function may change its batch
    # One thread and a seed of its own: the bytes must not depend on where a task runs. Seed and
    # threads are of the process, which may run several tasks in threads.
    with _one_at_a_time, torch.random.fork_rng(devices=[]), _one_thread():
        torch.manual_seed(int(np.random.SeedSequence(seeds).generate_state(1)[0]))
        try:
            result = function(batch)
        except (Exception, SystemExit) as error:  # sys.exit() of a function ends no worker
            if isinstance(error, UsageError) and isinstance(function, PipelineFunction):
                raise UsageError(f"{error} It was found in {named}.") from error
            raise RldsError(f"The function failed on {named}: {failure_of(error)}") from error
    is_rows = isinstance(result, TensorDict) and result.batch_dims > 0
    if not is_rows or len(result) > num_rows:
        found = f"a TensorDict {list(result.batch_size)}" if isinstance(result, TensorDict) else ""
        raise UsageError(
            f"The function must return a TensorDict with one row for each of {named}, or for some "
            f"of them, but returned {found or type(result).__name__}."
        )
    return result


def _numbered(result: TensorDict, start: int, stop: int, named: str) -> Returned:
    """Return the columns of a result that has the numbers of its rows, without these."""
    kept = kept_rows(result, start, stop, named)
    return Returned(arrays_of(result.exclude(ROW), named), kept)


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
