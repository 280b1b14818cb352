"""The result of a function: its columns, and which rows of its input it kept.

A function that drops rows identifies them by the entry ``_row``, the number of each row of its
input. An index keeps the entry, so ``batch[keep]`` is all that a function needs. Only functions
that drop rows get it: to others a batch has the columns of the dataset, as functions that go over
all entries expect. The mark of a task, the file that says that its rows are written, records which
rows it kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tensordict import TensorDict, is_leaf_nontensor, is_non_tensor

from datasets_cli.errors import DamagedDataset, WrongRows
from datasets_cli.preprocessing.chunk import RowChunk
from datasets_cli.schema.bits import to_array
from datasets_cli.schema.columns import Column, Key, show_key
from datasets_cli.schema.texts import AnyColumn, TextColumn, any_column, is_text
from datasets_cli.sources.disk import flush
from datasets_cli.sources.new_files import replacing
from datasets_cli.store.arrays import plain_numbers
from datasets_cli.store.layouts.records import FrameField, columns_of, frame_fields


class FunctionResult(NamedTuple):
    """The result of a function for consecutive rows."""

    # rows: columns `[k, ...]`; text is an object array of str.
    # kept: which rows of the input they are, bool `[n]`; None for all.

    rows: dict[Key, np.ndarray]
    kept: np.ndarray | None

    @property
    def columns(self) -> dict[Key, AnyColumn]:
        """The columns of the rows, sorted by key."""
        return {key: any_column(key, values) for key, values in sorted(self.rows.items())}

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return len(next(iter(self.rows.values())))

    @property
    def is_empty(self) -> bool:
        """Whether the function dropped every row."""
        return self.kept is not None and not self.kept.any()

    @classmethod
    def join(cls, parts: Sequence[FunctionResult], num_rows: Sequence[int]) -> FunctionResult:
        """Return the result for consecutive parts, whose inputs had ``num_rows`` rows each."""
        if len(parts) == 1:
            return parts[0]
        filled = [part.rows for part in parts if part.num_rows] or [parts[0].rows]
        rows = {key: np.concatenate([each[key] for each in filled]) for key in filled[0]}
        pairs = zip(parts, num_rows, strict=True)
        kept = [np.ones(n, np.bool_) if part.kept is None else part.kept for part, n in pairs]
        return cls(rows, None if (all_kept := np.concatenate(kept)).all() else all_kept)


def difference_of(
    one: FunctionResult, other: FunctionResult, num_rows: int
) -> tuple[int, str, str, str] | None:
    """Return the first row in which two results differ, the column, and both values.

    Numbers that differ by rounding are equal. None if no row differs.
    """
    kept = [np.ones(num_rows, np.bool_) if e.kept is None else e.kept for e in (one, other)]
    if (odd := np.flatnonzero(kept[0] != kept[1])).size:
        words = ["kept" if each[odd[0]] else "dropped" for each in kept]
        return int(odd[0]), "it", words[0], words[1]
    if one.columns != other.columns:
        return 0, *first_difference(one.columns, other.columns)
    for key, values in one.rows.items():
        if len(places := np.argwhere(_differ(values, other.rows[key]))):
            place = tuple(places[0])
            row = int(np.flatnonzero(kept[0])[place[0]])
            return row, show_key(key), f"{values[place]}", f"{other.rows[key][place]}"
    return None


ROUNDING, SMALLEST = 1e-2, 1e-5
"""The largest error by rounding, relative to the number and to the largest of its column."""


def _differ(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return which values differ by more than the rounding of sums in another order."""
    ours, theirs = (
        plain_numbers(each) if each.dtype.kind in "fcV" else None for each in (one, other)
    )
    if ours is None or theirs is None:
        return np.asarray(one != other)
    scale = np.where(np.isfinite(ours), np.abs(ours), 0).max(initial=0)
    with np.errstate(over="ignore"):  # numbers of both signs may be farther apart than float64 goes
        is_close = np.isclose(ours, theirs, ROUNDING, SMALLEST * scale, equal_nan=True)
    return np.asarray(~is_close)


