"""Writes the ``compact`` layout: frames directly, small leaves first as files, then packed.

Two passes over the small leaves, in chunks: the first finds constant columns, and successors that
equal the next row bit for bit (including NaN and -0.0); the second writes the records.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from datasets_cli.schema.columns import (
    DONE,
    EPISODE,
    FINAL_FOLDER,
    Column,
    Key,
    column_of,
    one_file_each,
    rows_per_block,
    successor_of,
)
from datasets_cli.schema.summary import summarise
from datasets_cli.schema.trajectories import ends_of, num_records, numbers_of
from datasets_cli.sources.disk import disk_errors
from datasets_cli.store.layouts.frames import (
    SAMPLED_FRAMES,
    PackedFrames,
    SharedFrames,
    join_segments,
    make_dictionary,
)
from datasets_cli.store.layouts.records import (
    RECORDS,
    ROW_MAP,
    ConstantField,
    FrameField,
    Record,
    columns_of,
    frame_fields,
    lay_out,
    row_map_dtype,
)
from datasets_cli.store.layouts.ted_writer import TedWriter, Written, reward_column, write_beside


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


class CompactWriter:
    """Writes complete TED rows into records and frames."""

    # Small leaves are files below the folder until all rows are written: constant columns, and
    # successors that equal the next rows, are only known then. Frames must equal the next rows.

    def __init__(self, folder: Path, id: str, offsets: np.ndarray | None = None) -> None:
        self.folder = folder
        self.id = id
        self._leaves = TedWriter(folder / "leaves", id, offsets)
        self._frames: list[SharedFrames] | None = None
        self._deferred: list[FrameField] = []

    @property
    def num_rows(self) -> int:
        """Rows written so far."""
        return self._leaves.num_rows

    def write(self, rows: Mapping[Key, np.ndarray]) -> None:
        """Append rows ``[n, ...]``."""
        if self._frames is None:
            self._frames = self._open_frames(rows)
        if self._frames:
            ends = self._ends(rows)
            with disk_errors(self.folder):
                for frames in self._frames:
                    with one_file_each(frames.path, frames.field.column.key):
                        frames.write(rows, ends, self.num_rows)
        taken = {column.key for frames in self._frames for column in columns_of(frames.field)}
        small = {key: values for key, values in rows.items() if key not in taken}
        if small:
            self._leaves.write(small)
        else:
            self._leaves.num_rows += len(next(iter(rows.values())))

    def add_frames(
        self, column: Column, offsets: np.ndarray, sample: Callable[[int], np.ndarray]
    ) -> PackedFrames:
        field = FrameField(column, successor_of(column.key))
        self._deferred.append(field)
        path = self.folder / field.filename
        with disk_errors(self.folder):
            dictionary = make_dictionary(path, sample(SAMPLED_FRAMES))
        return PackedFrames(path, column.row_bytes, dictionary, offsets)

    def finish(self, extra_files: Mapping[str, bytes]) -> Written:
        """Pack the leaves; flush and hash all files; see ``TedWriter.finish``."""
        offsets = self._leaves.complete()
        with disk_errors(self.folder):
            for frames in self._frames or ():
                with one_file_each(frames.path, frames.field.column.key):
                    frames.finish(num_records(offsets))
            for field in self._deferred:
                path = self.folder / field.filename
                with one_file_each(path, field.column.key):
                    join_segments(path, num_records(offsets))
            leaves, columns = self._leaves.folder, self._leaves.columns
            fields = (*(frames.field for frames in self._frames or ()), *self._deferred)
            written = write_packed(leaves, columns, fields, offsets, self.folder, extra_files)
            shutil.rmtree(leaves, ignore_errors=True)  # missing if all columns are frames
        return written

    def close(self) -> None:
        """Close every file; the folder is incomplete unless ``finish`` returned."""
        self._leaves.close()
        for frames in self._frames or ():
            frames.close()

    def _ends(self, rows: Mapping[Key, np.ndarray]) -> np.ndarray:
        if self._leaves.offsets is None:
            return rows[DONE][:, 0]
        stop = self.num_rows + len(next(iter(rows.values())))
        return ends_of(self._leaves.offsets, self.num_rows, stop)

    def _open_frames(self, rows: Mapping[Key, np.ndarray]) -> list[SharedFrames]:
        fields = frame_fields(column_of(key, values) for key, values in rows.items())
        return [SharedFrames(self.folder / field.filename, self.id, field) for field in fields]


def write_packed(
    leaves: Path,
    columns: tuple[Column, ...],
    fields: tuple[FrameField, ...],
    offsets: np.ndarray,
    folder: Path,
    extra_files: Mapping[str, bytes],
) -> Written:
    """Pack leaves into the folder of the frames; flush and hash all files."""
    # offsets: trajectories int64 `[K + 1]`.
    record = pack(leaves, columns, fields, offsets, folder)
    statistics = summarise(leaves, reward_column(columns), offsets, folder / FINAL_FOLDER)
    names = [RECORDS, ROW_MAP]
    names += [name for field in fields for name in field.files_in(folder)]
    files = write_beside(folder, names, offsets, extra_files)
    columns += tuple(column for field in fields for column in columns_of(field))
    columns = tuple(sorted(columns, key=lambda column: column.key))
    counts = int(offsets[-1]), len(offsets) - 1
    return Written("compact", *counts, columns, files, statistics, record.to_json())
