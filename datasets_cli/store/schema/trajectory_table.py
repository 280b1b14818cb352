"""The trajectory table of an open dataset, which stays readable after the dataset was deleted."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from datasets_cli.damage import damaged
from datasets_cli.errors import DamagedDataset
from datasets_cli.store.schema.mapping import map_bytes
from datasets_cli.store.schema.trajectory_file import HEADER_BYTES, check_table


class TrajectoryTable:
    """The table of a dataset, mapped now and read later, also where it was deleted meanwhile."""

    def __init__(self, path: Path, num_rows: int, num_trajectories: int) -> None:
        self._path, self._num_rows = path, num_rows
        try:
            self._mapping = map_bytes(path)
        except OSError as error:
            raise DamagedDataset(f"{path} cannot be read as a trajectory table: {error}") from error
        check_table(path, self._mapping, num_trajectories)

    def read(self) -> np.ndarray:
        """Return a copy of the offsets int64 ``[K + 1]``."""
        offsets = np.frombuffer(self._mapping, "<i8", offset=HEADER_BYTES).astype(np.int64)
        _check_offsets(offsets, self._path, self._num_rows)
        return offsets


def _check_offsets(offsets: np.ndarray, path: Path, num_rows: int) -> None:
    # Compared and not subtracted: the difference of two damaged offsets may overflow.
    flat = np.flatnonzero(offsets[1:] <= offsets[:-1])
    if len(flat) or offsets[0] != 0 or offsets[-1] != num_rows:
        where = f"; trajectory {flat[0]} has no row" if len(flat) else ""
        raise damaged(
            path,
            f"{path}: expected offsets that rise from 0 to {num_rows}, found {offsets[0]} to "
            f"{offsets[-1]}{where}",
        )
