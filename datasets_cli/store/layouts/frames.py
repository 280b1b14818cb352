"""Reads frames that are compressed separately, so each can be read without the rest.

frames/observation.zst              concatenated zstd frames, one for each frame
frames/observation.zst.offsets      int64 [S + 1]: frame s is bytes offsets[s]:offsets[s + 1]
frames/observation.zst.dictionary   frames that serve as dictionary, as one zstd frame; missing if
                                    there were too few frames
"""

from __future__ import annotations

import math
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Any, cast

import numpy as np
import zstandard

from datasets_cli.core.system_errors import damaged
from datasets_cli.errors import DamagedDataset, OutOfRange, SourceError
from datasets_cli.formats.limits import check_limit
from datasets_cli.schema.mapped_bytes import map_array, map_bytes
from datasets_cli.store.layouts.dictionary import for_zstd, read_dictionary
from datasets_cli.store.layouts.records import FrameField

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
        """Return the error of the first frame that is not inside the blob."""
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
        """Return the error of the first frame that cannot be decoded."""
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
