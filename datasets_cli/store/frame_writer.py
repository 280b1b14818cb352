"""Writing frames: pictures compressed one by one; see ``frames`` for the files."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import numpy as np
import zstandard

LEVEL = 3
DICTIONARY_BYTES = 16 << 10
# A dictionary is trained on the first pictures; fewer than this do not pay for it.
TRAINING_FRAMES = 1024
FEWEST_TRAINING_FRAMES = 64


class FrameWriter:
    """Compresses pictures in the order of their records.

    Args:
        path: the ``.zst`` file; its folder is created.
        frame_bytes: size of a picture in bytes.
    """

    def __init__(self, path: Path, frame_bytes: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._frame_bytes = frame_bytes
        self._waiting: list[np.ndarray] = []
        self._num_waiting = 0
        self._compressor: zstandard.ZstdCompressor | None = None
        self._end = 0
        self.num_frames = 0
        self._blob: BinaryIO = path.open("wb")
        self._offsets: BinaryIO = Path(f"{path}.offsets").open("wb")  # noqa: SIM115 (close())
        self._offsets.write(np.zeros(1, np.int64).data)

    def write(self, frames: np.ndarray) -> None:
        """Add pictures uint8 ``[n, ...]``; the first ones wait until a dictionary is trained."""
        frames = np.ascontiguousarray(frames).reshape(len(frames), self._frame_bytes)
        self.num_frames += len(frames)
        if self._compressor is None:
            self._waiting.append(frames.copy())
            self._num_waiting += len(frames)
            if self._num_waiting >= TRAINING_FRAMES:
                self._train()
            return
        self._compress(frames)

    def close(self) -> None:
        """Write what waits and close the files."""
        if self._compressor is None and self._num_waiting:
            self._train()
        self._blob.close()
        self._offsets.close()

    def _train(self) -> None:
        frames = np.concatenate(self._waiting)
        self._waiting.clear()
        dictionary = _dictionary(frames[:TRAINING_FRAMES])
        if dictionary is not None:
            Path(f"{self._path}.dictionary").write_bytes(dictionary.as_bytes())
        self._compressor = zstandard.ZstdCompressor(
            level=LEVEL, dict_data=dictionary, write_checksum=False, write_dict_id=False
        )
        self._compress(frames)

    def _compress(self, frames: np.ndarray) -> None:
        assert self._compressor is not None
        if not len(frames):
            return
        starts = np.arange(len(frames), dtype=np.uint64) * np.uint64(self._frame_bytes)
        segments = np.stack([starts, np.full_like(starts, self._frame_bytes)], axis=1)
        source = zstandard.BufferWithSegments(frames.data.cast("B"), segments.tobytes())
        compressed = self._compressor.multi_compress_to_buffer(source, threads=0)
        parts = [compressed[number].tobytes() for number in range(len(compressed))]
        self._blob.writelines(parts)
        sizes = np.fromiter(map(len, parts), np.int64, len(parts))
        ends = self._end + np.cumsum(sizes)
        self._offsets.write(ends.data)
        self._end = int(ends[-1])


def _dictionary(frames: np.ndarray) -> zstandard.ZstdCompressionDict | None:
    """Return what the pictures have in common; None where they are too few or too alike."""
    if len(frames) < FEWEST_TRAINING_FRAMES:
        return None
    try:
        return zstandard.train_dictionary(
            DICTIONARY_BYTES, [frame.tobytes() for frame in frames], level=LEVEL
        )
    except zstandard.ZstdError:
        return None
