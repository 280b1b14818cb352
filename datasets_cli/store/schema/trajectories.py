"""The trajectory table of a dataset: where each trajectory begins and ends.

    row      0  1  2  3  4  5  6
    episode  0  0  0  1  1  1  1        offsets = [0, 3, 7]
    ends           2           6        lengths = [3, 4]

Trajectory ``k`` is the rows ``offsets[k]`` up to, and not including, ``offsets[k + 1]``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from datasets_cli.errors import DamagedDataset
from datasets_cli.reinstall import reinstall_advice_at
from datasets_cli.store.schema.mapping import map_descriptor
from datasets_cli.store.schema.trajectory_file import HEADER_BYTES, open_table


def offsets_from_ends(ends: np.ndarray, num_rows: int) -> np.ndarray:
    """Return the offsets int64 ``[K + 1]`` of trajectories whose last rows are ``ends``.

    Args:
        ends: int64 ``[K]``, increasing; the last one must be ``num_rows - 1``.
        num_rows: number of rows of the dataset.

    Raises:
        DamagedDataset: the last trajectory has no end.
    """
    if num_rows and (len(ends) == 0 or int(ends[-1]) != num_rows - 1):
        raise DamagedDataset(f"The last trajectory has no end: row {num_rows - 1} is not done.")
    offsets = np.zeros(len(ends) + 1, dtype=np.int64)
    offsets[1:] = ends
    offsets[1:] += 1  # a trajectory ends at the row before the next one begins
    return offsets


def lengths_of(offsets: np.ndarray) -> np.ndarray:
    """Return the rows of each trajectory, int64 ``[K]``."""
    return np.diff(offsets)


def numbers_of(offsets: np.ndarray, start: int, stop: int) -> np.ndarray:
    """Return the number of the trajectory of each row from ``start`` up to ``stop``, int64."""
    # How many offsets are at or before a row; the first offset, 0, always is.
    numbers = np.searchsorted(offsets, np.arange(start, stop), side="right") - 1
    return numbers.astype(np.int64, copy=False)


def ends_of(offsets: np.ndarray, start: int, stop: int) -> np.ndarray:
    """Return whether each row from ``start`` up to ``stop`` is its trajectory's last, bool."""
    is_end = np.zeros(stop - start, np.bool_)
    # Row r ends a trajectory where r + 1 is one of offsets[1:].
    first = int(np.searchsorted(offsets, start + 1, side="left"))
    last = int(np.searchsorted(offsets, stop, side="right"))
    is_end[offsets[first:last] - 1 - start] = True
    return is_end


def first_rows(offsets: np.ndarray, num_rows: int) -> np.ndarray:
    """Return the offsets of a dataset's first rows; the last trajectory may be cut."""
    return np.append(offsets[offsets < num_rows], num_rows)


def num_records(offsets: np.ndarray) -> int:
    """Return the steps of all trajectories: one for each row, and each trajectory's last one."""
    return int(offsets[-1]) + len(offsets) - 1


def record_of(offsets: np.ndarray, trajectory: int, position: int) -> int:
    """Return the number of a step among the steps of all trajectories.

    Args:
        offsets: int64 ``[K + 1]``.
        trajectory: number of the step's trajectory.
        position: 0 for the step of its first row; T for the one after its last row.
    """
    # Each of the trajectories before this one has a step more than it has rows.
    return int(offsets[trajectory]) + trajectory + position


def write_offsets(path: Path, offsets: np.ndarray) -> None:
    """Write offsets int64 ``[K + 1]`` as a plain ``.npy`` file."""
    np.save(path, offsets, allow_pickle=False)


class TrajectoryTable:
    """The table of a dataset, mapped now and read later, also where it was deleted meanwhile.

    Args:
        path: of the file.
        num_rows: transitions N.
        num_trajectories: trajectories K.

    Raises:
        DamagedDataset: the file is not a table of K offsets.
    """

    def __init__(self, path: Path, num_rows: int, num_trajectories: int) -> None:
        self._path, self._num_rows = path, num_rows
        try:
            with open_table(path, num_trajectories) as file:
                self._mapping = map_descriptor(file.fileno())
        except OSError as error:
            raise DamagedDataset(f"{path} cannot be read as a trajectory table: {error}") from error

    def read(self) -> np.ndarray:
        """Return a copy of the offsets int64 ``[K + 1]``.

        Raises:
            DamagedDataset: they do not rise from 0 to num_rows.
        """
        offsets = np.frombuffer(self._mapping, "<i8", offset=HEADER_BYTES).astype(np.int64)
        _check_offsets(offsets, self._path, self._num_rows)
        return offsets


def _check_offsets(offsets: np.ndarray, path: Path, num_rows: int) -> None:
    # Compared and not subtracted: the difference of two damaged offsets may overflow.
    flat = np.flatnonzero(offsets[1:] <= offsets[:-1])
    if len(flat) or offsets[0] != 0 or offsets[-1] != num_rows:
        where = f"; trajectory {flat[0]} has no row" if len(flat) else ""
        raise DamagedDataset(
            f"{path}: expected offsets that rise from 0 to {num_rows}, found {offsets[0]} to "
            f"{offsets[-1]}{where}. {reinstall_advice_at(path)}"
        )
