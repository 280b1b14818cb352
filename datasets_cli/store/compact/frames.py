"""Frames compressed one by one, so that any of them can be read without the others.

frames/observation.zst              each frame as a zstd frame of its own, one after the other
frames/observation.zst.offsets      int64 [S + 1]: frame s is bytes offsets[s]:offsets[s + 1]
frames/observation.zst.dictionary   frames that the others are compressed against, together one
                                    zstd frame; absent where there are too few to choose from
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
import zstandard

from datasets_cli.damage import damaged
from datasets_cli.errors import DamagedDataset
from datasets_cli.formats.limits import beyond, limit
from datasets_cli.store.compact.dictionary import for_zstd, read_dictionary
from datasets_cli.store.compact.frame_decoder import FrameDecoder
from datasets_cli.store.schema.mapping import map_bytes, map_file

# A zstd block says its size in 3 bytes, has one byte or more, and decodes to at most 128 KiB.
BLOCK_BYTES = 128 << 10
LEAST_BLOCK_BYTES = 4

_ONE = np.uint64(1)


class FrameReader:
    """Reads frames by the numbers of their records."""

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
        self._decoder = FrameDecoder(self._blob, self._frame_bytes, for_zstd(content))

    def read(self, index: torch.Tensor) -> torch.Tensor:
        """Return the frames ``index`` int64 or int32 ``[n]`` as uint8 ``[n, *shape]``."""
        if not len(index):
            return torch.empty((0, *self._shape), dtype=torch.uint8)
        starts = self._offsets.index_select(0, index).numpy()
        ends = self._offsets.index_select(0, index + 1).numpy()
        if not self._is_inside(starts, ends - starts):
            raise self._damaged_offsets(index)
        try:
            frames = self._decoder.decode(starts, ends)
        except (zstandard.ZstdError, ValueError) as error:
            raise self._damaged_frame(index, error) from error
        return frames.view(len(index), *self._shape)

    def _is_inside(self, starts: np.ndarray, sizes: np.ndarray) -> bool:
        """Return whether frames are inside the blob, one byte or more each, and not too large."""
        # As unsigned integers, a negative start or size is a huge one. Each sum is of a start and a
        # size that are known to be small, so it does not overflow, but where one of them is not.
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
            )
        least = num_frames * max(1, self._frame_bytes // BLOCK_BYTES * LEAST_BLOCK_BYTES)
        if len(self._blob) < least:
            raise damaged(
                self._path,
                f"{self._path}: expected {least} bytes or more for {num_frames} frames of "
                f"{self._frame_bytes} bytes, found {len(self._blob)}",
            )

    def _damaged_offsets(self, index: torch.Tensor) -> DamagedDataset:
        """Return the error of the first frame that is not inside the blob."""
        for frame in index.sort().values.tolist():
            begin, end = self._offsets[frame : frame + 2]
            if not self._is_inside(begin.reshape(1).numpy(), (end - begin).reshape(1).numpy()):
                return damaged(
                    self._path,
                    f"{self._path}.offsets: frame {frame} is from byte {int(begin)} to {int(end)}, "
                    f"expected 1 to {self._most_bytes} bytes of the {len(self._blob)} of "
                    f"{self._path.name}",
                )
        raise AssertionError("every frame is inside the blob")

    def _damaged_frame(self, index: torch.Tensor, error: Exception) -> DamagedDataset:
        """Return the error of the first frame that cannot be decoded."""
        shown = "a frame"
        for frame in index.sort().values.tolist():
            begin, end = self._offsets[frame : frame + 2].view(2, 1).numpy()
            try:
                self._decoder.decode(begin, end)
            except (zstandard.ZstdError, ValueError) as found:
                shown, error = f"frame {frame}", found
                break
        return damaged(
            self._path,
            f"{self._path}: {shown} cannot be decoded ({error}). The file is not what was "
            "written; rlds verify names every such file",
        )
