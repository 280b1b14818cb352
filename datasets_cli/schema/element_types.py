"""Element types of leaves: their names, their sizes, and what numpy calls them.

A name is torch's, without ``torch.``. For a type that numpy lacks, rows travel in numpy as a
structured array of one unsigned field that has the type's name:

    bfloat16 [n, 3]    np.zeros((n, 3), np.dtype([("bfloat16", "<u2")]))
    its bits           rows["bfloat16"], uint16 [n, 3]

Slices, ``take``, ``concatenate``, ``zeros`` and ``==`` work on them as on numbers.
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
"""Element types that numpy has, under the same name."""

ITEM_BYTES = {
    **dict.fromkeys(("bool", "uint8", "int8"), 1),
    **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"), 1),
    **dict.fromkeys(("float8_e8m0fnu", "float4_e2m1fn_x2"), 1),
    **dict.fromkeys(("uint16", "int16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("uint32", "int32", "float32", "complex32"), 4),
    **dict.fromkeys(("uint64", "int64", "float64", "complex64"), 8),
    "complex128": 16,
}
"""The element types that a leaf may have, and the bytes of one element.

torch's others are shells without operations (``int4``, ``bits8``) or have a scale beside the
elements (``qint8``). An element of ``float4_e2m1fn_x2`` is a pair of numbers.
"""

EXACT_BELOW = 2**53
"""Smaller whole numbers are values of float64; larger ones may lie between two."""


def rounded(numbers: Iterable[tuple[int, int]]) -> str:
    """Return the first whole number that float64 does not hold, for messages; empty for none."""
    # numbers: each after its row.
    for row, number in numbers:
        if (nearest := float(str(number))) != number:
            return f"has {number} in row {row:,}, which float64 would round to {nearest:.0f}"
    return ""


@lru_cache
def numpy_dtype(name: str) -> np.dtype:
    """Return the dtype of rows of an element type."""
    import numpy as np

    if name in NUMPY_TYPES:
        return np.dtype(name)
    return np.dtype([(name, f"<u{ITEM_BYTES[name]}")])


def row_data(rows: np.ndarray, name: str) -> memoryview:
    """Return the bytes of rows ``[n, *shape]`` in the order and the form of a leaf file."""
    import numpy as np

    return np.ascontiguousarray(rows, numpy_dtype(name)).data


@lru_cache
def element_type(dtype: np.dtype) -> str | None:
    """Return the name of the element type of numpy rows, or None where no leaf can have it."""
    native = dtype.newbyteorder("=")
    if native.names is None:
        return native.name if native.name in NUMPY_TYPES else None
    name = native.names[0]
    if len(native.names) > 1 or name in NUMPY_TYPES or name not in ITEM_BYTES:
        return None
    field = native[name]
    fits = field.kind == "u" and field.itemsize == native.itemsize == ITEM_BYTES[name]
    return name if fits else None
