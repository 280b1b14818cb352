"""Frames that are stored apart from the rows: packed into blocks when written, unpacked when read.

The frames of a game share long runs of bytes with a few of them. On frames of ALE, compared with a
dictionary of 16 KiB that zstd trained: 112 bytes per frame instead of 152, and 0.8 of the decoding
time, because long matches are copied in one piece.

frames/observation.zst              concatenated zstd frames, one for each frame
frames/observation.zst.offsets      int64 [S + 1]: frame s is bytes offsets[s]:offsets[s + 1]
frames/observation.zst.dictionary   frames that serve as dictionary, as one zstd frame; missing if
                                    there were too few frames

Each run of consecutive records is written to a separate segment, in any order and by any number of
processes. The segments are then joined in the order of their records:

frames/observation.zst.part/000000000000.zst     the concatenated frames from record 0
frames/observation.zst.part/000000000000.ends    int64: the end of each frame in that file
"""

from __future__ import annotations

import math
import os
import shutil
import threading
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import zstandard

from datasets_cli.core.system_errors import damaged
from datasets_cli.errors import DamagedDataset, OutOfRange, SourceError, argument
from datasets_cli.formats.limits import check_limit
from datasets_cli.schema.columns import Key, show_key
from datasets_cli.schema.frame_table import FrameRun
from datasets_cli.schema.mapped_bytes import map_array, map_bytes
from datasets_cli.schema.trajectories import record_of
from datasets_cli.sources.disk import copy_bytes, disk_errors
from datasets_cli.sources.regular_file import open_regular
from datasets_cli.store.layouts.records import FrameField

DICTIONARY_BYTES = 128 << 10
SAMPLED_FRAMES = 1024
FRAMES_PER_DICTIONARY_FRAME = 8


