"""Writes frames, compressed separately; see ``frames`` for the files.

Each run of consecutive records is written to a separate segment, in any order and by any number of
processes. The segments are then joined in the order of their records:

frames/observation.zst.part/000000000000.zst     the concatenated frames from record 0
frames/observation.zst.part/000000000000.ends    int64: the end of each frame in that file
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import zstandard

from datasets_cli.errors import SourceError, argument
from datasets_cli.schema.columns import Key, show_key
from datasets_cli.schema.frame_table import FrameRun
from datasets_cli.schema.trajectories import record_of
from datasets_cli.sources.disk import copy_bytes, disk_errors
from datasets_cli.store.layouts.dictionary import SAMPLED_FRAMES, for_zstd, make_dictionary
from datasets_cli.store.layouts.records import FrameField

LEVEL = 3
BUFFER_BYTES = 1 << 18
TED = '"ted"'  # spelled as in Python


class FrameWriter:
    """Compresses frames in the order of their records."""

    def __init__(self, path: Path, frame_bytes: int) -> None:
        self._path = path
        self._frame_bytes = frame_bytes
        self._pending: list[np.ndarray] = []
        self._segments: FrameSegments | None = None
        self.num_frames = 0

    def write(self, frames: np.ndarray) -> None:
        """Add frames uint8 ``[n, ...]``; the first frames wait for the choice of a dictionary."""
        frames = np.ascontiguousarray(frames).reshape(len(frames), self._frame_bytes)
        first, self.num_frames = self.num_frames, self.num_frames + len(frames)
        if self._segments is not None:
            self._segments.write(first, frames)
            return
        self._pending.append(frames.copy())
        if self.num_frames >= SAMPLED_FRAMES:
            self._begin()

    def finish(self) -> None:
        """Write the pending frames, and join the segments."""
        if self._segments is None:
            self._begin()
        self.close()
        join_segments(self._path, self.num_frames)

    def close(self) -> None:
        """Close the files; they are incomplete unless ``finish`` returned."""
        if self._segments is not None:
            self._segments.close()

    def _begin(self) -> None:
        frames = np.concatenate(self._pending or [np.zeros((0, self._frame_bytes), np.uint8)])
        self._pending.clear()
        dictionary = make_dictionary(self._path, frames)
        self._segments = FrameSegments(self._path, self._frame_bytes, dictionary)
        self._segments.write(0, frames)


class FrameSegments:
    """Compresses runs of frames into segments."""

    def __init__(self, path: Path, frame_bytes: int, dictionary: bytes) -> None:
        self._folder = Path(f"{path}.part")
        self._folder.mkdir(parents=True, exist_ok=True)
        self._frame_bytes = frame_bytes
        self._compressor = compressor(dictionary)
        self._files: tuple[BinaryIO, BinaryIO] | None = None
        self._next_record = -1
        self._end = 0

    def write(self, record: int, frames: np.ndarray) -> None:
        """Add frames uint8 ``[n, ...]`` of consecutive records beginning with ``record``."""
        if not len(frames):
            return
        frames = np.ascontiguousarray(frames).reshape(len(frames), self._frame_bytes)
        if self._files is None or record != self._next_record:
            self._files = self._begin(record)
        blob, ends = self._files
        # The segments of zstandard: the first byte and the size of each frame, as uint64 pairs.
        starts = np.arange(len(frames), dtype=np.uint64) * np.uint64(self._frame_bytes)
        pairs = np.stack([starts, np.full_like(starts, self._frame_bytes)], axis=1)
        source = zstandard.BufferWithSegments(frames.data.cast("B"), pairs.tobytes())
        compressed = list(cast(Any, self._compressor.multi_compress_to_buffer(source, threads=0)))
        blob.writelines(compressed)
        sizes = np.fromiter(map(len, compressed), np.int64, len(compressed))
        ends.write((self._end + np.cumsum(sizes)).data)
        self._end += int(sizes.sum())
        self._next_record = record + len(frames)

    def close(self) -> None:
        """Close the open segment."""
        for file in self._files or ():
            file.close()
        self._files = None

    def _begin(self, record: int) -> tuple[BinaryIO, BinaryIO]:
        self.close()
        self._end = 0
        blob, ends = segment_files(self._folder, record)
        # Not "x": the files may exist, from a killed worker.
        return blob.open("wb", buffering=BUFFER_BYTES), ends.open("wb")


def compressor(dictionary: bytes) -> zstandard.ZstdCompressor:
    """Return the compressor of frames with this dictionary."""
    return zstandard.ZstdCompressor(
        level=LEVEL,
        dict_data=for_zstd(dictionary),
        write_checksum=False,
        write_dict_id=False,
    )


def segment_files(folder: Path, record: int) -> tuple[Path, Path]:
    """Return the two files of the segment that begins with a record."""
    return folder / f"{record:012d}.zst", folder / f"{record:012d}.ends"


def join_segments(path: Path, num_frames: int) -> None:
    """Join segments to the ``.zst`` file and its offsets; the segments are deleted."""
    folder = Path(f"{path}.part")
    firsts = sorted(int(file.stem) for file in folder.glob("*.ends"))
    if firsts:
        segment_files(folder, firsts[0])[0].replace(path)  # usually the only one
    record = 0
    with JoinedFrames(path) as joined:
        for first in firsts:
            assert first == record, (path.name, first, record)
            segment, segment_ends = segment_files(folder, first)
            ends = np.fromfile(segment_ends, np.int64)
            joined.add(segment if record else None, ends)
            segment.unlink(missing_ok=True)
            record += len(ends)
    assert record == num_frames, (path.name, record, num_frames)
    shutil.rmtree(folder)


class JoinedFrames:
    """Appends segments to the ``.zst`` file and its offsets."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._end = 0

    def __enter__(self) -> JoinedFrames:
        with ExitStack() as stack:
            self._blob = stack.enter_context(self._path.open("ab"))
            self._offsets = stack.enter_context(Path(f"{self._path}.offsets").open("wb"))
            self._offsets.write(np.zeros(1, np.int64).data)
            self._files = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def add(self, segment: Path | None, ends: np.ndarray) -> None:
        """Add the frames of a segment with these ends; None if the file has the frames already."""
        size = int(ends[-1])
        if segment is not None:
            with segment.open("rb") as file:
                copy_bytes(file, self._blob, size)
        # Ends are relative to the segment, offsets to the joined file.
        self._offsets.write((ends + self._end).data)
        self._end += size


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
        """Close the files; ``write`` opens new ones."""
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
        """Add the frames of rows, and the final successor of each trajectory."""
        # rows: contain the frames `[n, *shape]`.
        # is_end: whether a row is the last of its trajectory, bool `[n]`.
        wrong = first_unchained(self.field, rows, is_end)
        # The first frame must equal the last successor of the previous call.
        if self._expected is not None and (rows[self.field.column.key][0] != self._expected).any():
            wrong = -1
        if wrong is not None:
            row = first_row + wrong
            raise SourceError(
                f"{self._id}: {not_chained(self.field, row)}",
                id=self._id,
                key=self.field.successor,
                row=row,
                advice=LAYOUT_ADVICE,
            )
        if self.field.successor is not None:
            self._expected = None if is_end[-1] else rows[self.field.successor][-1].copy()
        self._writer.write(frames_of_records(self.field, rows, is_end))

    def finish(self, num_records: int) -> None:
        """Close the files, which must contain one frame for each record."""
        self._writer.finish()
        assert self._writer.num_frames == num_records, (self._writer.num_frames, num_records)

    def close(self) -> None:
        """Close the files."""
        self._writer.close()


