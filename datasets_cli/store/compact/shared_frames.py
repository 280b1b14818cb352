"""The frames of a column and its successor in the compact layout, each frame once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from datasets_cli.errors import SourceError
from datasets_cli.sources.disk import disk_errors
from datasets_cli.store.compact.frame_writer import FrameSegments, FrameWriter, join_segments
from datasets_cli.store.compact.records import FrameField
from datasets_cli.store.schema.columns import Column, Key, show_key, successor_of
from datasets_cli.store.schema.frame_table import FrameRun
from datasets_cli.store.schema.trajectories import record_of


@dataclass
class PackedFrames:
    """``FrameFiles`` of the compact layout."""

    # offsets: the trajectory table int64 `[K + 1]`.

    path: Path
    frame_bytes: int
    dictionary: bytes
    offsets: np.ndarray
    _segments: FrameSegments | None = field(default=None, init=False)

    def write(self, run: FrameRun) -> None:
        """Compress the frames of one run."""
        with disk_errors(self.path):
            if self._segments is None:
                self._segments = FrameSegments(self.path, self.frame_bytes, self.dictionary)
            first = record_of(self.offsets, run.trajectory, run.position)
            self._segments.write(first, run.frames)

    def close(self) -> None:
        """Close the files; ``write`` opens others."""
        if self._segments is not None:
            with disk_errors(self.path):
                self._segments.close()


class DeferredFrameColumn:
    """The frames of one column and its successor, which others write into segments."""

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
        """Join the segments, which must hold one frame per record."""
        join_segments(self.path, num_records)


def _files(folder: Path, field: FrameField) -> list[str]:
    names = [field.filename + end for end in ("", ".offsets", ".dictionary")]
    return [name for name in names if (folder / name).exists()]


class SharedFrames:
    """The frames of one column and its successor, each frame once."""

    def __init__(self, folder: Path, id: str, column: Column, successor: Column | None) -> None:
        self._id = id
        self.columns = (column,) if successor is None else (column, successor)
        self.field = FrameField(column, None if successor is None else successor.key)
        self._folder = folder
        self.path = folder / self.field.filename
        self._writer = FrameWriter(self.path, column.row_bytes)
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
        """Add the frames of rows, and after each trajectory's last one its successor."""
        # rows: with the frames `[n, *shape]`.
        # is_end: whether a row is its trajectory's last, bool `[n]`.
        frames = rows[self.field.column.key]
        ends = np.flatnonzero(is_end)
        if self.field.successor is None:
            last = np.zeros((len(ends), *frames.shape[1:]), np.uint8)
        else:
            following = rows[self.field.successor]
            self._check(frames, following, is_end, first_row)
            last = following[ends]
            self._expected = None if is_end[-1] else following[-1].copy()
        # Frames o0 o1 o2 of one trajectory and o3 of the next become o0 o1 o2 o2' o3.
        self._writer.write(np.insert(frames, ends + 1, last, axis=0))

    def finish(self, num_records: int) -> None:
        """Close the files, which must hold one frame per record."""
        self._writer.finish()
        assert self._writer.num_frames == num_records, (self._writer.num_frames, num_records)

    def close(self) -> None:
        """Close the files."""
        self._writer.close()

    def _check(
        self, frames: np.ndarray, following: np.ndarray, is_end: np.ndarray, first_row: int
    ) -> None:
        """Check that each row's successor is the following row's frame, but at ends."""
        # Between two calls the last successor is kept, as what the next first frame must be.
        axes = tuple(range(1, frames.ndim))
        differs = (frames[1:] != following[:-1]).any(axis=axes) & ~is_end[:-1]
        wrong = [first_row + int(row) for row in np.flatnonzero(differs)[:1]]
        if self._expected is not None and (frames[0] != self._expected).any():
            wrong = [first_row - 1]
        if wrong:
            raise SourceError(
                f"{self._id}: the compact layout keeps each frame once, but "
                f"{show_key(self.field.successor or ())} of row {wrong[0]} is not the "
                f"{show_key(self.field.column.key)} of the row after it. "
                "Install it with --layout ted."
            )
