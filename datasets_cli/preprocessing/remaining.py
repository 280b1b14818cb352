"""What is left of the rows that a run read, where its function dropped some.

    read        0 0 0 0 0 1 1 2 2        trajectories 0 to 2
    kept        x x . x x . . x x
    remain      0 0   1 1     2 2        the first is cut into two; the second is gone

The last row of a piece that a cut made ends early, as that of a view does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from datasets_cli.core.quantities import counted
from datasets_cli.schema.trajectories import runs_of, trajectory_of

ChunkBounds = list[tuple[int, int]]
"""First row and one past the last of every chunk."""


@dataclass(frozen=True)
class RemainingRows:
    """The rows of a result, in the order in which they were read."""

    # offsets: of the trajectories, int64 `[K + 1]`.
    # early_ends: rows that may end a trajectory too early, int64 `[n]`.

    places: ChunkBounds
    offsets: np.ndarray
    early_ends: np.ndarray
    dropped: str = ""

    @property
    def num_rows(self) -> int:
        """How many rows are left."""
        return int(self.offsets[-1])


def remaining_rows(
    offsets: np.ndarray,
    early_ends: np.ndarray,
    bounds: ChunkBounds,
    kept_of: Callable[[int], np.ndarray | None],
) -> RemainingRows:
    """Return what is left of rows; memory grows with trajectories, and not with rows."""
    # offsets: of the trajectories that were read, int64 `[K + 1]`.
    # early_ends: rows of them that may end a trajectory too early, int64 `[n]`.
    # kept_of: gives bool `[n]`, which rows of a chunk are left, by its number; None for all.
    places = []
    for number, (start, stop) in enumerate(bounds):
        kept = kept_of(number)
        places.append((start, stop - start if kept is None else int(kept.sum())))
    num_rows = sum(count for _, count in places)
    if num_rows == offsets[-1]:
        return RemainingRows(places, offsets, early_ends)
    firsts, lengths = runs_of(offsets, _left(bounds, kept_of))
    left = np.append(0, np.cumsum(lengths))
    # A piece is consecutive rows: its last one, of those that were read, follows from its first.
    lasts = firsts + lengths - 1
    numbers = trajectory_of(offsets, firsts)
    # offsets[number + 1] is one past the last row of a trajectory, and of a piece that is not cut.
    is_cut = lasts + 1 != offsets[numbers + 1]
    ends_early = is_cut | np.isin(lasts, early_ends)
    num_whole = int((~is_cut & (firsts == offsets[numbers])).sum())
    # A trajectory without a piece is gone; one whose only piece is not whole is there in part.
    dropped = _in_words(offsets, num_rows, len(np.unique(numbers)), num_whole)
    return RemainingRows(places, left, left[1:][ends_early] - 1, dropped)


def _in_words(offsets: np.ndarray, num_rows: int, num_found: int, num_whole: int) -> str:
    num_read, num_trajectories = int(offsets[-1]), len(offsets) - 1
    return (
        f"{num_read - num_rows:,} of {counted(num_read, 'row')}: "
        f"{num_trajectories - num_found:,} of {counted(num_trajectories, 'trajectory')} whole, "
        f"{num_found - num_whole:,} in part"
    )


def _left(bounds: ChunkBounds, kept_of: Callable[[int], np.ndarray | None]) -> Iterator[np.ndarray]:
    """Yield the numbers of the rows that are left, int64 ``[k]``, chunk by chunk."""
    for number, (start, stop) in enumerate(bounds):
        kept = kept_of(number)
        yield np.arange(start, stop) if kept is None else np.flatnonzero(kept) + start
