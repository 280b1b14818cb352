"""The call of a function with a chunk of rows, and the check of its result."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, is_leaf_nontensor

from datasets_cli.errors import RldsError, UsageError, WrongRows
from datasets_cli.preprocessing.chunk import RowChunk
from datasets_cli.preprocessing.function import RowFunction, failure_of
from datasets_cli.preprocessing.mapping import PipelineFunction, RowByRow
from datasets_cli.preprocessing.result import (
    ROW,
    FunctionResult,
    arrays_of,
    first_difference,
    kept_rows,
    number_rows,
    other_columns,
)
from datasets_cli.replay.storages.collate import make_batch
from datasets_cli.schema.columns import DONE, TERMINATED, TRUNCATED, Key, show_key
from datasets_cli.schema.steps import flag_problem
from datasets_cli.schema.tree import TreePlan

_one_at_a_time = threading.RLock()  # a function may map another dataset

Forms = dict[Key, tuple[np.dtype[Any], tuple[int, ...]]]


@dataclass(frozen=True)
class CallOptions:
    """The seed of a function and the rows that it gets together and returns."""

    # by_trajectory: the function gets each trajectory of a chunk separately.
    # is_numbered: the batch has the entry `_row`, for a function that drops rows.

    seed: int
    by_trajectory: bool = False
    is_numbered: bool = False


def checked_result(function: RowFunction, chunk: RowChunk, options: CallOptions) -> FunctionResult:
    """Call a function with a chunk and compare its result with the rows of the chunk."""
    batch = chunk.read()
    done = batch.get(DONE, None)
    ends = done.numpy().copy() if isinstance(done, torch.Tensor) and _is_flag(done) else None
    result = result_of(function, chunk, options, batch)
    if ends is not None:
        _check_ends(ends, result, chunk)
    return result


def result_of(
    function: RowFunction, chunk: RowChunk, options: CallOptions, batch: TensorDict | None = None
) -> FunctionResult:
    """Call a function with a chunk and return its result."""
    # batch: the rows, if they were read; the function may change it.
    result = _call(function, chunk, options, chunk.read() if batch is None else batch)
    if result.num_rows < len(chunk) and not options.is_numbered:  # again, with row numbers
        numbered = _call(function, chunk, replace(options, is_numbered=True), chunk.read())
        _refuse_other_columns(numbered, result, chunk)
        result = numbered
    _check_flags(result, chunk)
    return result


def _call(
    function: RowFunction, chunk: RowChunk, options: CallOptions, batch: TensorDict
) -> FunctionResult:
    # One thread and an own seed: the bytes must not depend on where a task runs. The seed and the
    # number of threads belong to the process, which may run several tasks in threads.
    parts = chunk.by_trajectory() if options.by_trajectory else [chunk]
    lengths, results = [*map(len, parts)], list[FunctionResult]()
    first: tuple[Forms, FunctionResult] | None = None
    if options.is_numbered:
        number_rows(batch, chunk)
    with _one_at_a_time, torch.random.fork_rng(devices=[]), _one_thread():
        for part, its_rows in zip(parts, _split(batch, lengths), strict=True):
            _set_seed([options.seed, part.start], is_first=part is parts[0])
            returned = _returned(function, its_rows, part)
            kept = kept_rows(returned, part) if options.is_numbered else None
            rows = arrays_of(returned.exclude(ROW) if options.is_numbered else returned, part)
            if len(parts) > 1:  # the next call may change this result
                rows = {key: values.copy() for key, values in rows.items()}
            results.append(FunctionResult(rows, kept))
            if len(returned):
                forms = {key: (values.dtype, values.shape[1:]) for key, values in rows.items()}
                first = first or (forms, results[-1])
                if forms != first[0]:
                    raise other_columns(results[-1].columns, first[1].columns, part)
    return FunctionResult.join(results, lengths)


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


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _returned(function: RowFunction, batch: TensorDict, chunk: RowChunk) -> TensorDict:
    """Call a function; return its TensorDict, which has at most the rows of the batch."""
    num_rows = len(batch)  # a function may change its batch
    try:
        if isinstance(function, PipelineFunction):
            function.add_final(batch, chunk.start)
        returned = function(batch)
    except (Exception, SystemExit) as error:  # sys.exit() in a function must not end a worker
        if isinstance(error, UsageError) and isinstance(function, PipelineFunction | RowByRow):
            error.append(f" It was found in {chunk}.")
            raise
        failure = failure_of(error)
        raise RldsError(
            f"The function failed on {chunk}: {failure}.",
            id=chunk.dataset.id,
            row=chunk.start,
            found=failure,
        ) from error
    is_rows = isinstance(returned, TensorDict) and returned.batch_dims > 0
    if not is_rows or len(returned) > num_rows:
        found = type(returned).__name__
        if isinstance(returned, TensorDict):
            found = f"a TensorDict {list(returned.batch_size)}"
        raise WrongRows(
            f"The function must return a TensorDict with one row for each of {chunk}, or for some "
            f"of them, but returned {found}.",
            id=chunk.dataset.id,
            row=chunk.start,
            expected=f"a TensorDict [{num_rows}]",
            found=found,
        )
    return returned


def _refuse_other_columns(
    numbered: FunctionResult, result: FunctionResult, chunk: RowChunk
) -> None:
    if numbered.columns != result.columns:
        wrong, found, expected = first_difference(numbered.columns, result.columns)
        raise WrongRows(
            f"The function drops some of {chunk}, so its batch also has the row numbers as {ROW}; "
            f"it must return the same columns with and without them. {wrong} is {found} with "
            f"them, and {expected} without.",
            key=wrong,
            expected=expected,
            found=found,
            advice=f"In a function that loops over all entries, remove them first, rows = "
            f'batch.pop("{ROW}"), and return rows[keep] as "{ROW}".',
        )


def _is_flag(values: np.ndarray | torch.Tensor) -> bool:
    return values.dtype in (np.bool_, torch.bool) and values.shape[1:] == (1,)


def _check_ends(ends: np.ndarray, result: FunctionResult, chunk: RowChunk) -> None:
    """Reject a result in which the last row of a trajectory is not done any more."""
    # ends: `next.done` of the input, bool `[n, 1]`.
    done = result.rows.get(DONE)
    if done is None or not _is_flag(done):
        return
    places = np.arange(len(chunk)) if result.kept is None else np.flatnonzero(result.kept)
    gone = places[ends[places, 0] & ~done[:, 0]]
    if len(gone):
        raise WrongRows(
            f"The function must keep the ends of trajectories: of {chunk} it set next.done to "
            f"false in {len(gone)} that ended a trajectory, first in row {gone[0]} of these.",
            key=DONE,
            row=int(gone[0]),
            advice="Return rows in the order of the input. Do not change next.done, because "
            "next.terminated marks terminal ends; or drop the column.",
        )


def _check_flags(result: FunctionResult, chunk: RowChunk) -> None:
    for key in (TERMINATED, TRUNCATED, DONE):
        if key not in result.rows:
            continue
        if problem := flag_problem(result.rows[key], chunk.start):
            raise WrongRows(
                f"The function must return 0 or 1 as {show_key(key)} for each of {chunk}, found "
                f"{problem}.",
                key=key,
                expected="0 or 1",
                found=problem,
                advice="Return a flag, or choose another name for other numbers.",
            )
