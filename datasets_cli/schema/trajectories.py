"""The trajectory table of a dataset: the start and the end of each trajectory.

    row      0  1  2  3  4  5  6
    episode  0  0  0  1  1  1  1        offsets = [0, 3, 7]
    ends           2           6        lengths = [3, 4]

Trajectory ``k`` consists of the rows ``offsets[k]`` to ``offsets[k + 1] - 1``.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from datasets_cli.errors import DamagedDataset
from datasets_cli.schema.columns import DONE
from datasets_cli.schema.shapes import LengthArray, MaskArray, OffsetArray, RowArray


def offsets_from_ends(ends: RowArray, num_rows: int) -> OffsetArray:
    """Return the offsets of trajectories whose last rows are ``ends``, in order."""
    if num_rows and (len(ends) == 0 or int(ends[-1]) != num_rows - 1):
        raise DamagedDataset(
            f"The last trajectory has no end: row {num_rows - 1} is not done.",
            key=DONE,
            row=num_rows - 1,
        )
    offsets = np.zeros(len(ends) + 1, dtype=np.int64)
    offsets[1:] = ends
    offsets[1:] += 1  # the next trajectory begins one row later
    return offsets


def lengths_of(offsets: OffsetArray) -> LengthArray:
    """Return the number of rows of each trajectory."""
    return np.diff(offsets)


def trajectory_of(offsets: OffsetArray, rows: RowArray) -> np.ndarray:
    """Return the number of the trajectory of each row, int64 ``[B]``."""
    #   offsets   0 3 7
    #   row       2 -> 0, 3 -> 1, 6 -> 1      count the offsets at or before a row, but the first
    return np.searchsorted(offsets, rows, side="right") - 1


def numbers_of(offsets: OffsetArray, start: int, stop: int) -> np.ndarray:
    """Return the number of the trajectory of the rows ``start`` to ``stop - 1``, int64."""
    return trajectory_of(offsets, np.arange(start, stop)).astype(np.int64, copy=False)


def ends_of(offsets: OffsetArray, start: int, stop: int) -> MaskArray:
    """Return whether each of the rows ``start`` to ``stop - 1`` ends its trajectory."""
    is_end = np.zeros(stop - start, np.bool_)
    # Row r ends a trajectory if r + 1 is one of offsets[1:].
    first = int(np.searchsorted(offsets, start + 1, side="left"))
    last = int(np.searchsorted(offsets, stop, side="right"))
    is_end[offsets[first:last] - 1 - start] = True
    return is_end


def runs_within(offsets: OffsetArray, start: int, stop: int) -> tuple[slice, np.ndarray]:
    """Return the trajectories of the rows ``start`` to ``stop - 1``, and where each begins there.

    offsets = [0, 3, 7]    start 2, stop 5    trajectories 0 and 1, beginning at 0 and 1
    """
    first = int(np.searchsorted(offsets, start, side="right")) - 1
    last = int(np.searchsorted(offsets, stop, side="left"))
    return slice(first, last), np.maximum(offsets[first:last] - start, 0)


def runs_of(offsets: OffsetArray, rows: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the first rows and lengths int64 ``[R]`` of runs of rows within a trajectory."""
    # rows: ascending row numbers, in blocks int64 `[k]`.
    firsts, places = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    previous, num_before = -2, 0
    for block in rows:
        is_next = np.diff(block, prepend=previous) == 1
        # offsets[-1] is beyond every row, so each search finds an offset.
        begins = offsets[np.searchsorted(offsets, block)] == block
        starts = np.flatnonzero(~is_next | begins)
        firsts.append(block[starts])
        places.append(starts + num_before)
        num_before += len(block)
        previous = int(block[-1]) if len(block) else previous
    return np.concatenate(firsts), np.diff(np.concatenate(places), append=num_before)


def first_rows(offsets: OffsetArray, num_rows: int) -> np.ndarray:
    """Return the offsets of the first ``num_rows`` rows; the last trajectory may be cut."""
    return np.append(offsets[offsets < num_rows], num_rows)


def num_records(offsets: OffsetArray) -> int:
    """Return the number of steps: one for each row, and the last one of each trajectory."""
    return int(offsets[-1]) + len(offsets) - 1


def record_of(offsets: OffsetArray, trajectory: int, position: int) -> int:
    """Return the number of a step among the steps of all trajectories."""
    # Each earlier trajectory has one step more than rows.
    return int(offsets[trajectory]) + trajectory + position
