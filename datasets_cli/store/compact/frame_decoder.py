"""Decoding frames that are compressed one by one, any of them, straight into one tensor."""

from __future__ import annotations

import mmap
import threading
from typing import Any, cast

import numpy as np
import torch
import zstandard

MOST_HEADER_BYTES = 18  # zstd's own bound


class FrameDecoder:
    """Decodes frames by where they are in a file."""

    # They are decoded as one stream, straight into the tensor. A stream does not say where a frame
    # ends: frames of 7,055 and 7,057 bytes are as good to it as two of 7,056. So each must begin
    # with the header of the file's first frame, which says the size, and nothing may be left over.
    # Otherwise they are decoded one by one.

    def __init__(
        self, blob: mmap.mmap, frame_bytes: int, dictionary: zstandard.ZstdCompressionDict | None
    ) -> None:
        self._blob = blob
        self._frame_bytes = frame_bytes
        self._dictionary = dictionary
        # A decompressor that two threads share gives wrong frames.
        self._local = threading.local()
        self._header = _header_of(blob, frame_bytes)
        size = len(self._header)
        # Element b is the bytes from b on that a header takes; elements overlap.
        self._headers = np.ndarray((len(blob) - size + 1,), f"V{size}", blob, strides=(1,))

    def decode(self, starts: np.ndarray, ends: np.ndarray) -> torch.Tensor:
        """Return decoded frames uint8 ``[n, frame_bytes]``, in memory of their own."""
        # starts: the first byte of each frame, int64 `[n]`, n from 1 on; it is in the file.
        # ends: the byte after its last one, int64 `[n]`.
        frames = torch.empty((len(starts), self._frame_bytes), dtype=torch.uint8)
        if self._have_headers(starts, ends) and self._fills(frames, starts, ends):
            return frames
        return self._one_by_one(starts, ends)

    def _have_headers(self, starts: np.ndarray, ends: np.ndarray) -> bool:
        """Return whether every frame begins with a header that says its right size."""
        size = len(self._header)
        if not size or (ends - starts).min() < size:
            return False
        return bool(self._headers[starts].tobytes() == self._header * len(starts))

    def _fills(self, frames: torch.Tensor, starts: np.ndarray, ends: np.ndarray) -> bool:
        """Decode frames as one stream; tell whether it filled them and had nothing more."""
        # Frames that follow one another in the file are one piece of it.
        is_first, is_last = np.ones((2, len(starts)), np.bool_)
        np.not_equal(starts[1:], ends[:-1], out=is_first[1:])
        is_last[:-1] = is_first[1:]
        pieces = zip(starts[is_first].tolist(), ends[is_last].tolist(), strict=True)
        source = b"".join([self._blob[start:end] for start, end in pieces])
        stream = self._decompressor().stream_reader(source, read_across_frames=True)
        try:
            return stream.readinto(cast(Any, frames.numpy())) == frames.nbytes and not stream.read(
                1
            )
        except zstandard.ZstdError:
            return False  # which frame it was is found one by one

    def _one_by_one(self, starts: np.ndarray, ends: np.ndarray) -> torch.Tensor:
        # zstandard takes first byte and size of each frame, as pairs of 8-byte integers.
        segments = np.stack((starts, ends - starts), axis=1).tobytes()
        source = zstandard.BufferWithSegments(cast(Any, self._blob), segments)
        # Without these sizes it believes what each frame's header says, and asks for that memory.
        expected = np.full(len(starts), self._frame_bytes, np.uint64)
        decoded = self._decompressor().multi_decompress_to_buffer(
            source, decompressed_sizes=cast(Any, expected), threads=0
        )
        # They come in several buffers, sized by the compressed frames.
        joined = bytearray().join(cast(Any, list(cast(Any, decoded))))
        return torch.frombuffer(joined, dtype=torch.uint8).view(len(starts), self._frame_bytes)

    def _decompressor(self) -> zstandard.ZstdDecompressor:
        found = getattr(self._local, "decompressor", None)
        if found is None:
            found = zstandard.ZstdDecompressor(dict_data=self._dictionary)
            self._local.decompressor = found
        assert isinstance(found, zstandard.ZstdDecompressor)
        return found


def _header_of(blob: mmap.mmap, frame_bytes: int) -> bytes:
    """Return the header of the first frame; none where it does not say this size."""
    start = blob[:MOST_HEADER_BYTES]
    try:
        if zstandard.get_frame_parameters(start).content_size != frame_bytes:
            return b""
        return start[: zstandard.frame_header_size(start)]
    except zstandard.ZstdError:
        return b""
