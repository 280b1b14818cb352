"""Frames: pictures compressed one by one, so that any of them can be read without the others.

frames/observation.zst              one zstd frame a picture, one behind the other
frames/observation.zst.offsets      int64 [S + 1]: picture s is bytes offsets[s]:offsets[s + 1]
frames/observation.zst.dictionary   what all pictures have in common; absent for a few of them
"""

from __future__ import annotations

import mmap
import threading
from pathlib import Path
from typing import Any, cast

import torch
import zstandard

from datasets_cli.store.mapping import map_file


class FrameReader:
    """Reads pictures by the numbers of their records.

    Args:
        path: the ``.zst`` file.
        num_frames: pictures S.
        shape: of one picture.
    """

    def __init__(self, path: Path, num_frames: int, shape: tuple[int, ...]) -> None:
        self._shape = shape
        self._offsets = map_file(Path(f"{path}.offsets"), torch.int64, (num_frames + 1,))
        with path.open("rb") as file:
            self._blob = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        dictionary = Path(f"{path}.dictionary")
        self._dictionary = dictionary.read_bytes() if dictionary.exists() else None
        # A decompressor that two threads share gives wrong pictures.
        self._local = threading.local()

    def read(self, index: torch.Tensor) -> torch.Tensor:
        """Return the pictures ``index`` int64 or int32 ``[n]`` as uint8 ``[n, *shape]``."""
        if not len(index):  # the decoder divides by their number
            return torch.empty((0, *self._shape), dtype=torch.uint8)
        starts = self._offsets.index_select(0, index)
        sizes = self._offsets.index_select(0, index + 1) - starts
        segments = torch.stack((starts, sizes), dim=1).numpy().tobytes()
        source = zstandard.BufferWithSegments(cast(Any, self._blob), segments)
        decoded = self._decompressor().multi_decompress_to_buffer(source, threads=0)
        # zstandard sizes its output buffers by the compressed size, so well compressed pictures
        # come back in many of them.
        joined = bytearray().join(cast(Any, list(cast(Any, decoded))))
        return torch.frombuffer(joined, dtype=torch.uint8).view(len(index), *self._shape)

    def _decompressor(self) -> zstandard.ZstdDecompressor:
        found = getattr(self._local, "decompressor", None)
        if found is None:
            dictionary = zstandard.ZstdCompressionDict(self._dictionary or b"")
            found = zstandard.ZstdDecompressor(dict_data=dictionary if self._dictionary else None)
            self._local.decompressor = found
        assert isinstance(found, zstandard.ZstdDecompressor)
        return found
