"""Writing the ``compact`` layout: frames at once, small leaves first as they are, then packed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from datasets_cli.errors import SourceError
from datasets_cli.sources.disk import disk_errors
from datasets_cli.store.compact.dictionary import SAMPLED_FRAMES
from datasets_cli.store.compact.frame_writer import (
    FrameParts,
    FrameWriter,
    join_parts,
    make_dictionary,
)
from datasets_cli.store.compact.packing import pack
from datasets_cli.store.compact.records import (
    RECORDS,
    ROW_MAP,
    FrameField,
    is_frame,
)
from datasets_cli.store.schema.columns import DONE, Column, Key, column_of, show_key, successor_of
from datasets_cli.store.schema.frame_table import Run
from datasets_cli.store.ted.writer import TedWriter, Written, write_beside


class CompactWriter:
    """Writes complete TED rows into records and frames.

    Small leaves go to files of their own below the folder until all rows are known, because only
    then is it known what is constant and what successors share; frames are shared or refused.

    Args:
        folder: a new folder; created.
        id: named in messages.
        offsets: as ``TedWriter`` takes them.
    """

    def __init__(self, folder: Path, id: str, offsets: np.ndarray | None = None) -> None:
        self.folder = folder
        self.id = id
        self._leaves = TedWriter(folder / "leaves", id, offsets)
        self._frames: dict[Key, _SharedFrames] | None = None
        self._apart: list[_FramesApart] = []

    @property
    def num_rows(self) -> int:
        """Rows written so far."""
        return self._leaves.num_rows

    def write(self, rows: Mapping[Key, np.ndarray]) -> None:
        """Write rows ``[n, ...]`` behind the last ones.

        Raises:
            SourceError: a frame's successor is not the following row's frame.
            DiskFull: no room.
        """
        if self._frames is None:
            self._frames = self._open_frames(rows)
        if self._frames:
            ends = self._ends(rows)
            with disk_errors(self.folder):
                for frames in self._frames.values():
                    frames.write(rows, ends, self.num_rows)
        taken = {key for frames in self._frames.values() for key in frames.keys}
        small = {key: values for key, values in rows.items() if key not in taken}
        if small:
            self._leaves.write(small)
        else:
            self._leaves.num_rows += len(next(iter(rows.values())))

    def add_pictures(
        self, column: Column, offsets: np.ndarray, sample: Callable[[int], np.ndarray]
    ) -> PackedPictures:
        """Return where to write a column's pictures; see ``TedWriter.add_pictures``."""
        frames = _FramesApart(self.folder, column)
        self._apart.append(frames)
        with disk_errors(self.folder):
            dictionary = make_dictionary(frames.path, sample(SAMPLED_FRAMES))
        return PackedPictures(frames.path, column.row_bytes, dictionary, offsets)

    def finish(self, extra_files: Mapping[str, bytes]) -> Written:
        """Pack the leaves, flush everything to the disk and hash it; see ``TedWriter.finish``."""
        offsets = self._leaves.complete()
        frames: list[_SharedFrames | _FramesApart] = [*(self._frames or {}).values(), *self._apart]
        with disk_errors(self.folder):
            for frame in frames:
                frame.finish(int(offsets[-1]) + len(offsets) - 1)
            columns = self._leaves.columns
            fields = tuple(frame.field for frame in frames)
            record = pack(self._leaves.folder, columns, fields, offsets, self.folder)
            statistics = self._leaves.statistics(offsets)
            shutil.rmtree(self._leaves.folder, ignore_errors=True)  # none if all are frames
            names = [RECORDS, ROW_MAP, *(name for frame in frames for name in frame.filenames)]
            files = write_beside(self.folder, names, offsets, extra_files)
        columns = tuple(
            sorted((*columns, *(c for f in frames for c in f.columns)), key=lambda c: c.key)
        )
        return Written(
            "compact", self.num_rows, len(offsets) - 1, columns, files, statistics, record.to_json()
        )

    def close(self) -> None:
        """Close every file; what was written is rubbish unless ``finish`` returned."""
        self._leaves.close()
        for frames in (self._frames or {}).values():
            frames.close()

    def _ends(self, rows: Mapping[Key, np.ndarray]) -> np.ndarray:
        """Return which of these rows end a trajectory, bool ``[n]``."""
        if self._leaves.offsets is None:
            return rows[DONE][:, 0]
        num_rows = len(next(iter(rows.values())))
        return np.isin(np.arange(self.num_rows, self.num_rows + num_rows) + 1, self._leaves.offsets)

    def _open_frames(self, rows: Mapping[Key, np.ndarray]) -> dict[Key, _SharedFrames]:
        columns = {key: column_of(key, values) for key, values in rows.items()}
        return {
            key: _SharedFrames(self.folder, self.id, column, _successor(column, columns))
            for key, column in columns.items()
            if is_frame(column)
            and not (key[0] == "next" and _successor(columns.get(key[1:]), columns))
        }


