"""Curves: the numbers of some columns over the steps of one trajectory, few points of each.

    rows     0 1 2 3 4 5 | 6 7 8 9 a b        of each bucket of rows the lowest, the highest and the
    points   0   2     5 | 6 7       b        first that is not finite, or just the first

So that a spike of one row stays visible, however many rows there are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from datasets_cli.errors import UsageError
from datasets_cli.json_form import JsonForm
from datasets_cli.look.peek import trajectory_rows
from datasets_cli.look.statistics import measured
from datasets_cli.schema.columns import Column, rows_per_block, show_key
from datasets_cli.store.arrays import DatasetArrays, plain_numbers

MOST_POINTS = 2_000
LEAST_POINTS = 30
POINTS_PER_BUCKET = 3
MOST_NUMBERS = 32
"""Of a row of a column that are drawn; the first ones."""
MOST_COLUMNS = 16
MOST_ROWS = 1 << 20
"""That one answer reads."""
MOST_VALUES = 1 << 20
"""That are in memory at once."""


@dataclass(frozen=True)
class Curve(JsonForm):
    """One number of a column: some steps of the trajectory, and its value at each."""

    name: str
    steps: list[int]
    values: list[Any]


@dataclass(frozen=True)
class Curves(JsonForm):
    """Curves of one trajectory, from step ``start`` up to ``stop``; by column, a curve a number."""

    length: int
    start: int
    stop: int
    columns: dict[str, list[Curve]]
    notes: tuple[str, ...] = ()


def curve_columns(dataset: DatasetArrays) -> dict[str, Column]:
    """Return the columns that have curves: those of numbers that are measured one by one."""
    columns = [each for each in measured(dataset.manifest) if math.prod(each.shape)]
    return {show_key(column.key): column for column in columns}


def curves_of(
    dataset: DatasetArrays,
    trajectory: int,
    names: Sequence[str],
    steps: tuple[int, int | None] = (0, None),
    num_points: int = MOST_POINTS,
) -> Curves:
    """Return curves of some columns of a trajectory, from one step up to another."""
    rows, known = trajectory_rows(dataset, trajectory), curve_columns(dataset)
    if unknown := [name for name in names if name not in known]:
        expected = f"expected some of {', '.join(known) or 'none'}"
        raise UsageError(f"{dataset.id} has no curve of {unknown[0]}; {expected}.")
    shown = rows[slice(*steps)]
    kept, notes = shown[:MOST_ROWS], []
    if len(kept) < len(shown):
        notes.append(f"{MOST_ROWS:,} of {len(shown):,} steps are shown: choose others")
    columns = [known[name] for name in dict.fromkeys(names)]
    notes += [
        f"{show_key(each.key)}: {MOST_NUMBERS} of {size:,} numbers are shown"
        for each in columns[:MOST_COLUMNS]
        if (size := math.prod(each.shape)) > MOST_NUMBERS
    ]
    if left_out := [show_key(each.key) for each in columns[MOST_COLUMNS:]]:
        notes.append(f"not shown, as more than {MOST_COLUMNS} columns: {', '.join(left_out)}")
    most = min(max(num_points, LEAST_POINTS), MOST_POINTS)
    curves = {
        show_key(each.key): _curves(dataset, each, kept, rows.start, most)
        for each in columns[:MOST_COLUMNS]
    }
    first = kept.start - rows.start
    return Curves(len(rows), first, first + len(kept), curves, tuple(notes))


def _curves(
    dataset: DatasetArrays, column: Column, rows: range, first: int, most: int
) -> list[Curve]:
    """Return the curves of the numbers of a column."""
    num_numbers = min(math.prod(column.shape), MOST_NUMBERS)
    steps: list[list[int]] = [[] for _ in range(num_numbers)]
    values: list[list[Any]] = [[] for _ in range(num_numbers)]
    size = bucket_rows(len(rows), most)
    # Whole buckets, so that what is in memory at once does not grow with the trajectory.
    step = max(1, MOST_VALUES // num_numbers // size) * size
    for start in rows[::step]:
        read = _numbers(dataset, column, rows[start - rows.start :][:step])
        for number, places in enumerate(decimated(read, size)):
            steps[number] += (places + (start - first)).tolist()
            values[number] += _plain(read[places, number])
    name = show_key(column.key)
    names = [name] if column.shape in ((), (1,)) else [f"{name}[{n}]" for n in range(num_numbers)]
    return [*map(Curve, names, steps, values)]


def bucket_rows(num_rows: int, most: int) -> int:
    """Return how many rows make a bucket, so that there are at most so many points."""
    return 1 if num_rows <= most else -(-num_rows // (most // POINTS_PER_BUCKET))


def decimated(values: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Yield for each number of rows ``[n, m]`` the rows of its points, int64, in their order."""
    num_rows, num_numbers = values.shape
    if size == 1:
        yield from num_numbers * [np.arange(num_rows)]
        return
    # The last bucket is filled with its last row again, which is never the first of equal ones.
    num_buckets = -(-num_rows // size)
    filled = values[np.minimum(np.arange(num_buckets * size), num_rows - 1)]
    buckets = filled.reshape(num_buckets, size, num_numbers)
    low = high = buckets
    first = np.zeros((num_buckets, num_numbers), np.int64)
    if values.dtype.kind == "f":
        is_finite = np.isfinite(buckets)
        low, high = np.where(is_finite, buckets, np.inf), np.where(is_finite, buckets, -np.inf)
        first = is_finite.argmin(1)
    places = np.stack([low.argmin(1), high.argmax(1), first])
    places += (np.arange(num_buckets) * size)[:, None]
    for number in range(num_numbers):
        yield np.unique(places[:, :, number])


def _numbers(dataset: DatasetArrays, column: Column, rows: range) -> np.ndarray:
    """Return the first numbers of rows of a column ``[n, m]``."""
    reader, step = dataset.arrays_of(frozenset({column.key})), rows_per_block(column.row_bytes)
    parts = []
    for start in rows[::step]:
        numbers = plain_numbers(reader.run(start, min(start + step, rows.stop))[column.key])
        assert numbers is not None, "a measured column has numbers"
        parts.append(numbers.reshape(len(numbers), -1)[:, :MOST_NUMBERS].copy())
    return np.concatenate(parts)


def _plain(values: np.ndarray) -> list[Any]:
    """Return values as JSON has them: NaN as null, what is infinite as text, as in ``peek``."""
    listed: list[Any] = values.tolist()
    if values.dtype.kind != "f" or np.isfinite(values).all():
        return listed
    constants = {"NaN": None}
    plain: list[Any] = json.loads(
        json.dumps(listed), parse_constant=lambda text: constants.get(text, text)
    )
    return plain
