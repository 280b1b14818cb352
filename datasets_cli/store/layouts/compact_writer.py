"""Writes the ``compact`` layout: frames directly, small leaves first as files, then packed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from datasets_cli.schema.columns import (
    DONE,
    Column,
    Key,
    column_of,
    one_file_each,
    successor_of,
)
from datasets_cli.schema.summary import summarise
from datasets_cli.schema.trajectories import ends_of, num_records
from datasets_cli.sources.disk import disk_errors
from datasets_cli.store.layouts.dictionary import SAMPLED_FRAMES, make_dictionary
from datasets_cli.store.layouts.frame_writer import PackedFrames, SharedFrames, join_segments
from datasets_cli.store.layouts.packing import pack
from datasets_cli.store.layouts.records import (
    RECORDS,
    ROW_MAP,
    FrameField,
    columns_of,
    frame_fields,
)
from datasets_cli.store.layouts.ted_writer import TedWriter, Written, reward_column, write_beside


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
        """Return the writer of a column's frames; see ``TedWriter.add_frames``."""
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
        """Return a mask of the rows that end a trajectory, bool ``[n]``."""
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
    statistics = summarise(leaves, reward_column(columns), offsets)
    names = [RECORDS, ROW_MAP]
    names += [name for field in fields for name in field.files_in(folder)]
    files = write_beside(folder, names, offsets, extra_files)
    columns += tuple(column for field in fields for column in columns_of(field))
    columns = tuple(sorted(columns, key=lambda column: column.key))
    counts = int(offsets[-1]), len(offsets) - 1
    return Written("compact", *counts, columns, files, statistics, record.to_json())
