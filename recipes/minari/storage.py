"""The storage of a Minari dataset, in any form of its files: episodes of named arrays."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from datasets_cli.formats.images import decode_jpeg
from datasets_cli.formats.limits import TEXT_ROW_BYTES
from datasets_cli.recipe import Key, rows_per_block

TEXT = np.dtype(str)
"""The dtype of text in ``Stored``, of any length and encoding in the file."""


class Stored(NamedTuple):
    """How an episode stores one array."""

    rows: int | None
    shape: tuple[int, ...]
    dtype: np.dtype
    jpeg: bool = False

    @property
    def row_bytes(self) -> int:
        """The size of one row."""
        return math.prod(self.shape) * (self.dtype.itemsize or TEXT_ROW_BYTES)


class StoredEpisode(NamedTuple):
    """An episode, and its number of steps."""

    name: str
    steps: int
    lacks_successor: bool = False


@dataclass(frozen=True)
class Leaf:
    """An array that every episode has."""

    path: str
    key: Key
    successors: bool
    shape: tuple[int, ...]
    dtype: np.dtype
    jpeg: bool = False

    @property
    def row_bytes(self) -> int:
        """The size of one step, with its successor if the array has any."""
        itemsize = TEXT_ROW_BYTES if self.dtype == object else self.dtype.itemsize
        return math.prod(self.shape) * itemsize * (1 + self.successors)


class EpisodeStorage(Protocol):
    """The files of one dataset."""

    names: list[str]
    others: list[str]

    def arrays(self, episode: str) -> Mapping[str, Stored]:
        """Return the storage of an episode's arrays, by path."""

    def read(self, episode: str, path: str, start: int, stop: int) -> np.ndarray:
        """Return the stored rows of an array; JPEG files are objects or uint8 ``[n, b]``."""


def read_runs(
    storage: EpisodeStorage, episode: str, path: str, num_rows: int, stored: Stored
) -> Iterator[np.ndarray]:
    """Yield the first rows of an array in bounded blocks."""
    step = rows_per_block(stored.row_bytes)
    for start in range(0, num_rows, step):
        yield storage.read(episode, path, start, min(start + step, num_rows))


def read_rows(
    storage: EpisodeStorage, episode: str, leaf: Leaf, start: int, stop: int
) -> np.ndarray:
    """Return the rows ``start`` to ``stop - 1`` of an array, with frames decoded."""
    stored = storage.read(episode, leaf.path, start, stop)
    if not leaf.jpeg:
        return stored
    frames = np.empty((len(stored), *leaf.shape), dtype=leaf.dtype)
    for row, data in enumerate(stored):
        where = f"{episode}/{leaf.path}, row {start + row}"
        frames[row] = decode_jpeg(data, where, leaf.shape)
    return frames
