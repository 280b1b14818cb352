"""Minari's Arrow form: a folder for each episode, with its rows as Arrow or Parquet.

    row            0  1  2  3     an episode of three steps
    observations   o0 o1 o2 o3
    actions        a0 a1 a2 ..    padding, as in rewards, terminations and truncations
    infos          i0 i1 i2 i3

Facts of the format: Minari's own storage code up to 0.5.4.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from datasets_cli.formats.arrow import (
    ArrowColumn,
    columns,
    element_type,
    equal_lists,
    read_table,
    row_shape,
    to_numpy,
)
from datasets_cli.recipe import SourceError

from .spaces import Space, find_space, space_shape
from .storage import TEXT, Stored

PART = re.compile(r"(\d+)/part-(\d+)\.(arrow|parquet)")
PADDED = ("actions", "rewards", "terminations", "truncations")
FLAGS = ("terminations", "truncations")


class _Array(NamedTuple):
    """An array of an episode: its values, without padding, and how they are stored."""

    values: pa.Array
    stored: Stored


class ArrowStorage:
    """An ``EpisodeStorage`` that is a folder of Arrow or Parquet files."""

    def __init__(
        self,
        files: Mapping[str, Path],
        format: str,
        spaces: Mapping[str, Space | None],
        *,
        jpeg: bool,
    ) -> None:
        self._format = format
        self._spaces = spaces
        self._jpeg = jpeg
        self._parts: dict[int, dict[int, Path]] = {}
        for name, path in files.items():
            if (match := PART.fullmatch(name)) and match[3] == format:
                self._parts.setdefault(int(match[1]), {})[int(match[2])] = path
        if not self._parts:
            raise SourceError(
                f"no episodes found: expected files 0/part-0.{format}, 1/part-0.{format}, …",
                expected=f"0/part-0.{format}",
                found=sorted(files)[:10],
            )
        self.names = [f"episode_{number}" for number in sorted(self._parts)]
        self.others: list[str] = []
        self._open: tuple[str, dict[str, _Array]] = ("", {})

    def arrays(self, episode: str) -> dict[str, Stored]:
        """Return the storage of an episode's arrays, by path."""
        return {path: array.stored for path, array in self._load(episode).items()}

    def read(self, episode: str, path: str, start: int, stop: int) -> np.ndarray:
        """Return the stored rows of an array."""
        values, stored = self._load(episode)[path]
        rows = values.slice(start, max(0, stop - start))
        if stored.jpeg:
            frames = np.empty(len(rows), dtype=object)
            for row, data in enumerate(rows.to_pylist()):
                frames[row] = np.frombuffer(data or b"", dtype=np.uint8)
            return frames
        array = to_numpy(rows)
        return array if stored.dtype == TEXT else array.reshape(len(rows), *stored.shape)

    def _load(self, episode: str) -> dict[str, _Array]:
        """Return an episode's arrays; the last episode stays in memory."""
        if self._open[0] != episode:
            self._open = ("", {})  # only one episode is in memory
            parts = self._parts[int(episode.removeprefix("episode_"))]
            table = read_table([parts[number] for number in sorted(parts)], self._format)
            padding = self._padding(table)
            arrays = {}
            for column in columns(table):
                arrays["/".join(column.path)] = self._array(episode, column, padding)
            self._open = (episode, arrays)
        return self._open[1]

    def _padding(self, table: pa.Table) -> int:
        """Return 1 if the last row has only an observation, 0 if it has a step."""
        # An episode without an observation after its last step has no padding; Minari's own reader
        # loses that step. A flag in the last row reveals it.
        last = table.slice(max(0, table.num_rows - 1))
        flags = [last.column(name).to_pylist() for name in FLAGS if name in table.column_names]
        return 0 if any(any(values) for values in flags) else 1

    def _array(self, episode: str, column: ArrowColumn, padding: int) -> _Array:
        path = "/".join(column.path)
        values = column.values
        if column.path[0] in PADDED:
            values = values.slice(0, max(0, len(values) - padding))
        if pa.types.is_binary(values.type) and self._jpeg and column.path[0] in self._spaces:
            return _Array(values, Stored(len(values), (), np.dtype(np.uint8), jpeg=True))
        values = equal_lists(values)
        dtype = _dtype(values)
        shape = row_shape(values.type)
        if dtype.kind in "biufc":
            shape = self._shape(episode, path, column, shape)
        return _Array(values, Stored(len(values), shape, dtype))

    def _shape(
        self, episode: str, path: str, column: ArrowColumn, stored: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Return the shape of a row, which is stored flat; the shape is metadata."""
        shape = None
        if (stated := column.metadata.get(b"shape")) is not None and column.path[0] == "infos":
            shape = tuple(int(size) for size in stated.split(b",") if size)
        elif space := find_space(self._spaces, path):
            shape = space_shape(space)
        if shape is None:
            return stored
        if math.prod(shape) != math.prod(stored):
            raise SourceError(
                f"{episode}: {path} has rows of shape {list(stored)}; expected {list(shape)}, the "
                "shape in metadata.json or the file. The files are damaged, or not of one dataset.",
                key=path,
                expected=list(shape),
                found=list(stored),
            )
        return shape


def _dtype(values: pa.Array) -> np.dtype:
    """Return the dtype of an array's elements in ``Stored``."""
    dtype = element_type(values.type)
    if row_shape(values.type) and values.null_count:
        return np.dtype(object)
    if pa.types.is_string(dtype) or pa.types.is_large_string(dtype):
        return TEXT
    if pa.types.is_boolean(dtype):
        return np.dtype(object if values.null_count else np.bool_)
    if pa.types.is_integer(dtype) and values.null_count:
        return np.dtype(np.float64)  # as in Minari: missing values are NaN
    if pa.types.is_integer(dtype) or pa.types.is_floating(dtype):
        found: np.dtype = np.dtype(dtype.to_pandas_dtype())
        return found
    return np.dtype(object)
