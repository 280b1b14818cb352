"""The rows of a Minari HDF5 file: one group an episode, read as blocks of transitions.

    observations  o0 o1 o2 o3     T + 1 rows
    actions       a0 a1 a2        T rows, as rewards, terminations and truncations
    infos         i0 i1 i2 i3     T + 1 rows, or T

    transitions   o0 a0 o1   o1 a1 o2   o2 a2 o3

The last observation is the one that the last action led to, whether the episode ended there by
itself or was cut off.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import h5py
import numpy as np

from datasets_cli.formats.jpeg import decode_jpeg
from datasets_cli.recipe import TRAJECTORY_END, Block, Key, rows_per_block

TEXT_BYTES = 256
"""What a text is taken to need in memory; its own size is not known before it is read."""


class Episode(NamedTuple):
    """A group, and its number of steps."""

    name: str
    steps: int


class Piece(NamedTuple):
    """The steps ``start`` to ``stop - 1`` of an episode."""

    episode: Episode
    start: int
    stop: int


@dataclass(frozen=True)
class Leaf:
    """An array that every episode has.

    Args:
        path: below the episode's group.
        key: of its rows; the successors' is the same below ``next``.
        successors: whether it has T + 1 rows.
        shape: of one row; of the decoded frame where it is a JPEG.
        dtype: of its elements; object where they are text.
        jpeg: whether each row is the bytes of a JPEG file.
    """

    path: str
    key: Key
    successors: bool
    shape: tuple[int, ...]
    dtype: np.dtype
    jpeg: bool = False

    @property
    def row_bytes(self) -> int:
        """Size of what one step becomes."""
        itemsize = TEXT_BYTES if self.dtype == object else self.dtype.itemsize
        return math.prod(self.shape) * itemsize * (1 + self.successors)


def read_blocks(
    file: h5py.File, episodes: Iterable[Episode], leaves: Iterable[Leaf]
) -> Iterator[Block]:
    """Yield the transitions of the episodes, in order.

    Args:
        file: opened by ``open_hdf5``.
        episodes: in order, each with at least one step.
        leaves: the arrays to read.

    Raises:
        SourceError: a frame is not a whole JPEG, or not of its leaf's shape.
    """
    leaves = tuple(leaves)
    for pieces in _pack(episodes, rows_per_block(sum(leaf.row_bytes for leaf in leaves))):
        columns = {TRAJECTORY_END: _ends(pieces)}
        for leaf in leaves:
            now, following = _read_leaf(file, leaf, pieces)
            columns[leaf.key] = now
            if following is not None:
                columns["next", *leaf.key] = following
        yield Block(columns)


def _pack(episodes: Iterable[Episode], num_rows: int) -> Iterator[list[Piece]]:
    """Yield blocks of up to ``num_rows`` steps; only an episode longer than that is cut."""
    pieces: list[Piece] = []
    room = num_rows
    for episode in episodes:
        for start in range(0, episode.steps, num_rows):
            piece = Piece(episode, start, min(start + num_rows, episode.steps))
            if piece.stop - start > room:
                yield pieces
                pieces, room = [], num_rows
            pieces.append(piece)
            room -= piece.stop - start
    if pieces:
        yield pieces


def _ends(pieces: list[Piece]) -> np.ndarray:
    """Return bool ``[n]``, True at the last step of every group, whatever its flags say."""
    cut = np.zeros(sum(piece.stop - piece.start for piece in pieces), dtype=np.bool_)
    row = 0
    for piece in pieces:
        row += piece.stop - piece.start  # now the row after this piece
        cut[row - 1] = piece.stop == piece.episode.steps
    return cut


def _read_leaf(
    file: h5py.File, leaf: Leaf, pieces: list[Piece]
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return a leaf's rows ``[n, *shape]``, and their successors where it has any."""
    num_rows = sum(piece.stop - piece.start for piece in pieces)
    now = np.empty((num_rows, *leaf.shape), dtype=leaf.dtype)
    following = np.empty_like(now) if leaf.successors else None
    row = 0
    for piece in pieces:
        rows = _read_rows(file, leaf, piece)
        here = slice(row, row + piece.stop - piece.start)
        now[here] = rows[: piece.stop - piece.start]
        if following is not None:
            following[here] = rows[1:]  # row t + 1 is the successor of row t
        row = here.stop
    return now, following


def _read_rows(file: h5py.File, leaf: Leaf, piece: Piece) -> np.ndarray:
    """Return the rows of a piece, and the one after it where the leaf has successors."""
    path = f"{piece.episode.name}/{leaf.path}"
    # The low-level API: with 10,000 short episodes the high-level one takes twice as long.
    array = h5py.h5d.open(file.id, path.encode(errors="surrogateescape"))
    stop = piece.stop + leaf.successors  # one row more: the last one's successor
    if leaf.jpeg:
        stored = h5py.Dataset(array)[piece.start : stop]
        frames = np.empty((len(stored), *leaf.shape), dtype=leaf.dtype)
        for row, data in enumerate(stored):
            frames[row] = decode_jpeg(data, f"{path}, row {piece.start + row}", leaf.shape)
        return frames
    if (piece.start, piece.stop) != (0, piece.episode.steps):
        rows = h5py.Dataset(array)[piece.start : stop]
        assert isinstance(rows, np.ndarray)
        return rows
    rows = np.empty(array.shape, dtype=array.dtype)
    array.read(h5py.h5s.ALL, h5py.h5s.ALL, rows)
    return rows
