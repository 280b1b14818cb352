"""Rows in numpy, of every element type that a leaf may have."""

from __future__ import annotations

import numpy as np

from datasets_cli.store.schema.element_types import ITEM_BYTES, NUMPY_TYPES


def numpy_dtype(name: str) -> np.dtype:
    """Return the dtype of rows of an element type; see ``element_types``."""
    if name in NUMPY_TYPES:
        return np.dtype(name)
    return np.dtype([(name, f"<u{ITEM_BYTES[name]}")])


def row_data(rows: np.ndarray, name: str) -> memoryview:
    """Return the bytes of rows ``[n, *shape]`` in the order and the form of a leaf file."""
    return np.ascontiguousarray(rows, numpy_dtype(name)).data
