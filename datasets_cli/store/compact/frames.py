"""Frames compressed one by one, so that any of them can be read without the others.

frames/observation.zst              each frame as a zstd frame of its own, one after the other
frames/observation.zst.offsets      int64 [S + 1]: frame s is bytes offsets[s]:offsets[s + 1]
frames/observation.zst.dictionary   frames that the others are compressed against, together one
                                    zstd frame; absent where there are too few to choose from
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
import zstandard

from datasets_cli.errors import DamagedDataset
from datasets_cli.store.compact.dictionary import for_zstd, read_dictionary
from datasets_cli.store.schema.mapping import map_file


class FrameReader:
    """Reads frames by the numbers of their records.

    Args:
        path: the ``.zst`` file.
        num_frames: frames S, one per record.
        shape: of one frame.

    Raises:
        DamagedDataset: here and in ``read``: what was compressed is not what comes out.
    """

    def __init__(self, path: Path, num_frames: int, shape: tuple[int, ...]) -> None:
        self._path = path
        self._shape = shape
        self._offsets = map_file(Path(f"{path}.offsets"), torch.int64, (num_frames + 1,))
        with path.open("rb") as file:
            self._blob = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        with self._damage_errors():
            self._dictionary = for_zstd(read_dictionary(Path(f"{path}.dictionary")))
        # A decompressor that two threads share gives wrong frames.
        self._local = threading.local()

    def read(self, index: torch.Tensor) -> torch.Tensor:
        """Return the frames ``index`` int64 or int32 ``[n]`` as uint8 ``[n, *shape]``."""
        if not len(index):  # the decoder divides by their number
            return torch.empty((0, *self._shape), dtype=torch.uint8)
        # zstandard takes first byte and size of each frame, as pairs of 8-byte integers.
        starts = self._offsets.index_select(0, index)
        sizes = self._offsets.index_select(0, index + 1) - starts
        segments = torch.stack((starts, sizes), dim=1).numpy().tobytes()
        source = zstandard.BufferWithSegments(cast(Any, self._blob), segments)
        with self._damage_errors():
            decoded = self._decompressor().multi_decompress_to_buffer(source, threads=0)
        # zstandard sizes its output buffers by the compressed size, so well compressed frames
        # come back in many of them.
        joined = bytearray().join(cast(Any, list(cast(Any, decoded))))
        return torch.frombuffer(joined, dtype=torch.uint8).view(len(index), *self._shape)

    @contextmanager
    def _damage_errors(self) -> Iterator[None]:
        try:
            yield
        except (zstandard.ZstdError, ValueError) as error:
            raise DamagedDataset(
                f"{self._path}: a frame cannot be decoded ({error}). The file is not what was "
                "written; rlds verify names every such file. Download the dataset again."
            ) from error

    def _decompressor(self) -> zstandard.ZstdDecompressor:
        found = getattr(self._local, "decompressor", None)
        if found is None:
            found = zstandard.ZstdDecompressor(dict_data=self._dictionary)
            self._local.decompressor = found
        assert isinstance(found, zstandard.ZstdDecompressor)
        return found
