"""Writing the ``compact`` layout: frames at once, small leaves first as they are, then packed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from datasets_cli.sources.disk import disk_errors
from datasets_cli.store.compact.dictionary import SAMPLED_FRAMES
from datasets_cli.store.compact.frame_writer import (
    make_dictionary,
)
from datasets_cli.store.compact.packing import pack
from datasets_cli.store.compact.records import (
    RECORDS,
    ROW_MAP,
    is_frame,
)
from datasets_cli.store.compact.shared_frames import (
    DeferredFrameColumn,
    PackedFrames,
    SharedFrames,
)
from datasets_cli.store.schema.columns import (
    DONE,
    Column,
    Key,
    column_of,
    one_file_each,
    successor_of,
)
from datasets_cli.store.schema.trajectories import ends_of, num_records
from datasets_cli.store.ted.writer import TedWriter, Written, write_beside


class CompactWriter:
    """Writes complete TED rows into records and frames."""

    # Small leaves go to files of their own below the folder until all rows are known, because only
    # then is it known what is constant and what successors share; frames are shared or refused.

    def __init__(self, folder: Path, id: str, offsets: np.ndarray | None = None) -> None:
        self.folder = folder
        self.id = id
        self._leaves = TedWriter(folder / "leaves", id, offsets)
        self._frames: dict[Key, SharedFrames] | None = None
        self._deferred: list[DeferredFrameColumn] = []

    @property
    def num_rows(self) -> int:
        """Rows written so far."""
        return self._leaves.num_rows

    def write(self, rows: Mapping[Key, np.ndarray]) -> None:
        """Write rows ``[n, ...]`` after the last ones."""
        if self._frames is None:
            self._frames = self._open_frames(rows)
        if self._frames:
            ends = self._ends(rows)
            with disk_errors(self.folder):
                for frames in self._frames.values():
                    with one_file_each(frames.path, frames.field.column.key):
                        frames.write(rows, ends, self.num_rows)
        taken = {key for frames in self._frames.values() for key in frames.keys}
        small = {key: values for key, values in rows.items() if key not in taken}
        if small:
            self._leaves.write(small)
        else:
            self._leaves.num_rows += len(next(iter(rows.values())))

    def add_frames(
        self, column: Column, offsets: np.ndarray, sample: Callable[[int], np.ndarray]
    ) -> PackedFrames:
        """Return where to write a column's frames; see ``TedWriter.add_frames``."""
        frames = DeferredFrameColumn(self.folder, column)
        self._deferred.append(frames)
        with disk_errors(self.folder):
            dictionary = make_dictionary(frames.path, sample(SAMPLED_FRAMES))
        return PackedFrames(frames.path, column.row_bytes, dictionary, offsets)

    def finish(self, extra_files: Mapping[str, bytes]) -> Written:
        """Pack the leaves, flush everything to the disk and hash it; see ``TedWriter.finish``."""
        offsets = self._leaves.complete()
        frames: list[SharedFrames | DeferredFrameColumn] = [
            *(self._frames or {}).values(),
            *self._deferred,
        ]
        with disk_errors(self.folder):
            for frame in frames:
                with one_file_each(frame.path, frame.field.column.key):
                    frame.finish(num_records(offsets))
            columns = self._leaves.columns
            fields = tuple(frame.field for frame in frames)
            record = pack(self._leaves.folder, columns, fields, offsets, self.folder)
            statistics = self._leaves.statistics(offsets)
            shutil.rmtree(self._leaves.folder, ignore_errors=True)  # none if all are frames
            names = [RECORDS, ROW_MAP, *(name for frame in frames for name in frame.filenames)]
            files = write_beside(self.folder, names, offsets, extra_files)
        columns = tuple(
            sorted((*columns, *(c for f in frames for c in f.columns)), key=lambda c: c.key)
        )
        return Written(
            "compact", self.num_rows, len(offsets) - 1, columns, files, statistics, record.to_json()
        )

    def close(self) -> None:
        """Close every file; what was written is of no use unless ``finish`` returned."""
        self._leaves.close()
        for frames in (self._frames or {}).values():
            frames.close()

    def _ends(self, rows: Mapping[Key, np.ndarray]) -> np.ndarray:
        """Return which of these rows end a trajectory, bool ``[n]``."""
        if self._leaves.offsets is None:
            return rows[DONE][:, 0]
        stop = self.num_rows + len(next(iter(rows.values())))
        return ends_of(self._leaves.offsets, self.num_rows, stop)

    def _open_frames(self, rows: Mapping[Key, np.ndarray]) -> dict[Key, SharedFrames]:
        columns = {key: column_of(key, values) for key, values in rows.items()}
        return {
            key: SharedFrames(self.folder, self.id, column, _successor(column, columns))
            for key, column in columns.items()
            if is_frame(column.dtype, column.shape)
            and not (key[0] == "next" and _successor(columns.get(key[1:]), columns))
        }


def _successor(column: Column | None, columns: Mapping[Key, Column]) -> Column | None:
    """Return the column of the same frames one step later, if there is one."""
    found = columns.get(successor_of(column.key)) if column else None
    if column is None or found is None or found.shape != column.shape:
        return None
    return found if found.dtype == column.dtype else None
