"""Maps files read-only, as bytes, numpy arrays or the table of trajectories; without torch."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from datasets_cli.core.system_errors import damaged
from datasets_cli.errors import DamagedDataset
from datasets_cli.schema.trajectory_file import HEADER_BYTES, check_table
from datasets_cli.sources.regular_file import open_sized

# Before Python 3.13 `mmap.mmap` holds a file descriptor as long as the mapping exists. A dataset
# has many files, and macOS allows 256 for a process, so it could open twenty datasets. The function
# of the C library holds none.
_LIBC = ctypes.CDLL(None, use_errno=True)
_MAP = _LIBC.mmap
_MAP.restype = ctypes.c_void_p
_MAP.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *3 * (ctypes.c_int,), ctypes.c_long)
_UNMAP = _LIBC.munmap
_UNMAP.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_ADVISE = _LIBC.madvise
_ADVISE.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_FAILED = ctypes.c_void_p(-1).value


def map_array(path: Path | str, dtype: str | np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Map a file as a read-only array of this dtype and shape."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    mapping = map_bytes(path, size) if size else b""  # no file
    return np.frombuffer(mapping, dtype).reshape(shape)


def forget_pages(array: np.ndarray) -> None:
    """Release the pages of a mapped array from this process's memory; they can be read again."""
    if array.size:
        _ADVISE(array.ctypes.data, array.nbytes, mmap.MADV_DONTNEED)


def map_bytes(path: Path | str, expected: int | None = None) -> memoryview:
    """Map a whole file read-only, and check its size."""
    descriptor, size = open_sized(path)  # a file object would cost more than the mapping
    try:
        if not size:
            raise damaged(path, f"{path} is empty", expected=expected, found=0)
        if expected not in (None, size):
            raise damaged(
                path,
                f"{path}: expected {expected} bytes, found {size}",
                expected=expected,
                found=size,
            )
        return map_descriptor(descriptor, size)
    finally:
        os.close(descriptor)


class _Pages:
    """A mapping, released with the last array, tensor or view of it."""

    def __init__(self, address: int, size: int) -> None:
        # True: read-only.
        place = {"version": 3, "typestr": "|u1", "shape": (size,), "data": (address, True)}
        self.__array_interface__ = place
        self._end = address, size

    # `weakref.finalize` would cost half as much as the mapping.
    def __del__(self, unmap: Callable[[int, int], int] = _UNMAP) -> None:
        unmap(*self._end)


def map_descriptor(descriptor: int, size: int) -> memoryview:
    """Map the first ``size`` bytes of an open file; the descriptor may be closed afterwards."""
    address = _MAP(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    if address == _FAILED:
        error = ctypes.get_errno()
        raise OSError(error, f"the file cannot be mapped: {os.strerror(error)}")
    return np.asarray(_Pages(address, size)).data


class TrajectoryTable:
    """The trajectory table of a dataset, mapped on opening, and readable after a deletion."""

    def __init__(self, path: Path | str, num_rows: int, num_trajectories: int) -> None:
        self._path, self._num_rows = path, num_rows
        try:
            self._mapping = map_bytes(path)
        except OSError as error:
            raise DamagedDataset(
                f"The trajectory table {path} cannot be read: {error}.", path=path
            ) from error
        check_table(path, self._mapping, num_trajectories)

    def read(self) -> np.ndarray:
        """Return a copy of the offsets int64 ``[K + 1]``."""
        offsets = np.frombuffer(self._mapping, "<i8", offset=HEADER_BYTES).astype(np.int64)
        # Compared, not subtracted: the difference of damaged offsets may overflow.
        flat = np.flatnonzero(offsets[1:] <= offsets[:-1])
        if len(flat) or offsets[0] != 0 or offsets[-1] != self._num_rows:
            where = f"; trajectory {flat[0]} has no row" if len(flat) else ""
            raise damaged(
                self._path,
                f"{self._path}: expected offsets that rise from 0 to {self._num_rows}, found "
                f"{offsets[0]} to {offsets[-1]}{where}",
                expected=f"0 to {self._num_rows}",
                found=f"{offsets[0]} to {offsets[-1]}",
            )
        return offsets
