"""The rows of sequences: each from its first row to its length, or to the trajectory's end.

trajectory of 5, sequences of 3

first row      0        3          3
padding                 left       right
rows           0 1 2    . 3 4      3 4 .
timesteps      0 1 2    0 3 4      3 4 0        . is padding, which reads a row that is there
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

Padding = Literal["left", "right"]


@dataclass(frozen=True)
class SequenceRows:
    """The rows of some sequences."""

    # rows: their numbers, int64 `[B * T]`; those of padding are of the sequence, too.
    # timesteps: of each row in its trajectory, int64 `[B, T]`; 0 where there is padding.
    # is_row: which are no padding, bool `[B, T]`.
    # padding: places of padding in `rows`, int64 `[n]`.

    rows: np.ndarray
    timesteps: np.ndarray
    is_row: np.ndarray
    padding: np.ndarray


def sequence_rows(
    first: np.ndarray, offsets: np.ndarray, length: int, side: Padding
) -> SequenceRows:
    """Return the rows of sequences."""
    # first: the first row of each, int64 `[B]`.
    # offsets: of trajectories, int64 `[K + 1]`.
    next_number = offsets.searchsorted(first, side="right")  # of the trajectory after
    start = offsets[next_number - 1][:, None]
    stop = offsets[next_number][:, None]
    first = first[:, None]
    places = np.arange(length)
    missing = np.maximum(first + length - stop, 0)  # rows beyond the end, [B, 1]
    if side == "left":
        # The last place has the last row; the first `missing` ones read the first row again.
        rows = np.maximum(first + places - missing, first)
        is_row = places >= missing
    else:
        rows = np.minimum(first + places, stop - 1)
        is_row = places < length - missing
    timesteps = (rows - start) * is_row
    return SequenceRows(rows.reshape(-1), timesteps, is_row, np.flatnonzero(~is_row))
