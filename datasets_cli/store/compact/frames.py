"""Frames compressed one by one, so that any of them can be read without the others.

frames/observation.zst              each frame as a zstd frame of its own, one after the other
frames/observation.zst.offsets      int64 [S + 1]: frame s is bytes offsets[s]:offsets[s + 1]
frames/observation.zst.dictionary   frames that the others are compressed against, together one
                                    zstd frame; absent where there are too few to choose from
"""

from __future__ import annotations

import math
import threading
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import zstandard

from datasets_cli.errors import DamagedDataset
from datasets_cli.formats.limits import beyond, limit
from datasets_cli.reinstall import reinstall_advice_at
from datasets_cli.store.compact.dictionary import for_zstd, read_dictionary
from datasets_cli.store.schema.mapping import map_bytes, map_file

# A zstd block says its size in 3 bytes, has one byte or more, and decodes to at most 128 KiB.
BLOCK_BYTES = 128 << 10
LEAST_BLOCK_BYTES = 4

_ONE = np.uint64(1)


class FrameReader:
    """Reads frames by the numbers of their records.

    Args:
        path: the ``.zst`` file.
        num_frames: frames S, one per record.
        shape: of one frame.
        has_dictionary: whether the frames were compressed against a dictionary.

    Raises:
        DamagedDataset: here and in ``read``: what was compressed is not what comes out.
    """

    def __init__(
        self, path: Path | str, num_frames: int, shape: tuple[int, ...], *, has_dictionary: bool
    ) -> None:
        self._path = Path(path)
        self._shape = shape
        self._frame_bytes = math.prod(shape)
        if self._frame_bytes > limit("row_bytes"):  # zstd packs 30,000 bytes into one
            raise DamagedDataset(beyond("row_bytes", self._frame_bytes, f"{path}: a frame"))
        # Frames are never so much larger compressed; zstd's own bound is n + n / 256 + 64.
        self._most_bytes = 2 * self._frame_bytes + 64
        self._offsets = map_file(f"{path}.offsets", torch.int64, (num_frames + 1,))
        self._blob = map_bytes(path)
        self._check_whole(num_frames)
        content = read_dictionary(f"{path}.dictionary") if has_dictionary else b""
        self._dictionary = for_zstd(content)
        # A decompressor that two threads share gives wrong frames.
        self._local = threading.local()

    def read(self, index: torch.Tensor) -> torch.Tensor:
        """Return the frames ``index`` int64 or int32 ``[n]`` as uint8 ``[n, *shape]``.

        Raises:
            IndexError: there is no such frame.
        """
        if not len(index):  # the decoder divides by their number
            return torch.empty((0, *self._shape), dtype=torch.uint8)
        starts = self._offsets.index_select(0, index)
        sizes = self._offsets.index_select(0, index + 1) - starts
        if not self._is_inside(starts.numpy(), sizes.numpy()):
            raise self._damaged_offsets(index)
        try:
            decoded = self._decode(starts, sizes)
        except (zstandard.ZstdError, ValueError) as error:
            raise self._damaged_frame(index, error) from error
        # zstandard sizes its output buffers by the compressed size, so well compressed frames
        # come back in many of them.
        joined = bytearray().join(cast(Any, list(cast(Any, decoded))))
        return torch.frombuffer(joined, dtype=torch.uint8).view(len(index), *self._shape)

    def _decode(
        self, starts: torch.Tensor, sizes: torch.Tensor
    ) -> zstandard.BufferWithSegmentsCollection:
        """Return some decoded frames, whose first bytes and sizes are inside the blob.

        Raises:
            zstandard.ZstdError: one does not decode to exactly the bytes of a frame.
        """
        # zstandard takes first byte and size of each frame, as pairs of 8-byte integers.
        segments = torch.stack((starts, sizes), dim=1).numpy().tobytes()
        source = zstandard.BufferWithSegments(cast(Any, self._blob), segments)
        # Without these sizes it believes what each frame's header says, and asks for that memory.
        expected = np.full(len(starts), self._frame_bytes, np.uint64)
        return self._decompressor().multi_decompress_to_buffer(
            source, decompressed_sizes=cast(Any, expected), threads=0
        )

    def _is_inside(self, starts: np.ndarray, sizes: np.ndarray) -> bool:
        """Tell whether frames are inside the blob, one byte or more each, and not too large.

        As unsigned integers, a negative start or size is a huge one. Each sum is of a start and a
        size that are known to be small, so it does not overflow, but where one of them is not.
        """
        first, size = starts.view(np.uint64), sizes.view(np.uint64)
        return bool(
            first.max() < len(self._blob)
            and (size - _ONE).max() < self._most_bytes
            and (first + size).max() <= len(self._blob)
        )

    def _check_whole(self, num_frames: int) -> None:
        """Check that the frames fill the blob from its first byte to its last.

        Raises:
            DamagedDataset: they do not, or the blob is too small for frames of this size.
        """
        first, last = self._offsets[::num_frames].tolist()  # of num_frames + 1
        if (first, last) != (0, len(self._blob)):
            raise DamagedDataset(
                f"{self._path}.offsets: expected frames from byte 0 to {len(self._blob)} of "
                f"{self._path.name}, found {first} to {last}. {reinstall_advice_at(self._path)}"
            )
        least = num_frames * max(1, self._frame_bytes // BLOCK_BYTES * LEAST_BLOCK_BYTES)
        if len(self._blob) < least:
            raise DamagedDataset(
                f"{self._path}: expected {least} bytes or more for {num_frames} frames of "
                f"{self._frame_bytes} bytes, found {len(self._blob)}. "
                f"{reinstall_advice_at(self._path)}"
            )

    def _damaged_offsets(self, index: torch.Tensor) -> DamagedDataset:
        """Return the error of the first frame that is not inside the blob."""
        for frame in index.sort().values.tolist():
            begin, end = self._offsets[frame : frame + 2]
            if not self._is_inside(begin.reshape(1).numpy(), (end - begin).reshape(1).numpy()):
                return DamagedDataset(
                    f"{self._path}.offsets: frame {frame} is from byte {int(begin)} to {int(end)}, "
                    f"expected 1 to {self._most_bytes} bytes of the {len(self._blob)} of "
                    f"{self._path.name}. {reinstall_advice_at(self._path)}"
                )
        raise AssertionError("every frame is inside the blob")

    def _damaged_frame(self, index: torch.Tensor, error: Exception) -> DamagedDataset:
        """Return the error of the first frame that cannot be decoded."""
        shown = "a frame"
        for frame in index.sort().values.tolist():
            begin, end = self._offsets[frame : frame + 1], self._offsets[frame + 1 : frame + 2]
            try:
                self._decode(begin, end - begin)
            except (zstandard.ZstdError, ValueError) as found:
                shown, error = f"frame {frame}", found
                break
        return DamagedDataset(
            f"{self._path}: {shown} cannot be decoded ({error}). The file is not what was "
            f"written; rlds verify names every such file. {reinstall_advice_at(self._path)}"
        )

    def _decompressor(self) -> zstandard.ZstdDecompressor:
        found = getattr(self._local, "decompressor", None)
        if found is None:
            found = zstandard.ZstdDecompressor(dict_data=self._dictionary)
            self._local.decompressor = found
        assert isinstance(found, zstandard.ZstdDecompressor)
        return found
