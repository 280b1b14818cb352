"""Writes the ``ted`` layout: one file for each leaf.

The files are written, not mapped: the number of rows need not be known, a full disk raises an error
instead of killing the process, and written pages do not count as memory of the process.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from datasets_cli.errors import ROOT, SourceError
from datasets_cli.schema.columns import (
    DONE,
    EPISODE,
    FINAL_FOLDER,
    META_FILENAME,
    REWARD,
    Column,
    Key,
    column_of,
    encode_name,
    escape_key,
    one_file_each,
    row_data,
    successor_of,
)
from datasets_cli.schema.summary import find_offsets, summarise, write_episodes
from datasets_cli.schema.texts import TextColumn
from datasets_cli.schema.trajectory_file import FILENAME as TRAJECTORIES
from datasets_cli.sources.disk import check_free_space, disk_errors, flush
from datasets_cli.sources.regular_file import sha256_of

if TYPE_CHECKING:
    from datasets_cli.schema.frame_table import FrameRun

BUFFER_BYTES = 1 << 18


@dataclass(frozen=True)
class Written:
    """The result of a finished writer; every field becomes part of the manifest."""

    layout: str
    num_transitions: int
    num_trajectories: int
    columns: tuple[Column, ...]
    files: Mapping[str, Mapping[str, Any]]
    statistics: Mapping[str, Any]
    record: Mapping[str, Any] = field(default_factory=dict)
    texts: tuple[TextColumn, ...] = ()
    final_steps: int = 0
    final_steps_alone: int = 0
    splits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


class TedWriter:
    """Writes complete TED rows into the leaf files of a folder."""

    # offsets: known trajectories int64 `[K + 1]`; the rows then have all columns. Otherwise
    # `next.done` determines the trajectories, and `episode` is added.

    def __init__(self, folder: Path, id: str, offsets: np.ndarray | None = None) -> None:
        self.folder = folder
        self.id = id
        self.offsets = offsets
        self.num_rows = 0
        self._columns: dict[Key, Column] = {}
        self._files: dict[Key, BinaryIO] = {}

    def write(self, rows: Mapping[Key, np.ndarray]) -> None:
        """Append rows ``[n, ...]``."""
        if not self._columns:
            self._open(rows)
        with disk_errors(self.folder):
            for key, column in self._columns.items():
                if file := self._files.get(key):
                    file.write(row_data(rows[key], column.dtype))
        self.num_rows += len(next(iter(rows.values())))

    def add_frames(
        self, column: Column, offsets: np.ndarray, sample: Callable[[int], np.ndarray]
    ) -> LeafFrames:
        """Return a writer for separately read frames of a column and of its successor."""
        # offsets: the trajectory table int64 `[K + 1]`; all rows are already written.
        following = Column(successor_of(column.key), column.dtype, column.shape)
        own, after = (self.folder / each.filename for each in (column, following))
        size = self.num_rows * column.row_bytes
        check_free_space(self.folder, 2 * size, self.id)
        with disk_errors(self.folder):
            for path in (own, after):
                path.parent.mkdir(parents=True, exist_ok=True)
                with one_file_each(path, column.key):
                    path.touch(exist_ok=False)
                os.truncate(path, size)
        self._columns |= {each.key: each for each in (column, following)}
        return LeafFrames(own, after, column.row_bytes, offsets)

    def finish(self, extra_files: Mapping[str, bytes]) -> Written:
        """Complete the files, flush them to the disk, and hash them."""
        offsets = self.complete()
        with disk_errors(self.folder):
            return complete_leaves(self.folder, self.columns, offsets, extra_files)

    def complete(self) -> np.ndarray:
        """Close the leaves, add a missing ``episode``, and return the offsets."""
        if not self.num_rows:
            raise SourceError(
                f"{self.id} has no transitions: every trajectory is empty.", id=self.id, found=0
            )
        with disk_errors(self.folder):
            self.close()
            if self.offsets is None:
                self.offsets = find_offsets(self.folder, self._columns[DONE], self.num_rows)
                column = Column(EPISODE, "int64", ())
                path = self.folder / column.filename
                with one_file_each(path, EPISODE), path.open("xb") as file:
                    write_episodes(file, self.offsets)
                self._columns[EPISODE] = column
        return self.offsets

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns so far, sorted by key."""
        return tuple(sorted(self._columns.values(), key=lambda column: column.key))

    def close(self) -> None:
        """Close every file; the folder is incomplete unless ``finish`` returned."""
        with ExitStack() as stack:  # closes all, even if one fails on a full disk
            for file in self._files.values():
                stack.callback(file.close)

    def _open(self, rows: Mapping[Key, np.ndarray]) -> None:
        self._columns = {key: column_of(key, values) for key, values in rows.items()}
        with disk_errors(self.folder):
            for key, column in self._columns.items():
                if column.row_bytes:
                    path = self.folder / column.filename
                    with one_file_each(path, key):
                        path.parent.mkdir(parents=True, exist_ok=True)
                        self._files[key] = path.open("xb", buffering=BUFFER_BYTES)


