"""Comparison of the rows that a function returned with its input: order, ends, NaN, infinity.

If a function returns as many rows as it gets, only their values identify the rows. Up to
64 rows of each column are copied before the call. If a column that distinguishes these rows has
them in their places, no row was moved. Otherwise the columns that still have the same rows decide,
and the input is read again for them.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np

from datasets_cli.errors import WrongRows, argument
from datasets_cli.preprocessing.chunk import Columns, RowChunk
from datasets_cli.schema.columns import DONE, Key, show_key
from datasets_cli.sources.disk import flush
from datasets_cli.sources.new_files import replacing
from datasets_cli.store.arrays import plain_numbers

SAMPLED = 64
FLAG = (np.dtype(bool), (1,))
"""The dtype and the shape of a row of a flag such as ``next.done``."""


class InputRows:
    """A sample of the rows that a function gets, which it may change in place."""

    def __init__(self, rows: Columns) -> None:
        self.num_rows = len(next(iter(rows.values())))
        count = min(SAMPLED, self.num_rows)
        # From the first row to the last one, which ends a trajectory where chunks do.
        self.places = np.arange(count) * (self.num_rows - 1) // max(1, count - 1)
        self._kinds = {key: (values.dtype, values.shape[1:]) for key, values in rows.items()}
        self._sampled = {key: _row_bytes(values[self.places]) for key, values in rows.items()}
        has_ends = self._kinds.get(DONE) == FLAG
        self._ends = np.flatnonzero(rows[DONE]) if has_ends else np.zeros(0, np.int64)

    def may_be_moved(self, rows: Columns) -> bool:
        """Return whether the rows of a result may be the input in another order."""
        same = self._same_kind(rows)
        sampled = {key: _row_bytes(rows[key][self.places]) for key in same}
        distinct = [key for key in same if _is_distinct(sampled[key])]
        return bool(distinct) and not any(
            (sampled[key] == self._sampled[key]).all() for key in distinct
        )

    def check_order(self, given: Columns, rows: Columns, chunk: RowChunk) -> None:
        """Refuse a result that has the rows of the input, read again, in another order."""
        pairs = {
            key: (_row_bytes(given[key]), _row_bytes(rows[key])) for key in self._same_kind(rows)
        }
        # The columns with the same rows, in any order.
        kept = {
            key: pair for key, pair in pairs.items() if (np.sort(pair[0]) == np.sort(pair[1])).all()
        }
        for key, (before, after) in kept.items():
            if not _is_distinct(after[self.places]):
                continue
            order = np.argsort(before)
            come_from = order[np.searchsorted(before, after[self.places], sorter=order)]
            moved = np.flatnonzero(come_from != self.places)
            agree = all((was[come_from] == now[self.places]).all() for was, now in kept.values())
            if len(moved) and agree:
                was, now = int(come_from[moved[0]]), int(self.places[moved[0]])
                raise WrongRows(
                    f"The function must return rows in their order: of {chunk} it returned row "
                    f"{was} as row {now} of these, by {show_key(key)} and every other column that "
                    "has the same rows.",
                    argument="order",
                    key=key,
                    row=now,
                    found=was,
                    advice="Return them in the order of the input, or pass "
                    f"{argument('order', ANY_ORDER)} if it is meant.",
                )

    def check_ends(self, rows: Columns, kept: np.ndarray | None, chunk: RowChunk) -> None:
        """Refuse a result in which the last row of a trajectory is not done any more."""
        # kept: which of the input rows they are, bool `[n]`; None for all.
        done = rows.get(DONE)
        if done is None or (done.dtype, done.shape[1:]) != FLAG:
            return
        places = np.flatnonzero(kept) if kept is not None else np.arange(self.num_rows)
        gone = np.intersect1d(self._ends, places[~done[:, 0]])
        if len(gone):
            raise WrongRows(
                f"The function must keep the ends of trajectories: of {chunk} it returned "
                f"{len(gone)} with next.done false that had it true, first row {gone[0]} of these.",
                key=DONE,
                row=int(gone[0]),
                advice="Do not change next.done, because next.terminated marks terminal ends; "
                "or drop the column.",
            )

    def _same_kind(self, rows: Columns) -> list[Key]:
        return [
            key
            for key, kind in self._kinds.items()
            if key in rows and (rows[key].dtype, rows[key].shape[1:]) == kind
        ]


ANY_ORDER = '"any"'

Counts = dict[str, list[int]]
"""The numbers of NaN and of infinite values, by column."""


def nonfinite_counts(rows: Columns) -> Counts:
    """Return the counts of the columns that have NaN or infinite values."""
    counts = {}
    for key, values in rows.items():
        numbers = plain_numbers(values) if values.dtype.kind in "fcV" else None
        if numbers is not None and not np.isfinite(numbers).all():
            counts[show_key(key)] = [int(np.isnan(numbers).sum()), int(np.isinf(numbers).sum())]
    return counts


def added_counts(before: Counts, after: Counts) -> Counts:
    """Return the counts by which a result exceeds its input."""
    added = {
        key: [max(0, now - was) for now, was in zip(counts, before.get(key, (0, 0)), strict=True)]
        for key, counts in after.items()
    }
    return {key: counts for key, counts in added.items() if any(counts)}


def write_counts(mark: Path, counts: Counts) -> None:
    """Write the counts of a task beside its mark."""
    if counts:
        with replacing(_beside(mark)) as new:
            new.write_text(json.dumps(counts), encoding="utf-8")
            flush(new)


def notes_of(marks: list[Path]) -> list[str]:
    """Return a line for each column with new NaN or infinite values."""
    totals: Counts = {}
    for mark in marks:
        if (file := _beside(mark)).exists():
            for key, counts in json.loads(file.read_text(encoding="utf-8")).items():
                total = totals.get(key, (0, 0))
                totals[key] = [one + other for one, other in zip(total, counts, strict=True)]
    return [_in_words(key, *counts) for key, counts in sorted(totals.items())]


def _in_words(key: str, num_nan: int, num_infinite: int) -> str:
    counts = {"NaN": num_nan, "infinite numbers": num_infinite}
    parts = [f"{count:,} {word}" for word, count in counts.items() if count]
    return f"{key} has {' and '.join(parts)} that the parent does not have"


def _beside(mark: Path) -> Path:
    return mark.with_suffix(".odd")


def _row_bytes(rows: np.ndarray) -> np.ndarray:
    """Return the bytes of each row as one value ``[n]``, which can be compared and sorted."""
    numbers = math.prod(rows.shape[1:])
    if not numbers:
        return np.zeros(len(rows), "V1")
    flat = np.ascontiguousarray(rows).reshape(len(rows), numbers)
    return flat.view(f"V{numbers * rows.itemsize}")[:, 0]


def _is_distinct(values: np.ndarray) -> bool:
    return len(np.unique(values)) == len(values) > 1
