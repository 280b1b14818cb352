"""A task of a run: some consecutive rows, mapped and written by one worker."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import torch
from tensordict import TensorDict, is_leaf_nontensor

from datasets_cli.errors import RldsError, SourceError, UsageError, WrongRows
from datasets_cli.parallel.cluster import WorkerCheck
from datasets_cli.preprocessing.frames import check_chained, ends_of_kept, write_part
from datasets_cli.preprocessing.function import RowFunction, failure_of
from datasets_cli.preprocessing.mapping import PipelineFunction, RowByRow
from datasets_cli.preprocessing.pipeline import Pipeline
from datasets_cli.preprocessing.returned import (
    ROW,
    ResultColumns,
    Returned,
    arrays_of,
    first_difference,
    kept_rows,
    number_rows,
    write_mark,
)
from datasets_cli.preprocessing.row_checks import (
    Columns,
    InputRows,
    added_to,
    odd_numbers,
    write_counts,
)
from datasets_cli.replay.storages.collate import make_batch
from datasets_cli.replay.storages.dataset import DatasetStorage
from datasets_cli.schema.bits import to_array
from datasets_cli.schema.columns import DONE, TERMINATED, TRUNCATED, Key, row_data, show_key
from datasets_cli.schema.steps import flag_problem
from datasets_cli.schema.texts import AnyColumn, text_files
from datasets_cli.schema.trajectories import trajectory_of
from datasets_cli.schema.tree import TreePlan
from datasets_cli.sources.disk import disk_errors, flush
from datasets_cli.store.dataset import Dataset, open_dataset
from datasets_cli.store.manifest import read_manifest
from datasets_cli.store.selection import Selection
from datasets_cli.store.texts import TextWriter


@dataclass(frozen=True, kw_only=True)
class SourceCheck(WorkerCheck):
    """The versions, files and dataset that every worker of a run must have."""

    source: Path
    content: str

    def differences(self) -> list[str]:
        """Return how this process differs, one text for each difference."""
        differences = super().differences()
        try:
            content = read_manifest(self.source).content
        except (OSError, RldsError) as error:
            return [*differences, f"it cannot read the dataset {self.source} ({error})"]
        is_same = content == self.content
        return differences + ([] if is_same else [f"{self.source} has other data there"])

    def open(self) -> Dataset:
        """Return the dataset, with its text, after the check of this process."""
        self.check_here()
        dataset = open_dataset(self.source, text=True)
        if dataset.manifest.content != self.content:
            raise RldsError(
                f"{self.source} has other data than when the run began.",
                path=self.source,
                expected=self.content,
                found=dataset.manifest.content,
                advice="Run the same call again: it begins from the new data.",
            )
        return dataset


_one_at_a_time = threading.RLock()  # a function may map another dataset

Forms = dict[Key, tuple[np.dtype[Any], tuple[int, ...]]]
Mapped = RowFunction | Pipeline
"""A function or a pipeline that ``preprocess`` maps over rows."""


@dataclass(frozen=True)
class PreprocessTask:
    """Consecutive rows to map, for any worker that sees the folders."""

    data: Path
    packed: Path
    mark: Path
    part: Path
    start: int
    stop: int
    seed: int
    function: bytes
    columns: ResultColumns
    selection: Selection | None
    any_order: bool
    by_trajectory: bool


def write_elsewhere(check: SourceCheck, task: PreprocessTask) -> None:
    """Write one task's bytes and its mark; runs in a worker."""
    if task.selection is None:
        write_rows(task, check.open())
    else:
        write_rows(task, check.open().select(task.selection), task.start)


def write_rows(task: PreprocessTask, dataset: Dataset, first: int = 0) -> None:
    """Write one task's bytes and its mark; ``first`` is the number of the dataset's first row."""
    # By value in this process, too: the state that a function keeps from call to call must not
    # depend on where it runs.
    function = cloudpickle.loads(task.function)
    start, stop, columns = task.start, task.stop, task.columns
    how = {"any_order": task.any_order, "by_trajectory": task.by_trajectory}
    rows = task.seed, start, stop, first
    returned = apply(dataset, function, *rows, is_numbered=columns.is_numbered, **how)
    with disk_errors(task.data):
        if not returned.is_empty:
            check_columns(returned, columns, dataset, start, stop, first)
            _write(task, returned.rows)
            if columns.frames:
                offsets = dataset.offsets.numpy()
                is_end = ends_of_kept(offsets, start - first, stop - first, returned.kept)
                numbers = returned.numbers(start, stop)
                check_chained(columns.frames, returned.rows, is_end, numbers)
                write_part(task.part, task.packed, columns.frames, returned.rows, is_end)
        write_counts(task.mark, returned.odd or {})
        write_mark(task.mark, returned.kept)