@dataclass(frozen=True)
class ResultColumns:
    """The columns that every task must return."""

    # is_numbered: whether batches have the entry `_row`, for a function that drops rows.

    numbers: tuple[Column, ...]
    texts: tuple[TextColumn, ...]
    is_numbered: bool
    layout: str = "ted"

    @classmethod
    def of(cls, returned: FunctionResult, is_numbered: bool, layout: str) -> ResultColumns:
        """Return the columns of the result for the first rows."""
        columns = returned.columns.values()
        numbers = tuple(column for column in columns if isinstance(column, Column))
        texts = tuple(column for column in columns if isinstance(column, TextColumn))
        return cls(numbers, texts, is_numbered, layout)

    @cached_property
    def frames(self) -> tuple[FrameField, ...]:
        """The columns of frames that the compact layout compresses one by one."""
        return frame_fields(self.numbers) if self.layout == "compact" else ()

    @cached_property
    def leaves(self) -> tuple[Column, ...]:
        """The columns of numbers that have a file each during the run."""
        packed = {column.key for field in self.frames for column in columns_of(field)}
        return tuple(column for column in self.numbers if column.key not in packed)

    @cached_property
    def by_key(self) -> dict[Key, AnyColumn]:
        """All columns by key."""
        columns: tuple[AnyColumn, ...] = (*self.numbers, *self.texts)
        return {column.key: column for column in columns}


def first_difference(
    one: dict[Key, AnyColumn], other: dict[Key, AnyColumn]
) -> tuple[str, str, str]:
    """Return the first key in which two sets of columns differ, and its form in each."""
    wrong = min(key for key in one.keys() | other.keys() if one.get(key) != other.get(key))
    return show_key(wrong), _kind_of(one.get(wrong)), _kind_of(other.get(wrong))


def _kind_of(column: AnyColumn | None) -> str:
    """Return the form of a column for messages, such as ``float32 [39]``."""
    if column is None:
        return "missing"
    dtype = column.dtype if isinstance(column, Column) else "text"
    return f"{dtype} {list(column.shape)}"


def other_columns(
    found: dict[Key, AnyColumn], expected: dict[Key, AnyColumn], chunk: RowChunk
) -> WrongRows:
    """Return the error for a result whose columns differ from those of the first rows."""
    wrong, here, before = first_difference(found, expected)
    return WrongRows(
        f"The function must return the same columns everywhere: for {chunk}, {wrong} "
        f"is {here}, but for the first rows it was {before}.",
        key=wrong,
        expected=before,
        found=here,
    )


def arrays_of(result: TensorDict, where: object) -> dict[Key, np.ndarray]:
    """Return the entries of a result as arrays ``[k, ...]``; text becomes object arrays of str."""
    entries = result.items(include_nested=True, leaves_only=True, is_leaf=is_leaf_nontensor)
    keys = [((key,) if isinstance(key, str) else key, entry) for key, entry in entries]
    rows = {key: _array(key, entry) for key, entry in keys}
    if all(map(is_text, rows.values())):
        raise WrongRows(
            f"The function must return a column of numbers, found none for {where}.",
            expected="a column of numbers",
            found=[show_key(key) for key in rows],
        )
    return rows


def _array(key: Key, entry: Any) -> np.ndarray:
    """Return an entry of the result as an array ``[n, ...]``; text as an object array of str."""
    if not is_non_tensor(entry):
        try:
            return np.ascontiguousarray(to_array(entry))
        except (TypeError, AttributeError, RuntimeError) as error:  # sparse, or another's class
            raise WrongRows(
                f"The function returned what cannot be stored: {show_key(key)} is a "
                f"{type(entry).__name__} that cannot become an array ({error}).",
                key=key,
                expected="a dense tensor",
                found=type(entry).__name__,
                advice="Expected a dense tensor of numbers or bool, or text.",
            ) from error
    shape, flat = entry.batch_size, entry.tolist()
    for _ in shape[1:]:  # a list less deep each time
        flat = [value for values in flat for value in values]
    wrong = [type(value).__name__ for value in flat if not isinstance(value, str)]
    if wrong or len(flat) != shape.numel():
        given = wrong[0] if wrong else "rows of different shapes"
        raise WrongRows(
            f"The function returned what cannot be stored: {show_key(key)} is not a tensor; "
            f"expected a str for each row, or arrays of str of one shape, found {given}.",
            key=key,
            expected="str",
            found=given,
            advice="Convert other objects to tensors, or to text, for example by json.dumps.",
        )
    texts = np.empty(len(flat), object)
    texts[:] = [*map(str, flat)]
    return texts.reshape(shape)