def frames_of_records(
    field: FrameField, rows: Mapping[Key, np.ndarray], is_end: np.ndarray
) -> np.ndarray:
    """Return the frames of rows ``[n, *shape]``, with the final successor of each trajectory."""
    # is_end: whether a row is the last of its trajectory, bool `[n]`.
    frames, ends = rows[field.column.key], np.flatnonzero(is_end)
    if field.successor is None:
        last = np.zeros((len(ends), *frames.shape[1:]), np.uint8)
    else:
        last = rows[field.successor][ends]
    # The frames o0 o1 o2 of a trajectory and o3 of the next one become o0 o1 o2 o2' o3.
    joined: np.ndarray = np.insert(frames, ends + 1, last, axis=0)
    return joined


def first_unchained(
    field: FrameField, rows: Mapping[Key, np.ndarray], is_end: np.ndarray
) -> int | None:
    """Return the first row whose successor is not the next frame, except at trajectory ends."""
    if field.successor is None:
        return None
    frames, following = rows[field.column.key], rows[field.successor]
    axes = tuple(range(1, frames.ndim))
    wrong = np.flatnonzero((frames[1:] != following[:-1]).any(axis=axes) & ~is_end[:-1])
    return int(wrong[0]) if len(wrong) else None


LAYOUT_ADVICE = f"Use {argument('layout', TED)}."


def not_chained(field: FrameField, row: int) -> str:
    """Return the message for a row whose successor is not the next frame."""
    return (
        "the compact layout stores each frame once, but "
        f"{show_key(field.successor or ())} of row {row} is not the "
        f"{show_key(field.column.key)} of the next row."
    )
