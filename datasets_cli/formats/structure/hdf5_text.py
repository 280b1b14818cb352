"""Texts and bytes of variable length in HDF5: the rows are references into heaps of the file.

    reference    length uint32 | address of the heap | number in it uint32

Any number of rows can refer to the same bytes, and HDF5 copies them for each: rows of 16 bytes
become gigabytes. So the lengths are added up before the values are read.
"""

from __future__ import annotations

import math
import os

import h5py
import numpy as np

from datasets_cli.formats.limits import check_limit, limit

_REFERENCE_BYTES = 16


def has_texts_elsewhere(dataset: h5py.Dataset) -> bool:
    """Return whether the values of a dataset are of variable length."""
    return h5py.check_vlen_dtype(dataset.dtype) is not None


def read_texts(dataset: h5py.Dataset, start: int, stop: int) -> np.ndarray:
    """Return rows of values of variable length, objects ``[stop - start, ...]``.

    Raises:
        SourceError: they have more bytes together than is read.
    """
    lengths = _lengths(dataset, start, stop)
    if lengths is not None:
        check_limit("text_bytes", int(lengths.sum()), _where(dataset, start))
        return np.asarray(dataset[start:stop])
    # No value is larger than the file.
    step = max(1, limit("text_bytes") // max(1, dataset.file.id.get_filesize()))
    rows = np.empty((max(0, stop - start), *dataset.shape[1:]), object)
    num_bytes = 0
    for row in range(0, len(rows), step):
        some = rows[row : row + step]
        some[:] = dataset[start + row : start + row + len(some)]
        num_bytes += sum(len(value) for value in some.flat)
        check_limit("text_bytes", num_bytes, _where(dataset, start))
    return rows


def _where(dataset: h5py.Dataset, start: int) -> str:
    return f"{dataset.name}, a block of rows from {start} on,"


def _lengths(dataset: h5py.Dataset, start: int, stop: int) -> np.ndarray | None:
    """Return the length of each value, uint32 ``[n]``; None where references are not in one run."""
    first, file = dataset.id.get_offset(), dataset.file
    # Another driver has no file, and other sizes of addresses would be other references.
    is_plain = file.driver == "sec2" and file.userblock_size == 0
    is_whole = dataset.id.get_storage_size() == dataset.size * _REFERENCE_BYTES
    if first is None or not (is_plain and is_whole):
        return None
    row_bytes = math.prod(dataset.shape[1:]) * _REFERENCE_BYTES
    data = os.pread(
        file.id.get_vfd_handle(), max(0, stop - start) * row_bytes, first + start * row_bytes
    )
    return np.frombuffer(data[: len(data) // 16 * 16], "<u4")[:: 16 // 4]