ROW = "_row"
ROW_KEY: Key = (ROW,)


def number_rows(batch: TensorDict, chunk: RowChunk) -> None:
    """Add ``_row`` int64 ``[n]`` to the batch of a chunk."""
    if batch.get(ROW, None) is not None:
        raise WrongRows(
            f"The function must return one row for each of {chunk}: dropped rows are found by the "
            f"entry {ROW}, but this dataset has a column of that name.",
            key=ROW_KEY,
            advice="Rename the column first, with a function that drops nothing.",
        )
    batch[ROW] = torch.arange(chunk.start, chunk.stop)


def kept_rows(result: TensorDict, chunk: RowChunk) -> np.ndarray | None:
    """Return which rows of a chunk are in the result, bool ``[n]``; None for all."""
    # result: `[k]`, of a batch with `_row`; at most as many rows as the batch.
    numbers = result.get(ROW, None)
    problem = _problem(numbers, len(result), chunk)
    if problem:
        if len(result) == len(chunk):
            return None
        raise WrongRows(
            f"A function that drops rows must return {ROW}, the numbers of the others: it returned "
            f"{len(result)} of {chunk}, and as {ROW} {problem}; expected int64 [{len(result)}], "
            f"numbers from {chunk.start} to {chunk.stop - 1}.",
            key=ROW_KEY,
            expected=f"int64 [{len(result)}]",
            found=problem,
            advice="batch[keep] keeps it; a function that selects entries or builds a TensorDict "
            f'must pass it on: batch.select("action", "{ROW}").',
        )
    # Numbers count from the first row of the run, places from the first row of this call.
    places = numbers.cpu().numpy() - chunk.start
    # From one place to the next it goes up, unless a row is given twice or out of order.
    if (wrong := np.flatnonzero(np.diff(places) <= 0)).size:
        before, after = (places[wrong[0] : wrong[0] + 2] + chunk.start).tolist()
        raise WrongRows(
            f"The function must return rows in their order, each at most once: of {chunk} it "
            f"returned row {after} after row {before}.",
            key=ROW_KEY,
            row=after,
            advice="Choose rows by a mask, such as batch[keep].",
        )
    kept = np.zeros(len(chunk), np.bool_)
    kept[places] = True
    return None if kept.all() else kept


def _problem(numbers: Any, num_rows: int, chunk: RowChunk) -> str:
    """Return a description of invalid row numbers; empty for valid ones."""
    if not isinstance(numbers, torch.Tensor):
        return "nothing" if numbers is None else f"a {type(numbers).__name__}"
    if numbers.dtype != torch.int64 or numbers.shape != (num_rows,):
        return f"{str(numbers.dtype).removeprefix('torch.')} {list(numbers.shape)}"
    if not num_rows:
        return ""
    least, most = (int(number) for number in numbers.aminmax())
    is_within = chunk.start <= least and most < chunk.stop
    return "" if is_within else f"numbers from {least} to {most}"


def write_mark(mark: Path, kept: np.ndarray | None) -> None:
    """Write the mark of a task whose rows are on the disk, with the mask ``[n]`` of kept rows."""
    # The file is empty if the function kept all rows; otherwise it has a bit for each row.
    if kept is None:
        mark.touch()
        return
    with replacing(mark) as new:
        # Eight rows a byte, the first in the highest bit; zeros fill the last byte up.
        new.write_bytes(np.packbits(kept).data)
        flush(new)


def read_mark(mark: Path, num_rows: int) -> np.ndarray | None:
    """Return the mask ``[n]`` of the rows that a task kept; None for all."""
    bits = np.fromfile(mark, np.uint8)
    if not len(bits):
        return None
    expected = -(-num_rows // 8)  # rounded up
    if len(bits) != expected:
        raise DamagedDataset(
            f"{mark} has {len(bits)} bytes; expected {expected}, a bit for each of {num_rows:,} "
            "rows that the function got.",
            path=mark,
            expected=expected,
            found=len(bits),
            advice=f"Delete {mark.parents[1]} and run again.",
        )
    return np.unpackbits(bits, count=num_rows).astype(np.bool_)
