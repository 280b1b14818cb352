"""Writing the ``ted`` layout: one file per leaf, by plain writes.

Plain ``write`` needs neither the number of rows nor a mapping, a full disk is an error and not a
dead process, and written pages do not count as this process's memory.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from datasets_cli.errors import SourceError
from datasets_cli.sources.disk import disk_errors
from datasets_cli.store.columns import Column, Key, column_of, write_meta_files
from datasets_cli.store.summary import find_offsets, summarise, write_episodes
from datasets_cli.store.ted import DONE, EPISODE, REWARD
from datasets_cli.store.trajectories import FILENAME as TRAJECTORIES
from datasets_cli.store.trajectories import write_offsets

BUFFER_BYTES = 1 << 18


@dataclass(frozen=True)
class Written:
    """What a finished writer left in its folder; every field goes into the manifest."""

    num_transitions: int
    num_trajectories: int
    columns: tuple[Column, ...]
    files: Mapping[str, Mapping[str, Any]]
    statistics: Mapping[str, Any]


class TedWriter:
    """Writes complete TED rows into the leaf files of a folder.

    Args:
        folder: a new folder; created.
        id: named in messages.
    """

    def __init__(self, folder: Path, id: str) -> None:
        self.folder = folder
        self.id = id
        self.num_rows = 0
        self._columns: dict[Key, Column] = {}
        self._files: dict[Key, BinaryIO] = {}
        self._placed: list[tuple[int, int]] = []

    def write(self, rows: Mapping[Key, np.ndarray], start: int | None = None) -> None:
        """Write rows ``[n, ...]`` behind the last ones, or from row ``start`` on.

        Raises:
            DiskFull: no room.
        """
        if not self._columns:
            self._open(rows)
        num_rows = len(next(iter(rows.values())))
        if start is not None:
            self._placed.append((start, start + num_rows))
        with disk_errors(self.folder):
            for key, column in self._columns.items():
                if file := self._files.get(key):
                    if start is not None:
                        file.seek(start * column.row_bytes)
                    file.write(np.ascontiguousarray(rows[key], column.dtype))
        self.num_rows += num_rows

    def finish(self, extra_files: Mapping[str, bytes]) -> Written:
        """Write what follows from all rows, flush everything to the disk and hash it.

        Args:
            extra_files: ``{name: bytes}`` to lay beside the leaves.

        Raises:
            SourceError: no rows, or placed rows that overlap or leave a gap.
            DiskFull: no room.
        """
        if not self.num_rows:
            raise SourceError(f"{self.id} has no transition: every trajectory is empty.")
        self._check_cover()
        with disk_errors(self.folder):
            for file in self._files.values():
                _close(file)
            offsets = find_offsets(self.folder, self._columns[DONE], self.num_rows)
            self._write_episodes(offsets)
            write_offsets(self.folder / TRAJECTORIES, offsets)
            columns = tuple(sorted(self._columns.values(), key=lambda column: column.key))
            names = write_meta_files(self.folder, columns, self.num_rows)
            for name, data in extra_files.items():
                (self.folder / name).write_bytes(data)
            names += [TRAJECTORIES, *extra_files]
            names += [column.filename for column in columns if column.row_bytes]
            files = describe_files(self.folder, names)
        statistics = summarise(self.folder, self._columns.get(REWARD), offsets)
        return Written(self.num_rows, len(offsets) - 1, columns, files, statistics)

    def close(self) -> None:
        """Close every file; what was written is rubbish unless ``finish`` returned."""
        for file in self._files.values():
            file.close()

    def _open(self, rows: Mapping[Key, np.ndarray]) -> None:
        self._columns = {key: column_of(key, values) for key, values in rows.items()}
        for key, column in self._columns.items():
            if column.row_bytes:
                path = self.folder / column.filename
                with disk_errors(path):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    self._files[key] = path.open("wb", buffering=BUFFER_BYTES)

    def _write_episodes(self, offsets: np.ndarray) -> None:
        column = Column(EPISODE, "int64", ())
        with (self.folder / column.filename).open("wb") as file:
            write_episodes(file, offsets)
        self._columns[EPISODE] = column

    def _check_cover(self) -> None:
        end = 0
        for start, stop in sorted(self._placed):
            if start != end:
                problem = "twice" if start < end else "never"
                raise SourceError(f"{self.id}: row {min(start, end)} is written {problem}.")
            end = stop


def describe_files(folder: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Flush files to the disk and return ``{name: {"bytes": size, "sha256": digest}}``, sorted."""
    names = sorted(names)
    # hashlib and fsync both let other threads run.
    with ThreadPoolExecutor(max_workers=2) as pool:
        entries = pool.map(lambda name: _describe(folder / name), names)
        return dict(zip(names, entries, strict=True))


def _describe(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
        return {"bytes": os.fstat(file.fileno()).st_size, "sha256": digest}


def _close(file: BinaryIO) -> None:
    file.flush()
    file.close()
