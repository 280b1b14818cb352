"""Every element type that a leaf may have, with rows of random bits, compared as bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

# Written out once more: torch's name, and the numpy type in which rows travel.
NUMPY: dict[str, Any] = {
    **{name: name for name in ("bool", "uint8", "uint16", "uint32", "uint64")},
    **{name: name for name in ("int8", "int16", "int32", "int64")},
    **{name: name for name in ("float16", "float32", "float64", "complex64", "complex128")},
    "bfloat16": [("bfloat16", "<u2")],
    "complex32": [("complex32", "<u4")],
    "float8_e4m3fn": [("float8_e4m3fn", "u1")],
    "float8_e4m3fnuz": [("float8_e4m3fnuz", "u1")],
    "float8_e5m2": [("float8_e5m2", "u1")],
    "float8_e5m2fnuz": [("float8_e5m2fnuz", "u1")],
    "float8_e8m0fnu": [("float8_e8m0fnu", "u1")],
    "float4_e2m1fn_x2": [("float4_e2m1fn_x2", "u1")],
}
KNOWN_TO_TENSORDICT = [name for name in NUMPY if not name.startswith(("float8", "float4"))]
"""The types that ``TensorDict.load_memmap`` of tensordict 0.14.3 reads; it raises for others."""

SHAPES: dict[str, tuple[int, ...]] = {"0": (), "1": (1,), "2": (3, 2), "none": (0,)}


def random_rows(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Rows of any bits that the type has, NaN, infinity and numbers above 2**63 among them."""
    dtype = np.dtype(NUMPY[name])
    if name == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    bits = rng.integers(0, 256, int(np.prod(shape)) * dtype.itemsize).astype(np.uint8)
    return bits.view(dtype).reshape(shape)


def random_tensor(name: str, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """A tensor of random bits of a type, made without any operation on the type."""
    rows = random_rows(name, shape, np.random.default_rng(seed))
    if rows.size == 0:
        return torch.empty(shape, dtype=getattr(torch, name))
    flat = torch.frombuffer(bytearray(rows.tobytes()), dtype=getattr(torch, name))
    return flat.view(shape)


def same(found: torch.Tensor, expected: np.ndarray | torch.Tensor, name: str) -> None:
    assert isinstance(found, torch.Tensor), (name, type(found))
    assert str(found.dtype) == f"torch.{name}", (found.dtype, name)
    assert tuple(found.shape) == tuple(expected.shape), (name, found.shape, expected.shape)
    assert bytes_of(found) == bytes_of(expected), name


def bytes_of(rows: np.ndarray | torch.Tensor) -> bytes:
    if isinstance(rows, np.ndarray):
        return rows.tobytes()
    return bytes(rows.contiguous().clone().untyped_storage()) if rows.numel() else b""


def keys_of(group: str) -> Iterable[tuple[tuple[str, ...], str, tuple[int, ...]]]:
    """Key, type and row shape of a leaf of every type and shape below a group."""
    for name in NUMPY:
        for tag, shape in SHAPES.items():
            yield (group, name, tag), name, shape
