"""One leaf of a dataset, read in blocks of rows; no other leaf is read."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from datasets_cli.schema.columns import Column, rows_per_block
from datasets_cli.schema.element_types import NUMPY_TYPES
from datasets_cli.schema.tree import entry
from datasets_cli.store.dataset import Dataset

AS_FLOAT32 = frozenset(
    {"bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"}
)
"""Element types that numpy does not have, whose every number float32 has."""

BLOCK_ROWS = 16_384
"""At most; records of 11 leaves take a third less time so than with four times as many rows."""


def block_dtype(column: Column) -> np.dtype | None:
    """Return the element type of a leaf's blocks; None where numpy has none for its numbers."""
    if column.dtype in AS_FLOAT32:
        return np.dtype(np.float32)
    return np.dtype(column.dtype) if column.dtype in NUMPY_TYPES else None


def leaf_blocks(
    dataset: Dataset, column: Column, rows: np.ndarray | None = None
) -> Iterator[np.ndarray]:
    """Yield the rows of a leaf in blocks ``[n, *shape]`` of a few megabytes."""
    # rows: which rows, int64 `[B]`; all in order where None.
    reader = dataset.rows_of(frozenset({column.key}))
    num_rows = len(dataset) if rows is None else len(rows)
    # By the size of whole rows: the compact layout copies records to give one leaf of them. It is
    # the same in every layout, so that sums are the same to the last bit.
    row_bytes = sum(each.row_bytes for each in dataset.manifest.columns)
    step = min(BLOCK_ROWS, rows_per_block(row_bytes))
    for start in range(0, num_rows, step):
        stop = min(start + step, num_rows)
        index = torch.arange(start, stop) if rows is None else torch.from_numpy(rows[start:stop])
        leaf = entry(reader.gather(index), column.key)
        yield (leaf.float() if column.dtype in AS_FLOAT32 else leaf).cpu().numpy()
