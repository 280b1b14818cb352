"""The dtypes of leaves: their names, their sizes, and their form in numpy.

A name is that of torch, without ``torch.``. Rows of a dtype that numpy lacks are structured arrays
with one unsigned field, which has the name of the dtype:

    bfloat16 [n, 3]    np.zeros((n, 3), np.dtype([("bfloat16", "<u2")]))
    its bits           rows["bfloat16"], uint16 [n, 3]

Slices, ``take``, ``concatenate``, ``zeros`` and ``==`` work as for numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

NUMPY_TYPES = frozenset(
    {
        *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    }
)
"""The dtypes that numpy has, with the same names."""

ITEM_BYTES = {
    **dict.fromkeys(("bool", "uint8", "int8"), 1),
    **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"), 1),
    **dict.fromkeys(("float8_e8m0fnu", "float4_e2m1fn_x2"), 1),
    **dict.fromkeys(("uint16", "int16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("uint32", "int32", "float32", "complex32"), 4),
    **dict.fromkeys(("uint64", "int64", "float64", "complex64"), 8),
    "complex128": 16,
}
"""The bytes of one element, for each dtype that a leaf may have.

Other dtypes of torch have no operations (``int4``, ``bits8``) or need a scale (``qint8``). An
element of ``float4_e2m1fn_x2`` is a pair of numbers.
"""

EXACT_BELOW = 2**53
"""float64 represents all smaller whole numbers exactly."""


def rounded(numbers: Iterable[tuple[int, int]]) -> str:
    """Return the first number that float64 would round, as part of a message; empty if none."""
    # numbers: pairs of a row and its number.
    for row, number in numbers:
        if (nearest := float(str(number))) != number:
            return f"has {number} in row {row:,}, which float64 would round to {nearest:.0f}"
    return ""


@lru_cache
def numpy_dtype(name: str) -> np.dtype:
    """Return the numpy dtype of rows of a dtype."""
    import numpy as np

    if name in NUMPY_TYPES:
        return np.dtype(name)
    return np.dtype([(name, f"<u{ITEM_BYTES[name]}")])


def row_data(rows: np.ndarray, name: str) -> memoryview:
    """Return the bytes of rows ``[n, *shape]`` as a leaf file stores them."""
    import numpy as np

    return np.ascontiguousarray(rows, numpy_dtype(name)).data


@lru_cache
def element_type(dtype: np.dtype) -> str | None:
    """Return the name of the dtype of numpy rows, or None if leaves cannot have it."""
    native = dtype.newbyteorder("=")
    if native.names is None:
        return native.name if native.name in NUMPY_TYPES else None
    name = native.names[0]
    if len(native.names) > 1 or name in NUMPY_TYPES or name not in ITEM_BYTES:
        return None
    field = native[name]
    fits = field.kind == "u" and field.itemsize == native.itemsize == ITEM_BYTES[name]
    return name if fits else None
