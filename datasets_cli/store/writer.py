"""Which layout a dataset gets, and what writes it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from datasets_cli.store.compact.records import is_frame
from datasets_cli.store.compact.writer import CompactWriter
from datasets_cli.store.schema.columns import Key, column_of
from datasets_cli.store.ted.writer import TedWriter

DatasetWriter = TedWriter | CompactWriter


def best_layout(rows: Mapping[Key, np.ndarray]) -> str:
    """Return the layout for rows ``[n, ...]`` where no layout was chosen: compact for frames."""
    frames = any(is_frame(column_of(key, values)) for key, values in rows.items())
    return "compact" if frames else "ted"


def new_writer(
    layout: str, folder: Path, id: str, offsets: np.ndarray | None = None
) -> DatasetWriter:
    """Return what writes a layout into a new folder.

    Args:
        layout: ``"ted"`` or ``"compact"``.
        folder: a new folder; created.
        id: named in messages.
        offsets: trajectories int64 ``[K + 1]`` that are known already; see ``TedWriter``.
    """
    return (CompactWriter if layout == "compact" else TedWriter)(folder, id, offsets)
