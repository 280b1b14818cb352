"""Frames that are read apart from their steps, in the ``ted`` layout."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np

from datasets_cli.sources.disk import disk_errors
from datasets_cli.store.schema.frame_table import FrameRun


@dataclass
class LeafFrames:
    """``FrameFiles`` of the ted layout, where a frame is one row's and the row's before it."""

    # offsets: the trajectory table int64 `[K + 1]`.

    path: Path
    following: Path
    row_bytes: int
    offsets: np.ndarray
    _files: tuple[BinaryIO, ...] = field(default=(), init=False)

    def write(self, run: FrameRun) -> None:
        """Write the frames of one run: frame t is row t's own and row t - 1's successor."""
        # position 0 1 2 3 of a trajectory of T = 3 rows own 0 1 2 - the last frame is no row's own
        # following - 0 1 2 no row comes before the first frame
        first, stop = (int(row) for row in self.offsets[run.trajectory : run.trajectory + 2])
        row = first + run.position
        with disk_errors(self.path):
            if not self._files:
                self._files = (self.path.open("r+b"), self.following.open("r+b"))
            own, following = self._files
            own.seek(row * self.row_bytes)
            own.write(np.ascontiguousarray(run.frames[: stop - row]).data)
            skipped = int(run.position == 0)
            following.seek((row - 1 + skipped) * self.row_bytes)
            following.write(np.ascontiguousarray(run.frames[skipped:]).data)

    def close(self) -> None:
        """Close the files; ``write`` opens them again."""
        with disk_errors(self.path):
            for file in self._files:
                file.close()
        self._files = ()
