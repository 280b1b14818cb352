"""Chunks of HDF5: how large they are, and how many are read at a time.

HDF5 lists the chunks that a read touches, with some 6,500 bytes for each, before it reads one.
"""

from __future__ import annotations

import math

import h5py
import numpy as np

from datasets_cli.formats.limits import limit


def chunks_beside(shape: tuple[int, ...], chunk: tuple[int, ...]) -> int:
    """Return how many chunks have values of one row."""
    pairs = zip(shape[1:], chunk[1:], strict=True)
    return math.prod(math.ceil(size / width) for size, width in pairs)


def rows_per_read(shape: tuple[int, ...], chunk: tuple[int, ...] | None) -> int:
    """Return how many rows are read at a time, at least one.

    Args:
        shape: of the array.
        chunk: shape of its chunks; None where it has none.
    """
    if chunk is None:
        return max(1, shape[0])
    return max(1, limit("chunks") // max(1, chunks_beside(shape, chunk))) * chunk[0]


def read_array(dataset: h5py.Dataset, start: int, stop: int) -> np.ndarray:
    """Return rows of an array, ``[stop - start, ...]``, read by few chunks at a time."""
    stop = min(stop, dataset.shape[0])
    step = rows_per_read(dataset.shape, dataset.chunks)
    if stop - start <= step:
        return np.asarray(dataset[start:stop])
    rows = np.empty((stop - start, *dataset.shape[1:]), dataset.dtype)
    for first in range(start, stop, step):
        last = min(first + step, stop)
        rows[first - start : last - start] = dataset[first:last]
    return rows