def check_columns(
    returned: Returned,
    columns: ResultColumns,
    dataset: Dataset,
    start: int,
    stop: int,
    first: int,
) -> None:
    """Check that a result has the columns of the first rows."""
    if (given := returned.columns) != columns.by_key:
        raise _other_columns(given, columns.by_key, rows_named(dataset, start, stop, first))


def _other_columns(
    given: dict[Key, AnyColumn], expected: dict[Key, AnyColumn], named: object
) -> WrongRows:
    wrong, here, before = first_difference(given, expected)
    return WrongRows(
        f"The function must return the same columns everywhere: for {named}, {wrong} "
        f"is {here}, but for the first rows it was {before}.",
        key=wrong,
        expected=before,
        found=here,
    )


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


def apply(
    dataset: Dataset,
    function: RowFunction,
    seed: int,
    start: int,
    stop: int,
    first: int = 0,
    *,
    any_order: bool,
    by_trajectory: bool = False,
    is_numbered: bool = False,
) -> Returned:
    """Call a function with consecutive rows and compare its result with them."""
    named = rows_named(dataset, start, stop, first)
    batch = _read(dataset, start - first, stop - first)
    given = InputRows(_numbers_in(batch, dataset))
    how = {"by_trajectory": by_trajectory, "is_numbered": is_numbered}
    returned = result_of(dataset, function, seed, start, stop, first, batch=batch, **how)

    def read() -> Columns:
        return _numbers_in(_read(dataset, start - first, stop - first), dataset)

    return _compared(returned, given, read, named, any_order)


def result_of(
    dataset: Dataset,
    function: RowFunction,
    seed: int,
    start: int,
    stop: int,
    first: int = 0,
    *,
    by_trajectory: bool,
    is_numbered: bool = False,
    batch: TensorDict | None = None,
) -> Returned:
    """Call a function with consecutive rows, together or by trajectory; return its result."""
    # batch: the rows, if they were read; the function may change it.
    named = rows_named(dataset, start, stop, first)
    inner = dataset.offsets.numpy() + first if by_trajectory else np.zeros(0, np.int64)
    bounds = [start, *inner[(inner > start) & (inner < stop)].tolist(), stop]
    name = partial(_RowsName, rows_named, dataset, first=first)
    if batch is None:
        batch = _read(dataset, start - first, stop - first)
    if is_numbered:
        number_rows(batch, start, named)
    returned = _call(function, batch, seed, bounds, name, is_numbered)
    if returned.num_rows < stop - start and not is_numbered:  # again, with the numbers of the rows
        batch = _read(dataset, start - first, stop - first)
        number_rows(batch, start, named)
        again = _call(function, batch, seed, bounds, name, is_numbered=True)
        _refuse_other_columns(again, returned, named)
        returned = again
    _check_flags(returned, start, named)
    return returned


def _read(dataset: Dataset, start: int, stop: int) -> TensorDict:
    return DatasetStorage(dataset).run(start, stop)


def _refuse_other_columns(again: Returned, returned: Returned, named: str) -> None:
    if again.columns != returned.columns:
        wrong, numbered, without = first_difference(again.columns, returned.columns)
        raise WrongRows(
            f"The function must return the same columns where its batch has {ROW} too, the numbers "
            f"of rows, as it drops some of {named}: {wrong} is {numbered} with it, and {without} "
            "without.",
            key=wrong,
            expected=without,
            found=numbered,
            advice="A function that goes over all entries takes it out, rows = "
            f'batch.pop("{ROW}"), and puts rows[keep] into its result as "{ROW}".',
        )


def _check_flags(returned: Returned, start: int, named: str) -> None:
    for key in (TERMINATED, TRUNCATED, DONE):
        if key not in returned.rows:
            continue
        if problem := flag_problem(returned.rows[key], start):
            raise WrongRows(
                f"The function must return 0 or 1 as {show_key(key)} for each of {named}, found "
                f"{problem}.",
                key=key,
                expected="0 or 1",
                found=problem,
                advice="Return a flag, or choose another name for other numbers.",
            )


def _numbers_in(batch: TensorDict, dataset: Dataset) -> Columns:
    return {column.key: to_array(batch.get(column.key)) for column in dataset.manifest.columns}


def _compared(
    returned: Returned, given: InputRows, read: Callable[[], Columns], named: str, any_order: bool
) -> Returned:
    """Check a result against its input, and return it with the counts of new NaN and infinity."""
    # read: reads the input again, as it was before the call.
    if not any_order:
        given.check_ends(returned.rows, returned.kept, named)
        if returned.kept is None and given.may_be_moved(returned.rows):
            given.check_order(read(), returned.rows, named)
    if not (odd := odd_numbers(returned.rows)):
        return returned
    before = read()
    if returned.kept is not None:
        before = {key: values[returned.kept] for key, values in before.items()}
    return returned._replace(odd=added_to(odd_numbers(before), odd))