def choose_dictionary(frames: np.ndarray) -> bytes:
    """Return evenly spaced frames among the first ones; empty for too few or too large frames."""
    # frames: the first frames of a column, uint8 `[n, ...]`; at most `SAMPLED_FRAMES` are used.
    frames = frames[:SAMPLED_FRAMES]
    room = DICTIONARY_BYTES // math.prod(frames.shape[1:])
    count = min(room, len(frames) // FRAMES_PER_DICTIONARY_FRAME)
    # Every n/count-th frame, beginning with the first.
    chosen: bytes = frames[np.arange(count) * len(frames) // max(1, count)].tobytes()
    return chosen


def make_dictionary(path: Path, frames: np.ndarray) -> bytes:
    """Choose a dictionary from the first frames uint8 ``[n, ...]``, and write it compressed."""
    # path: the file of the compressed frames; `.dictionary` is appended.
    path.parent.mkdir(parents=True, exist_ok=True)
    if content := choose_dictionary(frames):
        Path(f"{path}.dictionary").write_bytes(zstandard.compress(content))
    return content


def read_dictionary(path: Path | str) -> bytes:
    """Return the dictionary that ``make_dictionary`` wrote."""
    with open_regular(path) as file:
        is_small = os.fstat(file.fileno()).st_size <= 2 * DICTIONARY_BYTES
        content = file.read() if is_small else b""  # zstd never doubles a size
    try:
        # Check the size in the file before that much memory is allocated.
        if not 0 < (size := zstandard.frame_content_size(content)) <= DICTIONARY_BYTES:
            raise zstandard.ZstdError(f"expected 1 to {DICTIONARY_BYTES} bytes, found {size}")
        return zstandard.ZstdDecompressor().decompress(content, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise damaged(
            path,
            f"{path}: the dictionary of the frames cannot be decoded ({error}). The file has "
            "changed since it was written; rlds verify lists every such file",
            found=str(error),
        ) from error


def for_zstd(content: bytes) -> zstandard.ZstdCompressionDict | None:
    """Return the frames as a raw dictionary of zstd; None for an empty one."""
    if not content:
        return None
    return zstandard.ZstdCompressionDict(content, dict_type=zstandard.DICT_TYPE_RAWCONTENT)


# A zstd block has 3 bytes for its size, one or more further bytes, and decodes to 128 KiB at most.
BLOCK_BYTES = 128 << 10
LEAST_BLOCK_BYTES = 4
MOST_HEADER_BYTES = 18  # the bound of zstd

_ONE = np.uint64(1)


class FrameDecoder:
    """Decodes frames by their offsets in a file."""

    # They are decoded as one stream, directly into the array. A stream does not report the ends of
    # frames: frames of 7,055 and 7,057 bytes would pass as two of 7,056. So each must begin with
    # the header of the first frame, which contains the size, and the stream must end with the last
    # frame. Otherwise frames are decoded one by one.

    def __init__(
        self, blob: memoryview, frame_bytes: int, dictionary: zstandard.ZstdCompressionDict | None
    ) -> None:
        self._blob = blob
        self._frame_bytes = frame_bytes
        self._dictionary = dictionary
        # Two threads that share a decompressor get wrong frames.
        self._local = threading.local()
        self._header = _header_of(blob, frame_bytes)
        size = len(self._header)
        # Element b is the bytes of a header at position b; elements overlap.
        self._headers = np.ndarray((len(blob) - size + 1,), f"V{size}", blob, strides=(1,))

    def decode(self, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Return decoded frames uint8 ``[n, frame_bytes]``, in new memory."""
        # starts: the first byte of each frame, int64 `[n]`, n 1 or more; inside the file.
        # ends: the byte after its last byte, int64 `[n]`.
        frames = np.empty((len(starts), self._frame_bytes), np.uint8)
        if self._have_headers(starts, ends) and self._fills(frames, starts, ends):
            return frames
        return self._one_by_one(starts, ends)

    def _have_headers(self, starts: np.ndarray, ends: np.ndarray) -> bool:
        """Return whether every frame begins with the header of the expected size."""
        size = len(self._header)
        if not size or (ends - starts).min() < size:
            return False
        return bool(self._headers[starts].tobytes() == self._header * len(starts))

    def _fills(self, frames: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> bool:
        """Decode frames as one stream; return whether it filled them exactly."""
        # Consecutive frames of the file are one piece.
        is_first, is_last = np.ones((2, len(starts)), np.bool_)
        np.not_equal(starts[1:], ends[:-1], out=is_first[1:])
        is_last[:-1] = is_first[1:]
        pieces = zip(starts[is_first].tolist(), ends[is_last].tolist(), strict=True)
        source = b"".join([self._blob[start:end] for start, end in pieces])
        stream = self._decompressor().stream_reader(source, read_across_frames=True)
        try:
            return stream.readinto(cast(Any, frames)) == frames.nbytes and not stream.read(1)
        except zstandard.ZstdError:
            return False  # `_one_by_one` finds the wrong frame

    def _one_by_one(self, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        # zstandard expects the first byte and the size of each frame, as pairs of 8-byte integers.
        segments = np.stack((starts, ends - starts), axis=1).tobytes()
        source = zstandard.BufferWithSegments(cast(Any, self._blob), segments)
        # Without these sizes it would allocate the size in the header of each frame.
        expected = np.full(len(starts), self._frame_bytes, np.uint64)
        decoded = self._decompressor().multi_decompress_to_buffer(
            source, decompressed_sizes=cast(Any, expected), threads=0
        )
        # The result is several buffers, sized by the compressed frames.
        joined = bytearray().join(cast(Any, list(cast(Any, decoded))))
        return np.frombuffer(joined, np.uint8).reshape(len(starts), self._frame_bytes)

    def _decompressor(self) -> zstandard.ZstdDecompressor:
        decompressor = getattr(self._local, "decompressor", None)
        if decompressor is None:
            decompressor = zstandard.ZstdDecompressor(dict_data=self._dictionary)
            self._local.decompressor = decompressor
        assert isinstance(decompressor, zstandard.ZstdDecompressor)
        return decompressor


def _header_of(blob: memoryview, frame_bytes: int) -> bytes:
    """Return the header of the first frame; empty if its size is not ``frame_bytes``."""
    start = bytes(blob[:MOST_HEADER_BYTES])
    try:
        if zstandard.get_frame_parameters(start).content_size != frame_bytes:
            return b""
        return start[: zstandard.frame_header_size(start)]
    except zstandard.ZstdError:
        return b""


class FrameReader:
    """Reads frames by the numbers of their records."""

    def __init__(
        self, path: Path | str, num_frames: int, shape: tuple[int, ...], *, has_dictionary: bool
    ) -> None:
        self._path = Path(path)
        self._shape = shape
        self._frame_bytes = math.prod(shape)
        try:
            check_limit("row_bytes", self._frame_bytes, f"{path}: a frame")
        except SourceError as error:  # zstd compresses 30,000 bytes into one
            error.path = path
            raise error.as_kind(DamagedDataset) from error
        # Above the bound of zstd for compressed frames, n + n / 256 + 64.
        self._most_bytes = 2 * self._frame_bytes + 64
        self._offsets = map_array(f"{path}.offsets", "<i8", (num_frames + 1,))
        self._blob = map_bytes(path)
        self._check_whole(num_frames)
        content = read_dictionary(f"{path}.dictionary") if has_dictionary else b""
        self._decoder = FrameDecoder(self._blob, self._frame_bytes, for_zstd(content))

    @classmethod
    def of(
        cls, field: FrameField, folder: Path, listed: Collection[str], num_frames: int
    ) -> FrameReader:
        """Return the reader of a column's frames in a dataset's folder."""
        has_dictionary, shape = field.dictionary in listed, field.column.shape
        return cls(folder / field.filename, num_frames, shape, has_dictionary=has_dictionary)

    def read(self, index: np.ndarray) -> np.ndarray:
        """Return the frames ``index`` int64 or int32 ``[n]`` as uint8 ``[n, *shape]``."""
        if not len(index):
            return np.empty((0, *self._shape), np.uint8)
        if index.min() < 0:  # an index from the end for numpy
            raise OutOfRange(
                f"Frame numbers start at 0; found {index.min()}.", found=int(index.min())
            )
        starts, ends = self._offsets[index], self._offsets[index + 1]
        if not self._is_inside(starts, ends - starts):
            raise self._damaged_offsets(index)
        try:
            frames = self._decoder.decode(starts, ends)
        except (zstandard.ZstdError, ValueError) as error:
            raise self._damaged_frame(index, error) from error
        return frames.reshape(len(index), *self._shape)

    def _is_inside(self, starts: np.ndarray, sizes: np.ndarray) -> bool:
        """Return whether frames are inside the blob, not empty, and not too large."""
        # As unsigned integers, negative starts and sizes are huge. A sum can only overflow for a
        # start or a size that an earlier condition has rejected.
        first, size = starts.view(np.uint64), sizes.view(np.uint64)
        return bool(
            first.max() < len(self._blob)
            and (size - _ONE).max() < self._most_bytes
            and (first + size).max() <= len(self._blob)
        )

    def _check_whole(self, num_frames: int) -> None:
        """Check that the frames fill the blob from its first byte to its last."""
        first, last = self._offsets[::num_frames].tolist()  # of num_frames + 1
        if (first, last) != (0, len(self._blob)):
            raise damaged(
                self._path,
                f"{self._path}.offsets: expected frames from byte 0 to {len(self._blob)} of "
                f"{self._path.name}, found {first} to {last}",
                expected=f"0 to {len(self._blob)}",
                found=f"{first} to {last}",
            )
        least = num_frames * max(1, self._frame_bytes // BLOCK_BYTES * LEAST_BLOCK_BYTES)
        if len(self._blob) < least:
            raise damaged(
                self._path,
                f"{self._path}: expected {least} bytes or more for {num_frames} frames of "
                f"{self._frame_bytes} bytes, found {len(self._blob)}",
                expected=least,
                found=len(self._blob),
            )

    def _damaged_offsets(self, index: np.ndarray) -> DamagedDataset:
        for frame in np.sort(index).tolist():
            begin, end = self._offsets[frame : frame + 2].reshape(2, 1)
            if not self._is_inside(begin, end - begin):
                return damaged(
                    self._path,
                    f"{self._path}.offsets: frame {frame} is from byte {begin[0]} to {end[0]}, "
                    f"expected 1 to {self._most_bytes} bytes of the {len(self._blob)} of "
                    f"{self._path.name}",
                    expected=f"1 to {self._most_bytes} bytes",
                    found=f"byte {begin[0]} to {end[0]}",
                )
        raise AssertionError("a frame is outside the blob")

    def _damaged_frame(self, index: np.ndarray, error: Exception) -> DamagedDataset:
        name = "a frame"
        for frame in np.sort(index).tolist():
            begin, end = self._offsets[frame : frame + 2].reshape(2, 1)
            try:
                self._decoder.decode(begin, end)
            except (zstandard.ZstdError, ValueError) as own_error:
                name, error = f"frame {frame}", own_error
                break
        return damaged(
            self._path,
            f"{self._path}: {name} cannot be decoded ({error}). The file has changed since it "
            "was written; rlds verify lists every such file",
            found=str(error),
        )


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
        # No dictionary has room for larger frames, whose wait would fill the memory.
        if self.num_frames >= SAMPLED_FRAMES or self._frame_bytes > DICTIONARY_BYTES:
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
