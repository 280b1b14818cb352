"""Packs leaf files of the ``ted`` layout into the records of the ``compact`` layout.

Two passes over the small leaves, in chunks: the first finds constant columns, and successors that
equal the next row bit for bit (including NaN and -0.0); the second writes the records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from datasets_cli.schema.columns import EPISODE, Column, rows_per_block, successor_of
from datasets_cli.schema.trajectories import ends_of, num_records, numbers_of
from datasets_cli.store.layouts.records import (
    RECORDS,
    ROW_MAP,
    ConstantField,
    FrameField,
    Record,
    columns_of,
    lay_out,
    row_map_dtype,
)


@dataclass(frozen=True)
class Chunk:
    """A run of transitions and their records."""

    # row: int64 `[n]`, the record of each transition.
    # episode: int64 `[n]`, the trajectory of each transition.
    # is_end: bool `[n]`, whether each transition is the last of its trajectory.

    row: np.ndarray
    episode: np.ndarray
    is_end: np.ndarray


def chunks(offsets: np.ndarray, num_rows: int) -> Iterator[Chunk]:
    """Yield runs of ``num_rows`` transitions; the last may be shorter."""
    # offsets: int64 `[K + 1]`.
    for start in range(0, int(offsets[-1]), num_rows):
        stop = min(start + num_rows, int(offsets[-1]))
        episode = numbers_of(offsets, start, stop)
        # Each earlier trajectory has one record more than transitions.
        yield Chunk(np.arange(start, stop) + episode, episode, ends_of(offsets, start, stop))


def leaf_bytes(folder: Path, column: Column, num_rows: int) -> Iterator[np.ndarray]:
    """Yield runs of ``num_rows`` rows of a leaf as bytes ``[n, row_bytes]``."""
    with (folder / column.filename).open("rb") as file:
        while len(some := np.fromfile(file, np.uint8, num_rows * column.row_bytes)):
            yield some.reshape(-1, column.row_bytes)


def pack(
    source: Path,
    columns: tuple[Column, ...],
    frames: tuple[FrameField, ...],
    offsets: np.ndarray,
    target: Path,
) -> Record:
    """Write ``rows.memmap`` and ``row.memmap`` of a dataset, and return its record."""
    # offsets: int64 `[K + 1]`.
    values = {column.key: _constant(source, column) for column in columns}
    stored = {column.key: column for column in columns if values[column.key] is None}
    made = tuple(c for c in stored.values() if _is_episode(source, c, offsets))
    for column in made:
        del stored[column.key]
    successors = {
        key: successor
        for key, column in stored.items()
        if (successor := successor_of(key)) in stored
        and _is_shared(source, column, stored[successor], offsets)
    }
    shared = set(successors.values())
    pairs = [(c, successors.get(key)) for key, c in stored.items() if key not in shared]
    same = [column for column in columns if values[column.key] is not None]
    fields, size, left = lay_out(pairs, same)
    record = Record(
        size=size,
        num_records=num_records(offsets),
        fields=fields,
        constants=tuple(ConstantField(column, values[column.key] or b"") for column in left),
        made=made,
        frames=frames,
    )
    _write(source, record, offsets, target)
    return record


def _constant(source: Path, column: Column) -> bytes | None:
    """Return the bytes of a row if all rows of the column are equal; otherwise None."""
    if not column.row_bytes:  # no file
        return b""
    first = np.zeros((1, 0), np.uint8)
    for rows in leaf_bytes(source, column, rows_per_block(column.row_bytes)):
        first = first if first.size else rows[:1]
        if not (rows == first).all():
            return None
    return first.tobytes()


def _is_episode(source: Path, column: Column, offsets: np.ndarray) -> bool:
    """Return whether a column is the trajectory number of each row."""
    if column != Column(EPISODE, "int64", ()):
        return False
    num_rows = rows_per_block(column.row_bytes)
    pairs = zip(chunks(offsets, num_rows), leaf_bytes(source, column, num_rows), strict=True)
    return all((rows.view(np.int64)[:, 0] == chunk.episode).all() for chunk, rows in pairs)


def _is_shared(source: Path, column: Column, successor: Column, offsets: np.ndarray) -> bool:
    """Return whether a successor equals the next row bit for bit, except at trajectory ends."""
    if (successor.dtype, successor.shape) != (column.dtype, column.shape):
        return False
    num_rows = rows_per_block(2 * column.row_bytes)
    leaves = (leaf_bytes(source, each, num_rows) for each in (column, successor))
    expected: np.ndarray | None = None
    for chunk, rows, after in zip(chunks(offsets, num_rows), *leaves, strict=True):
        inside = ~chunk.is_end
        # Compare the first row with the last successor of the previous chunk, then each row with
        # the successor of the row before it, except at the end of a trajectory.
        if expected is not None and not (rows[0] == expected).all():
            return False
        if not (rows[1:][inside[:-1]] == after[:-1][inside[:-1]]).all():
            return False
        expected = after[-1] if inside[-1] else None
    return True


def _write(source: Path, record: Record, offsets: np.ndarray, target: Path) -> None:
    """Write the records and the row map."""
    num_rows = rows_per_block(record.size)
    leaves = [
        [leaf_bytes(source, column, num_rows) for column in columns_of(field)]
        for field in record.fields
    ]
    dtype = row_map_dtype(record.num_records)
    with (target / RECORDS).open("wb") as records, (target / ROW_MAP).open("wb") as row_map:
        for chunk in chunks(offsets, num_rows):
            num_ends = int(chunk.is_end.sum())
            block = np.zeros((len(chunk.row) + num_ends, record.size), np.uint8)
            # Records of this chunk: one for each transition, and after the last one of a trajectory
            # a record for its final observation, whose other fields are zero.
            own = chunk.row - chunk.row[0]
            final = own[chunk.is_end] + 1
            for field, (leaf, *successor) in zip(record.fields, leaves, strict=True):
                span = slice(field.offset, field.offset + field.column.row_bytes)
                block[own, span] = next(leaf)
                for following in successor:
                    block[final, span] = next(following)[chunk.is_end]
            records.write(block.data)
            row_map.write(chunk.row.astype(dtype).data)
