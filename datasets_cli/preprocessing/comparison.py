"""What a function returned beside what it got: rows in another order, lost ends, NaN, infinity.

Nothing says which rows a function returns, where they are as many as it got; their values do. Of
each column some rows are kept before the call. Where a column that tells them apart has them at
their places, nothing was moved. Else columns that have the rows of before, each as often, are
asked where these were.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from datasets_cli.errors import UsageError, argument
from datasets_cli.schema.columns import DONE, Key, show_key
from datasets_cli.sources.disk import flush
from datasets_cli.sources.new_files import replacing
from datasets_cli.store.arrays import plain_numbers

SAMPLED = 64

Columns = Mapping[Key, np.ndarray]
"""Columns of numbers, each ``[n, ...]``."""


class GivenRows:
    """What is kept of the rows that a function gets, which it may change in place."""

    def __init__(self, rows: Columns) -> None:
        self.num_rows = len(next(iter(rows.values())))
        count = min(SAMPLED, self.num_rows)
        # From the first row to the last one, which ends a trajectory where chunks do.
        self.places = np.arange(count) * (self.num_rows - 1) // max(1, count - 1)
        self._kinds = {key: (values.dtype, values.shape[1:]) for key, values in rows.items()}
        self._sampled = {key: _hashes(values[self.places]) for key, values in rows.items()}
        has_ends = self._kinds.get(DONE) == (np.dtype(bool), (1,))
        self._ends = np.flatnonzero(rows[DONE]) if has_ends else np.zeros(0, np.int64)

    def may_be_moved(self, rows: Columns) -> bool:
        """Return whether rows that a function returned may be these in another order."""
        same = self._same_kind(rows)
        sampled = {key: _hashes(rows[key][self.places]) for key in same}
        distinct = [key for key in same if _is_distinct(sampled[key])]
        return bool(distinct) and not any(
            (sampled[key] == self._sampled[key]).all() for key in distinct
        )

    def check_order(self, given: Columns, rows: Columns, named: str) -> None:
        """Refuse rows that are the given ones, all read again, in another order."""
        pairs = {key: (_hashes(given[key]), _hashes(rows[key])) for key in self._same_kind(rows)}
        # Those whose rows are what they were, whatever their order.
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
                raise UsageError(
                    f"The function must return rows in their order: of {named} it returned row "
                    f"{come_from[moved[0]]} as row {self.places[moved[0]]} of these, as "
                    f"{show_key(key)} and every other column that has the same rows say. Return "
                    f"them as they came, or give {argument('order', ANY_ORDER)} if it is meant."
                )

    def check_ends(self, rows: Columns, kept: np.ndarray | None, named: str) -> None:
        """Refuse rows that were the last of a trajectory and are no longer."""
        # kept: which of the given rows they are, bool `[n]`; None for all.
        done = rows.get(DONE)
        if done is None or (done.dtype, done.shape[1:]) != (np.dtype(bool), (1,)):
            return
        places = np.flatnonzero(kept) if kept is not None else np.arange(self.num_rows)
        gone = np.intersect1d(self._ends, places[~done[:, 0]])
        if len(gone):
            raise UsageError(
                f"The function must leave trajectories their ends: of {named} it returned "
                f"{len(gone)} with next.done false that had it true, the first of them row "
                f"{gone[0]} of these. Leave next.done as it is, since next.terminated alone says "
                "which ends are terminal, or drop the column."
            )

    def _same_kind(self, rows: Columns) -> list[Key]:
        return [
            key
            for key, kind in self._kinds.items()
            if key in rows and (rows[key].dtype, rows[key].shape[1:]) == kind
        ]


ANY_ORDER = '"any"'

Counts = dict[str, list[int]]
"""NaN and infinite numbers, by column."""


def odd_numbers(rows: Columns) -> Counts:
    """Return how many numbers of each column are NaN and how many infinite, where some are."""
    counts = {}
    for key, values in rows.items():
        numbers = plain_numbers(values) if values.dtype.kind in "fcV" else None
        if numbers is not None and not np.isfinite(numbers).all():
            counts[show_key(key)] = [int(np.isnan(numbers).sum()), int(np.isinf(numbers).sum())]
    return counts


def added_to(before: Counts, after: Counts) -> Counts:
    """Return what there is after a function that there was not before."""
    added = {
        key: [max(0, now - was) for now, was in zip(counts, before.get(key, (0, 0)), strict=True)]
        for key, counts in after.items()
    }
    return {key: counts for key, counts in added.items() if any(counts)}


def write_counts(mark: Path, counts: Counts) -> None:
    """Keep the counts of a task beside its mark."""
    if counts:
        with replacing(_beside(mark)) as new:
            new.write_text(json.dumps(counts), encoding="utf-8")
            flush(new)


def notes_of(marks: list[Path]) -> list[str]:
    """Return what to say of NaN and infinite numbers that are new, a line a column."""
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


def _hashes(rows: np.ndarray) -> np.ndarray:
    """Return a hash of the bytes of each row, int64 ``[n]``."""
    return np.fromiter((hash(row.tobytes()) for row in rows), np.int64, len(rows))


def _is_distinct(hashes: np.ndarray) -> bool:
    return len(np.unique(hashes)) == len(hashes) > 1