def complete_leaves(
    folder: Path, columns: tuple[Column, ...], offsets: np.ndarray, extra_files: Mapping[str, bytes]
) -> Written:
    """Write the remaining files of complete leaves; flush and hash all files."""
    # offsets: trajectories int64 `[K + 1]`.
    num_rows = int(offsets[-1])
    names = write_meta_files(folder, columns, num_rows)
    names += [column.filename for column in columns if column.row_bytes]
    files = write_beside(folder, names, offsets, extra_files)
    statistics = summarise(folder, reward_column(columns), offsets, folder / FINAL_FOLDER)
    return Written("ted", num_rows, len(offsets) - 1, columns, files, statistics)


def reward_column(columns: Iterable[Column]) -> Column | None:
    """Return ``next.reward`` if it has one float for each row; in derived datasets it may not."""
    floats = ("float16", "float32", "float64")
    rewards = (c for c in columns if c.key == REWARD and c.shape == (1,) and c.dtype in floats)
    return next(rewards, None)


def write_beside(
    folder: Path, names: list[str], offsets: np.ndarray, extra_files: Mapping[str, bytes]
) -> dict[str, dict[str, Any]]:
    """Write the trajectory table and small extra files; return the entries of all files."""
    # offsets: trajectories int64 `[K + 1]`.
    np.save(folder / TRAJECTORIES, offsets, allow_pickle=False)
    for name, data in extra_files.items():
        (folder / name).write_bytes(data)
    return describe_files(folder, [*names, TRAJECTORIES, *extra_files])


def describe_files(folder: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Flush files to the disk and return ``{name: {"bytes": size, "sha256": digest}}``, sorted."""
    names = sorted(names)
    files: dict[tuple[int, int], str] = {}
    for name in names:
        status = (folder / name).stat()
        if other := files.get((status.st_dev, status.st_ino)):
            raise SourceError(
                f"{other} and {name} are one file in {folder}. Two keys have the same file name on "
                "this disk, for example because they differ only in case.",
                path=folder / name,
                found=other,
                advice=f"Rename one, or choose another disk with {ROOT}.",
            )
        files[status.st_dev, status.st_ino] = name
    # hashlib and fsync both let other threads run.
    with ThreadPoolExecutor(max_workers=3) as pool:
        entries = pool.map(lambda name: _describe(folder / name), names)
        return dict(zip(names, entries, strict=True))


def _describe(path: Path) -> dict[str, Any]:
    digest = sha256_of(path)
    flush(path)
    return {"bytes": path.stat().st_size, "sha256": digest}


@dataclass
class LeafFrames:
    """``FrameFiles`` of the ted layout: row t has frame t, and frame t + 1 as successor."""

    # offsets: the trajectory table int64 `[K + 1]`.

    path: Path
    following: Path
    row_bytes: int
    offsets: np.ndarray
    _files: tuple[BinaryIO, ...] = field(default=(), init=False)

    def write(self, run: FrameRun) -> None:
        """Write the frames of one run: frame t is in row t, and the successor in row t - 1."""
        # A trajectory of T = 3 rows has the frames 0 1 2 3: the rows contain 0 1 2, and their
        # successors are 1 2 3.
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


def write_meta_files(folder: Path, columns: Iterable[Column], num_rows: int) -> list[str]:
    """Write the ``meta.json`` of every level; return their paths relative to ``folder``."""
    # With escaped keys, as `TensorDict.load_memmap` returns them.
    levels: dict[Key, dict[str, Any]] = {(): {}}
    for column in columns:
        key = escape_key(column.key)
        for depth in range(1, len(key)):
            levels.setdefault(key[:depth], {})
            levels[key[: depth - 1]][key[depth - 1]] = {"type": "TensorDict"}
        levels[key[:-1]][key[-1]] = {
            "device": "cpu",
            "shape": [num_rows, *column.shape],
            "dtype": f"torch.{column.dtype}",
            "is_nested": False,
        }
    names = []
    for key, level in levels.items():
        level |= {
            "shape": [num_rows],
            "device": "cpu",
            "_type": "<class 'tensordict._td.TensorDict'>",
        }
        name = "/".join([*(encode_name(part) for part in key), META_FILENAME])
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(level, separators=(",", ":")), encoding="utf-8")
        names.append(name)
    return names
