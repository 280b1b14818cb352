"""The frames of a column and its successor in the compact layout, each frame once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from datasets_cli.errors import SourceError
from datasets_cli.schema.columns import Key, show_key
from datasets_cli.schema.frame_table import FrameRun
from datasets_cli.schema.trajectories import record_of
from datasets_cli.sources.disk import disk_errors
from datasets_cli.store.compact.frame_writer import FrameSegments, FrameWriter
from datasets_cli.store.compact.records import FrameField


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


class SharedFrames:
    """The frames of one column and its successor, each frame once."""

    def __init__(self, path: Path, id: str, field: FrameField) -> None:
        self._id = id
        self.path = path
        self.field = field
        self._writer = FrameWriter(path, field.column.row_bytes)
        self._expected: np.ndarray | None = None

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
