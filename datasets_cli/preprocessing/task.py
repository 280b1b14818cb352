"""A task of a run: some consecutive rows, mapped and written by one worker."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import cloudpickle
import numpy as np
import torch
from tensordict import TensorDict

from datasets_cli.errors import RldsError, UsageError
from datasets_cli.replay.storages.dataset import DatasetStorage
from datasets_cli.sources.disk import disk_errors
from datasets_cli.store.dataset import Dataset, open_dataset
from datasets_cli.store.schema.arrays import row_data
from datasets_cli.store.schema.bits import to_array
from datasets_cli.store.schema.columns import Column, Key, column_of, show_key

Function = Callable[[TensorDict], TensorDict]
"""Takes a TensorDict ``[n]`` of consecutive rows, a copy, and returns one of ``[n]`` rows."""


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
    """

    source: Path
    data: Path
    mark: Path
    start: int
    stop: int
    seed: int
    function: bytes
    columns: tuple[Column, ...]


def write_rows(task: PreprocessTask) -> None:
    """Write one task's bytes and its mark; runs in a worker.

    Raises:
        RldsError: the function raised.
        UsageError: it returned other columns than for the first rows.
    """
    dataset = open_dataset(task.source)
    rows = apply(dataset, cloudpickle.loads(task.function), task.seed, task.start, task.stop)
    found = {key: column_of(key, values) for key, values in rows.items()}
    expected = {column.key: column for column in task.columns}
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
        for key, column in expected.items():
            if column.row_bytes:
                with (task.data / column.filename).open("r+b") as file:
                    file.seek(task.start * column.row_bytes)
                    file.write(row_data(rows[key], column.dtype))
                    file.flush()
                    os.fsync(file.fileno())
        task.mark.touch()


def apply(
    dataset: Dataset, function: Function, seed: int, start: int, stop: int
) -> dict[Key, np.ndarray]:
    """Return the function's columns ``[stop - start, ...]`` of consecutive rows.

    Args:
        dataset: gives the rows.
        function: maps them.
        seed: of the run; with ``start`` it seeds torch.
        start: first row.
        stop: one past the last.

    Raises:
        RldsError: the function raised.
        UsageError: it did not return one row for each row.
    """
    rows_named = f"rows {start} to {stop - 1} of {dataset.manifest.id}"
    batch = DatasetStorage(dataset).run(start, stop)
    # One thread and a seed of its own: the bytes must not depend on where a task runs.
    with torch.random.fork_rng(devices=[]), _one_thread():
        torch.manual_seed(int(np.random.SeedSequence([seed, start]).generate_state(1)[0]))
        try:
            result = function(batch)
        except Exception as error:
            raise RldsError(
                f"The function failed on {rows_named}: {type(error).__name__}: {error}"
            ) from error
    if not isinstance(result, TensorDict) or result.batch_size[:1] != (stop - start,):
        found = f"a TensorDict {list(result.batch_size)}" if isinstance(result, TensorDict) else ""
        raise UsageError(
            f"The function must return a TensorDict with one row for each of {rows_named}, but "
            f"returned {found or type(result).__name__}."
        )
    keys = result.keys(include_nested=True, leaves_only=True)
    names = [(key,) if isinstance(key, str) else key for key in keys]
    try:
        rows = {n: np.ascontiguousarray(to_array(result.get(n))) for n in names}
    except (TypeError, AttributeError) as error:
        raise UsageError(f"The function returned what cannot be stored: {error}.") from error
    if not rows:
        raise UsageError(f"The function returned no columns for {rows_named}.")
    return rows


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
