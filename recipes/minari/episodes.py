"""The rows of a Minari dataset, read episode after episode as blocks of transitions.

    observations  o0 o1 o2 o3     T + 1 rows
    actions       a0 a1 a2        T rows, as rewards, terminations and truncations
    infos         i0 i1 i2 i3     T + 1 rows, or T

    transitions   o0 a0 o1   o1 a1 o2   o2 a2 o3

The last observation follows the last action, whether the episode terminated or was cut off. If an
episode lacks it and ended in a terminal state, it is zeros.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from datasets_cli.formats.hdf5_episodes import pack
from datasets_cli.recipe import TRAJECTORY_END, Block, rows_per_block

from .storage import EpisodeStorage, Leaf, StoredEpisode, read_rows


class Piece(NamedTuple):
    """The steps ``start`` to ``stop - 1`` of an episode."""

    episode: StoredEpisode
    start: int
    stop: int


def read_blocks(
    storage: EpisodeStorage, episodes: Sequence[StoredEpisode], leaves: Sequence[Leaf]
) -> Iterator[Block]:
    """Yield the transitions of the episodes, in order."""
    total_rows = sum(episode.steps for episode in episodes)
    num_rows = rows_per_block(sum(leaf.row_bytes for leaf in leaves))
    for numbered in pack((episode.steps for episode in episodes), num_rows):
        pieces = [Piece(episodes[number], start, stop) for number, start, stop in numbered]
        yield replace(_read_block(storage, pieces, leaves), total_rows=total_rows)


def _read_block(storage: EpisodeStorage, pieces: list[Piece], leaves: Sequence[Leaf]) -> Block:
    """Return the transitions of some pieces, with the successors of each leaf that has any."""
    num_rows = sum(piece.stop - piece.start for piece in pieces)
    columns = {TRAJECTORY_END: np.zeros(num_rows, dtype=np.bool_)}
    for leaf in leaves:
        columns[leaf.key] = np.empty((num_rows, *leaf.shape), dtype=leaf.dtype)
        if leaf.successors:
            columns["next", *leaf.key] = np.empty_like(columns[leaf.key])
    row = 0
    for piece in pieces:
        here = slice(row, row + piece.stop - piece.start)
        row = here.stop
        # The last step of every episode ends its trajectory, regardless of its flags.
        columns[TRAJECTORY_END][row - 1] = piece.stop == piece.episode.steps
        for leaf in leaves:
            following = columns["next", *leaf.key][here] if leaf.successors else None
            _read_piece(storage, leaf, piece, columns[leaf.key][here], following)
    return Block(columns)


def _read_piece(
    storage: EpisodeStorage, leaf: Leaf, piece: Piece, now: np.ndarray, following: np.ndarray | None
) -> None:
    """Fill the rows ``[n, *shape]`` of a piece, and their successors if the leaf has any."""
    stop = piece.stop + leaf.successors  # one row more: the successor of the last one
    rows = read_rows(storage, piece.episode.name, leaf, piece.start, stop)
    now[:] = rows[: len(now)]
    if following is None:
        return
    successors = rows[1:]  # row t + 1 is the successor of row t
    if piece.episode.lacks_successor and piece.stop == piece.episode.steps:
        following[len(successors) :] = "" if leaf.dtype == object else 0
        following[: len(successors)] = successors
    else:
        following[:] = successors
