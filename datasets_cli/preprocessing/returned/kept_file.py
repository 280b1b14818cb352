"""The file that says which rows of a task are kept, beside the task's mark and written before it.

It has a bit for each row that the function got. There is none where all are kept.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from datasets_cli.sources.disk import flush


def write_kept(mark: Path, kept: np.ndarray | None) -> None:
    """Write which rows of a task are kept.

    Args:
        mark: of the task, which says that it is done.
        kept: bool ``[n]``; None for all.
    """
    path = _path(mark)
    if kept is None:
        path.unlink(missing_ok=True)  # what a killed worker left
        return
    np.packbits(kept).tofile(path)
    flush(path)


def read_kept(mark: Path, num_rows: int) -> np.ndarray | None:
    """Return which rows of a task that is done are kept, bool ``[n]``; None for all."""
    try:
        bits = np.fromfile(_path(mark), np.uint8)
    except FileNotFoundError:
        return None
    return np.unpackbits(bits, count=num_rows).astype(np.bool_)


def _path(mark: Path) -> Path:
    return mark.with_suffix(".kept")
