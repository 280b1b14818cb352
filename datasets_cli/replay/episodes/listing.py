"""A table as people read it: its first and last rows, numbers under their names."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

SHOWN = 4
"""Rows at each end."""


def list_rows(columns: Mapping[str, np.ndarray]) -> str:
    """Return a table as lines; "..." stands for the rows between the first and the last ones."""
    # columns: of one length, `[K, ...]` each, by name.
    num_rows = len(next(iter(columns.values())))
    is_whole = num_rows <= 2 * SHOWN + 1
    rows = [*range(num_rows)] if is_whole else [*range(SHOWN), *range(num_rows - SHOWN, num_rows)]
    cells = [[name, *(_show(values[row]) for row in rows)] for name, values in columns.items()]
    widths = [max(map(len, column)) for column in cells]
    lines = [
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in zip(*cells, strict=True)
    ]
    if not is_whole:
        lines.insert(1 + SHOWN, "...".rjust(widths[0]))
    return "\n".join(lines)


def _show(value: np.ndarray) -> str:
    if value.ndim:
        return "[" + ", ".join(_show(part) for part in value) + "]"
    return f"{value:.6g}" if value.dtype.kind == "f" else str(value)