class _RowsName(partial[str]):
    """The name of some rows in messages, computed when shown: there are many trajectories."""

    def __str__(self) -> str:
        return self()


def _call(
    function: RowFunction,
    batch: TensorDict,
    seed: int,
    bounds: list[int],
    name: Callable[[int, int], object],
    is_numbered: bool,
) -> Returned:
    """Call the function with the rows between each two bounds; return the joined result."""
    # One thread and an own seed: the bytes must not depend on where a task runs. The seed and the
    # number of threads belong to the process, which may run several tasks in threads.
    lengths, returned = np.diff(bounds).tolist(), []
    first: tuple[Forms, Returned] | None = None
    with _one_at_a_time, torch.random.fork_rng(devices=[]), _one_thread():
        for part, (start, stop) in zip(_split(batch, lengths), pairwise(bounds), strict=True):
            named = name(start, stop)
            _set_seed([seed, start], is_first=start == bounds[0])
            result = _result(function, part, named)
            kept = kept_rows(result, start, stop, named) if is_numbered else None
            rows = arrays_of(result.exclude(ROW) if is_numbered else result, named)
            if len(lengths) > 1:  # the next call may change this result
                rows = {key: values.copy() for key, values in rows.items()}
            returned.append(Returned(rows, kept))
            if len(result):
                forms = {key: (values.dtype, values.shape[1:]) for key, values in rows.items()}
                first = first or (forms, returned[-1])
                if forms != first[0]:
                    raise _other_columns(returned[-1].columns, first[1].columns, named)
    return Returned.join(returned, lengths)


def _split(batch: TensorDict, lengths: list[int]) -> Iterator[TensorDict]:
    """Yield consecutive parts of a batch, as views of its memory."""
    if len(lengths) == 1:
        yield batch
        return
    entries = batch.items(include_nested=True, leaves_only=True, is_leaf=is_leaf_nontensor)
    named = {(key,) if isinstance(key, str) else key: entry for key, entry in entries}
    plan, parts = TreePlan(named), [entry.split(lengths) for entry in named.values()]
    for length, *leaves in zip(lengths, *parts, strict=True):
        nodes = plan.new()
        for (node, key), leaf in zip(plan.slots.values(), leaves, strict=True):
            nodes[node][key] = leaf
        yield make_batch(nodes[0], torch.Size((length,)))


def _set_seed(seeds: list[int], *, is_first: bool) -> None:
    number = int(np.random.SeedSequence(seeds).generate_state(1)[0])
    if is_first or torch.cuda.is_initialized():
        torch.manual_seed(number)
    else:  # a hundred times as fast: torch.manual_seed formats the stack for CUDA
        torch.default_generator.manual_seed(number)


def _result(function: RowFunction, batch: TensorDict, named: object) -> TensorDict:
    """Call the function; return its result, which has at most the rows of the batch."""
    num_rows = len(batch)  # a function may change its batch
    try:
        result = function(batch)
    except (Exception, SystemExit) as error:  # sys.exit() in a function must not end a worker
        if isinstance(error, UsageError) and isinstance(function, PipelineFunction | RowByRow):
            error.append(f" It was found in {named}.")
            raise
        raise RldsError(f"The function failed on {named}: {failure_of(error)}.") from error
    is_rows = isinstance(result, TensorDict) and result.batch_dims > 0
    if not is_rows or len(result) > num_rows:
        given = f"a TensorDict {list(result.batch_size)}" if isinstance(result, TensorDict) else ""
        raise WrongRows(
            f"The function must return a TensorDict with one row for each of {named}, or for some "
            f"of them, but returned {given or type(result).__name__}.",
            expected=f"a TensorDict [{num_rows}]",
            found=given or type(result).__name__,
        )
    return result


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def rows_named(dataset: Dataset, start: int, stop: int, first: int = 0) -> str:
    """Return the name of rows and their trajectories in messages."""
    # Rows count from the first row of the run, offsets from the first row of the dataset.
    bounds = [start - first, stop - 1 - first]
    places = trajectory_of(dataset.offsets.numpy(), np.array(bounds))
    selection = dataset.selection
    one, last = places if selection is None else selection.numbers[places]
    named = f"trajectory {one}" if one == last else f"trajectories {one} to {last}"
    return f"rows {start} to {stop - 1} of {dataset.id} ({named})"
