"""Packing leaf files of the ``ted`` layout into the records of the ``compact`` one.

Two passes over the small leaves, in chunks: the first finds what is constant and which successors
are the following row's value bit for bit (NaN and -0.0 count), the second writes the records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from datasets_cli.store.compact.records import (
    RECORDS,
    ROW_MAP,
    ConstantField,
    FrameField,
    Record,
    lay_out,
    row_map_dtype,
)
from datasets_cli.store.schema.columns import EPISODE, Column, Key, rows_per_block, successor_of
from datasets_cli.store.schema.trajectories import ends_of, num_records, numbers_of


@dataclass(frozen=True)
class Chunk:
    """A run of transitions and where their records are."""

    # episode: int64 `[n]`, the number of each transition's trajectory.
    # is_end: bool `[n]`, whether it is the last of its trajectory.

    start: int
    stop: int
    episode: np.ndarray
    is_end: np.ndarray

    @property
    def row(self) -> np.ndarray:
        """The record of each transition, int64 ``[n]``."""
        # Each trajectory before a transition has one record more than it has transitions.
        row: np.ndarray = np.arange(self.start, self.stop) + self.episode
        return row


def chunks(offsets: np.ndarray, row_bytes: int) -> Iterator[Chunk]:
    """Yield bounded runs of transitions over trajectories."""
    # offsets: int64 `[K + 1]`.
    num_rows = int(offsets[-1])
    step = rows_per_block(row_bytes)
    for start in range(0, num_rows, step):
        stop = min(start + step, num_rows)
        episode, is_end = numbers_of(offsets, start, stop), ends_of(offsets, start, stop)
        yield Chunk(start, stop, episode, is_end)


def pack(
    source: Path,
    columns: tuple[Column, ...],
    frames: tuple[FrameField, ...],
    offsets: np.ndarray,
    target: Path,
) -> Record:
    """Write ``rows.memmap`` and ``row.memmap`` of a dataset and return its record."""
    # offsets: int64 `[K + 1]`.
    constants = _constants(source, columns, offsets)
    made = _made(source, columns, offsets, constants)
    known = constants.keys() | {column.key for column in made}
    stored = {column.key: column for column in columns if column.key not in known}
    pairs: list[tuple[Column, Key | None]] = []
    shared: set[Key] = set()
    for key, column in stored.items():
        successor = successor_of(key)
        if _is_shared(source, column, stored.get(successor), offsets):
            pairs.append((column, successor))
            shared.add(successor)
        else:
            pairs.append((column, None))
    same = [column for column in columns if column.key in constants]
    fields, size, left = lay_out([pair for pair in pairs if pair[0].key not in shared], same)
    record = Record(
        size=size,
        num_records=num_records(offsets),
        fields=fields,
        constants=tuple(ConstantField(column, constants[column.key]) for column in left),
        made=tuple(made),
        frames=frames,
    )
    _write(source, record, offsets, target)
    return record


class LeafBytes:
    """Reads a leaf's rows one after another as bytes ``[n, row_bytes]``."""

    def __init__(self, folder: Path, column: Column) -> None:
        self._column = column
        self._file = (folder / column.filename).open("rb") if column.row_bytes else None

    def read(self, num_rows: int) -> np.ndarray:
        """Return the next rows."""
        width = self._column.row_bytes
        if self._file is None:
            return np.zeros((num_rows, 0), np.uint8)
        return np.fromfile(self._file, np.uint8, num_rows * width).reshape(num_rows, width)

    def __enter__(self) -> LeafBytes:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


def _constants(source: Path, columns: tuple[Column, ...], offsets: np.ndarray) -> dict[Key, bytes]:
    """Return the one row, as bytes, of every column whose rows are all the same."""
    found = {}
    for column in columns:
        with LeafBytes(source, column) as leaf:
            first: np.ndarray | None = None
            for chunk in chunks(offsets, column.row_bytes):
                rows = leaf.read(chunk.stop - chunk.start)
                first = rows[0] if first is None else first
                if not (rows == first).all():
                    break
            else:
                assert first is not None
                found[column.key] = first.tobytes()
    return found


def _made(
    source: Path,
    columns: tuple[Column, ...],
    offsets: np.ndarray,
    constants: dict[Key, bytes],
) -> list[Column]:
    """Return the columns that are what they can be made from, in every row."""
    by_key = {column.key: column for column in columns}
    made = []
    if EPISODE in by_key and EPISODE not in constants and by_key[EPISODE].dtype == "int64":
        with LeafBytes(source, by_key[EPISODE]) as leaf:
            if all(
                (leaf.read(chunk.stop - chunk.start).view(np.int64)[:, 0] == chunk.episode).all()
                for chunk in chunks(offsets, 8)
            ):
                made.append(by_key[EPISODE])
    return made


def _is_shared(source: Path, column: Column, successor: Column | None, offsets: np.ndarray) -> bool:
    """Tell whether a successor is the following row's value bit for bit, but at ends."""
    if successor is None or (successor.dtype, successor.shape) != (column.dtype, column.shape):
        return False
    expected: np.ndarray | None = None
    with LeafBytes(source, column) as leaf, LeafBytes(source, successor) as following:
        for chunk in chunks(offsets, 2 * column.row_bytes):
            rows = leaf.read(chunk.stop - chunk.start)
            after = following.read(chunk.stop - chunk.start)
            inside = ~chunk.is_end
            # The first row against the successor that ended the last chunk, then each row against
            # the successor of the one before it; at a trajectory's end nothing is shared.
            if expected is not None and not (rows[0] == expected).all():
                return False
            if not (rows[1:][inside[:-1]] == after[:-1][inside[:-1]]).all():
                return False
            expected = after[-1] if inside[-1] else None
    return True


def _write(source: Path, record: Record, offsets: np.ndarray, target: Path) -> None:
    """Write the records and the row map."""
    leaves = [LeafBytes(source, field.column) for field in record.fields]
    successors = [
        LeafBytes(source, Column(field.successor, field.column.dtype, field.column.shape))
        if field.successor
        else None
        for field in record.fields
    ]
    dtype = row_map_dtype(record.num_records)
    with (target / RECORDS).open("wb") as records, (target / ROW_MAP).open("wb") as row_map:
        for chunk in chunks(offsets, record.size):
            num_rows = chunk.stop - chunk.start
            row = chunk.row
            block = np.zeros((num_rows + int(chunk.is_end.sum()), record.size), np.uint8)
            # Records of this chunk: one for each transition, and after each trajectory's last one
            # a record for its final observation, whose other fields stay zero.
            own = row - row[0]
            final = own[chunk.is_end] + 1
            for field, leaf, successor in zip(record.fields, leaves, successors, strict=True):
                span = slice(field.offset, field.offset + field.column.row_bytes)
                block[own, span] = leaf.read(num_rows)
                if successor is not None:
                    block[final, span] = successor.read(num_rows)[chunk.is_end]
            records.write(block.data)
            row_map.write(row.astype(dtype).data)
    for open_leaf in [*leaves, *(leaf for leaf in successors if leaf is not None)]:
        open_leaf.__exit__()