def _successor(column: Column | None, columns: Mapping[Key, Column]) -> Column | None:
    """Return the column of the same pictures one step later, if there is one."""
    found = columns.get(successor_of(column.key)) if column else None
    if column is None or found is None or found.shape != column.shape:
        return None
    return found if found.dtype == column.dtype else None


@dataclass
class PackedPictures:
    """``PictureFiles`` of the compact layout.

    Args:
        path: the ``.zst`` file.
        frame_bytes: size of a picture in bytes.
        dictionary: what ``make_dictionary`` returned.
        offsets: the trajectory table.
    """

    path: Path
    frame_bytes: int
    dictionary: bytes
    offsets: np.ndarray
    _parts: FrameParts | None = field(default=None, init=False)

    def write(self, run: Run) -> None:
        """Compress the pictures of one run."""
        with disk_errors(self.path):
            if self._parts is None:
                self._parts = FrameParts(self.path, self.frame_bytes, self.dictionary)
            first = int(self.offsets[run.trajectory]) + run.trajectory
            self._parts.write(first + run.position, run.pictures)

    def close(self) -> None:
        """Close the files; ``write`` opens others."""
        if self._parts is not None:
            with disk_errors(self.path):
                self._parts.close()


class _FramesApart:
    """The frames of one column and its successor, which others write into parts."""

    def __init__(self, folder: Path, column: Column) -> None:
        successor = Column(successor_of(column.key), column.dtype, column.shape)
        self.columns = (column, successor)
        self.field = FrameField(column, successor.key)
        self.path = folder / self.field.filename
        self._folder = folder

    @property
    def filenames(self) -> list[str]:
        """The files written."""
        return _files(self._folder, self.field)

    def finish(self, num_records: int) -> None:
        """Join the parts, which must hold one picture a record."""
        join_parts(self.path, num_records)


def _files(folder: Path, field: FrameField) -> list[str]:
    names = [field.filename + end for end in ("", ".offsets", ".dictionary")]
    return [name for name in names if (folder / name).exists()]


class _SharedFrames:
    """The frames of one column and its successor, each picture once."""

    def __init__(self, folder: Path, id: str, column: Column, successor: Column | None) -> None:
        self._id = id
        self.columns = (column,) if successor is None else (column, successor)
        self.field = FrameField(column, None if successor is None else successor.key)
        self._folder = folder
        self._writer = FrameWriter(folder / self.field.filename, column.row_bytes)
        self._expected: np.ndarray | None = None

    @property
    def keys(self) -> tuple[Key, ...]:
        """The keys whose values these frames are."""
        return tuple(column.key for column in self.columns)

    @property
    def filenames(self) -> list[str]:
        """The files written."""
        return _files(self._folder, self.field)

    def write(self, rows: Mapping[Key, np.ndarray], is_end: np.ndarray, first_row: int) -> None:
        """Add the frames of rows, and behind each trajectory's last one its successor."""
        frames = rows[self.field.column.key]
        ends = np.flatnonzero(is_end)
        if self.field.successor is None:
            last = np.zeros((len(ends), *frames.shape[1:]), np.uint8)
        else:
            following = rows[self.field.successor]
            self._check(frames, following, is_end, first_row)
            last = following[ends]
            self._expected = None if is_end[-1] else following[-1].copy()
        self._writer.write(np.insert(frames, ends + 1, last, axis=0))

    def finish(self, num_records: int) -> None:
        """Close the files, which must hold one picture a record."""
        self._writer.finish()
        assert self._writer.num_frames == num_records, (self._writer.num_frames, num_records)

    def close(self) -> None:
        """Close the files."""
        self._writer.close()

    def _check(
        self, frames: np.ndarray, following: np.ndarray, is_end: np.ndarray, first_row: int
    ) -> None:
        axes = tuple(range(1, frames.ndim))
        differs = (frames[1:] != following[:-1]).any(axis=axes) & ~is_end[:-1]
        wrong = [first_row + int(row) for row in np.flatnonzero(differs)[:1]]
        if self._expected is not None and (frames[0] != self._expected).any():
            wrong = [first_row - 1]
        if wrong:
            raise SourceError(
                f"{self._id}: the compact layout keeps each frame once, but "
                f"{show_key(self.field.successor or ())} of row {wrong[0]} is not the "
                f"{show_key(self.field.column.key)} of the row behind it. Use --layout ted."
            )
