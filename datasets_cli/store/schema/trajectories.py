"""The trajectory table of a dataset: where each trajectory begins and ends.

    row      0  1  2  3  4  5  6
    episode  0  0  0  1  1  1  1        offsets = [0, 3, 7]

Trajectory ``k`` is the rows ``offsets[k]`` up to, and not including, ``offsets[k + 1]``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from datasets_cli.errors import DamagedDataset

if TYPE_CHECKING:
    import numpy as np

FILENAME = "trajectories.npy"


def offsets_from_ends(ends: np.ndarray, num_rows: int) -> np.ndarray:
    """Return the offsets int64 ``[K + 1]`` of trajectories whose last rows are ``ends``.

    Args:
        ends: int64 ``[K]``, increasing; the last one must be ``num_rows - 1``.
        num_rows: number of rows of the dataset.

    Raises:
        DamagedDataset: the last trajectory has no end.
    """
    import numpy as np

    if num_rows and (len(ends) == 0 or int(ends[-1]) != num_rows - 1):
        raise DamagedDataset(f"The last trajectory has no end: row {num_rows - 1} is not done.")
    offsets = np.zeros(len(ends) + 1, dtype=np.int64)
    offsets[1:] = ends
    offsets[1:] += 1
    return offsets


def write_offsets(path: Path, offsets: np.ndarray) -> None:
    """Write offsets int64 ``[K + 1]`` as a plain ``.npy`` file."""
    import numpy as np

    np.save(path, offsets, allow_pickle=False)


def read_offsets(path: Path, num_rows: int) -> np.ndarray:
    """Read offsets int64 ``[K + 1]`` and check that they cover ``num_rows`` rows.

    Raises:
        DamagedDataset: the file is not a one-dimensional int64 array that rises from 0 to num_rows.
    """
    import numpy as np

    try:
        offsets = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise DamagedDataset(f"{path} cannot be read as a trajectory table: {error}") from error
    if not isinstance(offsets, np.ndarray):
        raise DamagedDataset(f"{path} cannot be read as a trajectory table: it is an archive")
    if offsets.dtype != np.int64 or offsets.ndim != 1 or len(offsets) < 1:
        raise DamagedDataset(
            f"{path}: expected int64 [K+1], found {offsets.dtype} {list(offsets.shape)}."
        )
    if offsets[0] != 0 or offsets[-1] != num_rows or bool((np.diff(offsets) <= 0).any()):
        raise DamagedDataset(
            f"{path}: expected offsets that rise from 0 to {num_rows}, found {offsets[0]} to "
            f"{offsets[-1]}, or a trajectory without rows."
        )
    return np.asarray(offsets)
