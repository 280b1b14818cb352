"""The rows that a function kept, over all tasks: their marks, their trajectories, their files.

    read        0 0 0 0 0 1 1 2 2        trajectories 0 to 2
    kept        x x . x x . . x x
    remain      0 0   1 1     2 2        the first is cut into two; the second is gone

The last row of a piece that a cut made ends early, as that of a view does.

    data/x.memmap      a a a . b b . .       each chunk at the place of all its rows
    closed/x.memmap    a a a b b

A file gets its name when it is whole, and the files with gaps stay until the commit: the next run
continues one that was killed at any moment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from datasets_cli.errors import DamagedDataset
from datasets_cli.sources.disk import check_free_space, disk_errors, flush, replace_file
from datasets_cli.store.schema.columns import BLOCK_BYTES, Column
from datasets_cli.store.schema.trajectories import lengths_of

Bounds = list[tuple[int, int]]
"""First row and one past the last of every chunk."""


def write_mark(mark: Path, kept: np.ndarray | None) -> None:
    """Write the mark of a task whose rows are on the disk, and which it kept, bool ``[n]``."""
    # It is empty where the function kept all rows, None. Else it has a bit for each row read.
    if kept is None:
        mark.touch()
        return
    new = mark.with_suffix(f".{os.getpid()}")
    np.packbits(kept).tofile(new)
    flush(new)
    replace_file(new, mark)


def read_mark(mark: Path, num_rows: int) -> np.ndarray | None:
    """Return which of the rows that a task read are kept, bool ``[n]``; None for all."""
    bits = np.fromfile(mark, np.uint8)
    if not len(bits):
        return None
    expected = -(-num_rows // 8)  # rounded up
    if len(bits) != expected:
        raise DamagedDataset(
            f"{mark} has {len(bits)} bytes; expected {expected}, a bit for each of {num_rows:,} "
            f"rows that a function got. Delete {mark.parents[1]}, and run again."
        )
    return np.unpackbits(bits, count=num_rows).astype(np.bool_)


@dataclass(frozen=True)
class RemainingRows:
    """The rows of a result, in the order in which they were read."""

    # offsets: of the trajectories, int64 `[K + 1]`.
    # early_ends: rows that may end a trajectory too early, int64 `[n]`.

    places: Bounds
    offsets: np.ndarray
    early_ends: np.ndarray
    dropped: str = ""

    @property
    def num_rows(self) -> int:
        """How many rows are left."""
        return int(self.offsets[-1])


def remaining_rows(
    offsets: np.ndarray,
    early_ends: np.ndarray,
    bounds: Bounds,
    kept_of: Callable[[int], np.ndarray | None],
) -> RemainingRows:
    """Return what is left of rows; memory grows with trajectories, and not with rows."""
    # offsets: of the trajectories that were read, int64 `[K + 1]`.
    # early_ends: rows of them that may end a trajectory too early, int64 `[n]`.
    # kept_of: gives bool `[n]`, which rows of a chunk are left, by its number; None for all.
    places = []
    for number, (start, stop) in enumerate(bounds):
        kept = kept_of(number)
        places.append((start, stop - start if kept is None else int(kept.sum())))
    num_rows = sum(count for _, count in places)
    if num_rows == offsets[-1]:
        return RemainingRows(places, offsets, early_ends)
    firsts, starts = _pieces(offsets, _left(bounds, kept_of))
    left = np.append(starts, num_rows)
    # A piece is consecutive rows: its last one, of those that were read, follows from its first.
    lasts = firsts + lengths_of(left) - 1
    numbers = np.searchsorted(offsets, firsts, side="right") - 1
    is_cut = lasts + 1 != offsets[numbers + 1]
    ends_early = is_cut | np.isin(lasts, early_ends)
    num_whole = int((~is_cut & (firsts == offsets[numbers])).sum())
    dropped = _in_words(offsets, num_rows, len(np.unique(numbers)), num_whole)
    return RemainingRows(places, left, left[1:][ends_early] - 1, dropped)


def _in_words(offsets: np.ndarray, num_rows: int, num_found: int, num_whole: int) -> str:
    """Return what is gone of the rows that were read."""
    num_read, num_trajectories = int(offsets[-1]), len(offsets) - 1
    return (
        f"{num_read - num_rows:,} of {num_read:,} rows: {num_trajectories - num_found:,} of "
        f"{num_trajectories:,} trajectories whole, {num_found - num_whole:,} in part"
    )


def _left(bounds: Bounds, kept_of: Callable[[int], np.ndarray | None]) -> Iterable[np.ndarray]:
    """Yield the numbers of the rows that are left, int64 ``[k]``, chunk by chunk."""
    for number, (start, stop) in enumerate(bounds):
        kept = kept_of(number)
        yield np.arange(start, stop) if kept is None else np.flatnonzero(kept) + start


def _pieces(offsets: np.ndarray, left: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return where runs of consecutive rows of one trajectory begin."""
    # The number of each run's first row among all, and its place among those left: int64 `[K]`.
    firsts, starts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    previous, num_before = -2, 0
    for rows in left:
        is_next = np.diff(rows, prepend=previous) == 1
        # offsets[-1] is beyond every row, so that each search finds an offset.
        begins = offsets[np.searchsorted(offsets, rows)] == rows
        places = np.flatnonzero(~is_next | begins)
        firsts.append(rows[places])
        starts.append(places + num_before)
        num_before += len(rows)
        previous = int(rows[-1]) if len(rows) else previous
    return np.concatenate(firsts), np.concatenate(starts)


def close_gaps(
    data: Path, closed: Path, columns: tuple[Column, ...], places: Bounds, what: str
) -> None:
    """Copy the rows that are left into files of their own; memory does not grow with them."""
    num_rows = sum(count for _, count in places)
    missing = [
        column for column in columns if column.row_bytes and not (closed / column.filename).exists()
    ]
    size = sum(column.row_bytes for column in missing) * num_rows
    check_free_space(closed.parent, size, f"{what}, whose function drops rows,")
    with disk_errors(closed):
        closed.mkdir(exist_ok=True)
        for column in missing:
            # Its own in each process, where locks do not work; outside of what is committed.
            new = closed.with_name(f"{closed.name}.{os.getpid()}")
            with (data / column.filename).open("rb") as source, new.open("wb") as target:
                for start, count in places:
                    source.seek(start * column.row_bytes)
                    _copy(source, target, count * column.row_bytes)
            flush(new)
            (closed / column.filename).parent.mkdir(parents=True, exist_ok=True)
            replace_file(new, closed / column.filename)


def _copy(source: BinaryIO, target: BinaryIO, size: int) -> None:
    while size:
        block = source.read(min(size, BLOCK_BYTES))
        assert block, "a file has a place for each row that was read"
        target.write(block)
        size -= len(block)
