"""The mark of a task: the file that says that its rows are written, and which it kept.

It is empty where the function kept all rows. Else it has a bit for each row that the function got.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from datasets_cli.errors import DamagedDataset
from datasets_cli.sources.disk import flush, replace_file


def write_mark(mark: Path, kept: np.ndarray | None) -> None:
    """Write the mark of a task whose rows are on the disk."""
    # kept: which rows are kept, bool `[n]`; None for all.
    if kept is None:
        mark.touch()
        return
    new = mark.with_suffix(f".{os.getpid()}")
    np.packbits(kept).tofile(new)
    flush(new)
    replace_file(new, mark)


def read_mark(mark: Path, num_rows: int) -> np.ndarray | None:
    """Return which of the rows that a task read are kept, bool ``[n]``; None for all."""
    bits = np.fromfile(mark, np.uint8)
    if not len(bits):
        return None
    expected = -(-num_rows // 8)  # rounded up
    if len(bits) != expected:
        raise DamagedDataset(
            f"{mark} has {len(bits)} bytes; expected {expected}, a bit for each of {num_rows:,} "
            f"rows that a function got. Delete {mark.parents[1]}, and run again."
        )
    return np.unpackbits(bits, count=num_rows).astype(np.bool_)
