"""The bytes of an open file, mapped read-only, for which no descriptor is kept.

Before Python 3.13 ``mmap.mmap`` keeps one as long as the mapping lives. A dataset has many files,
and macOS allows a process 256: it could open twenty. The function of the C library keeps none.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable

import numpy as np

_LIBC = ctypes.CDLL(None, use_errno=True)
_MAP = _LIBC.mmap
_MAP.restype = ctypes.c_void_p
_MAP.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *3 * (ctypes.c_int,), ctypes.c_long)
_UNMAP = _LIBC.munmap
_UNMAP.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value


class _Pages:
    """A mapping, which goes with the last array, tensor or view that is over it."""

    def __init__(self, address: int, size: int) -> None:
        # True: read-only.
        place = {"version": 3, "typestr": "|u1", "shape": (size,), "data": (address, True)}
        self.__array_interface__ = place
        self._end = address, size

    # A finalizer of weakref would cost half as much as the mapping.
    def __del__(self, unmap: Callable[[int, int], int] = _UNMAP) -> None:
        unmap(*self._end)


def map_descriptor(descriptor: int, size: int) -> memoryview:
    """Return the first bytes of an open file, one or more; the descriptor may then be closed."""
    address = _MAP(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    if address == _FAILED:
        error = ctypes.get_errno()
        raise OSError(error, f"it cannot be mapped: {os.strerror(error)}")
    return np.asarray(_Pages(address, size)).data
