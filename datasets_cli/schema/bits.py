"""Gathers, joins and fills rows in torch, for every dtype that a leaf may have.

For some dtypes torch cannot gather rows by number (``uint16``, ``float4_e2m1fn_x2``), write them
(``float8_e8m0fnu``) or fill an empty tensor. Such rows are moved as their *bits*, a view as signed
integers of the same width.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch

from datasets_cli.errors import Unsupported, WrongRows
from datasets_cli.schema.columns import ITEM_BYTES, NUMPY_TYPES, numpy_dtype
from datasets_cli.schema.shapes import check_numbers

MOVABLE = frozenset(
    {
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float16, torch.float32, torch.float64, torch.bfloat16),
        *(torch.complex64, torch.complex128),
    }
)
"""The dtypes that torch gathers, writes and fills on every device."""
SHARED_ELEMENTS = 32_768
"""The number of elements from which torch distributes an operation among its threads."""
NUMPY_TYPED = MOVABLE - {torch.bfloat16}
"""The dtypes of ``MOVABLE`` that numpy has."""

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
TYPE_NAMES = {dtype: name for name in ITEM_BYTES if (dtype := getattr(torch, name, None))}
"""The names of the storable dtypes in this version of torch."""


@cache
def torch_dtype(name: str) -> torch.dtype:
    """Return the torch dtype of a name."""
    dtype = getattr(torch, name, None)
    if name not in ITEM_BYTES or not isinstance(dtype, torch.dtype):
        raise Unsupported(
            f"Rows of dtype {name} cannot be read: torch {torch.__version__} lacks this dtype.",
            expected=name,
            found=f"torch {torch.__version__}",
            advice="Upgrade torch: pip install --upgrade torch",
        )
    return dtype


def type_name(dtype: torch.dtype) -> str:
    """Return the name of a torch dtype."""
    if dtype not in TYPE_NAMES:
        known = ", ".join(sorted(ITEM_BYTES))
        raise WrongRows(
            f"Rows of dtype {dtype} cannot be stored. Expected one of {known}.",
            expected=known,
            found=str(dtype),
            advice="Convert them first, or store their bits.",
        )
    return TYPE_NAMES[dtype]


@cache
def bits_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype for moving rows: the same dtype, or integers of the same width."""
    return dtype if dtype in MOVABLE else _INTEGERS[ITEM_BYTES[type_name(dtype)]]


def bits_of(rows: torch.Tensor) -> torch.Tensor:
    """Return rows that torch can move: the rows, or a view of them as integers."""
    if rows.dtype in MOVABLE:
        return rows
    if rows.is_conj():  # a lazy flag, which a view of the bits would lose
        rows = rows.resolve_conj()
    return rows.detach().view(bits_dtype(rows.dtype))


def bytes_of(rows: torch.Tensor) -> torch.Tensor:
    """Return rows ``[n, *shape]`` of any dtype as bytes uint8 ``[n, row_bytes]``."""
    flat = rows.contiguous().view(len(rows), -1) if rows.numel() else rows.new_zeros((len(rows), 0))
    return flat.view(torch.uint8)


def checked_numbers(index: torch.Tensor, num_rows: int) -> np.ndarray:
    """Return row numbers as a numpy array int64 ``[B]``, after a check that the rows exist."""
    return check_numbers(index.numpy(force=True).astype(np.int64, copy=False), num_rows)


def take_rows(rows: torch.Tensor, numbers: np.ndarray) -> torch.Tensor:
    """Return copies of existing rows of any dtype on the CPU."""
    # In one thread of numpy: torch distributes 32,768 elements or more among its threads and waits
    # for them, which takes 20 times as long if other work uses the cores.
    if rows.requires_grad or rows.is_conj() or rows.is_neg():  # flags that numpy lacks
        return rows.index_select(0, torch.from_numpy(numbers))
    if rows.dtype in NUMPY_TYPED:
        return torch.from_numpy(rows.numpy().take(numbers, 0, None, "clip"))
    return to_tensor(to_array(rows).take(numbers, 0, None, "clip"))


def take(rows: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Return copies of the rows ``index`` int64 ``[B]``, of any dtype."""
    if rows.is_cpu:
        return take_rows(rows, checked_numbers(index, len(rows)))
    return bits_of(rows).index_select(0, index).view(rows.dtype)


def join_tensors(parts: Sequence[torch.Tensor], dim: int = 0) -> torch.Tensor:
    """Concatenate tensors of one dtype along a dimension."""
    # In one thread of numpy, without gradients; see `take_rows`.
    if all(part.is_cpu and not part.requires_grad for part in parts):
        return to_tensor(np.concatenate([to_array(part) for part in parts], dim))
    return torch.cat([bits_of(part) for part in parts], dim).view(parts[0].dtype)


def fill_rows(rows: torch.Tensor, places: torch.Tensor, value: float = 0) -> None:
    """Set the rows at positions int64 ``[n]`` to one number, which their dtype can represent."""
    filled = rows if value else bits_of(rows)
    if filled.is_cpu and filled.dtype in NUMPY_TYPED:  # in one thread; see `take_rows`
        filled.numpy()[places.numpy()] = value
    else:
        filled.index_fill_(0, places.to(filled.device), value)


def stack_tensors(items: list[torch.Tensor]) -> torch.Tensor:
    """Stack tensors of one shape and one dtype as rows of a tensor."""
    dtype, shape = items[0].dtype, items[0].shape
    if dtype not in MOVABLE and all(item.dtype == dtype for item in items):
        return stack_tensors([bits_of(item) for item in items]).view(dtype)
    step = (SHARED_ELEMENTS - 1) // max(1, shape.numel())  # stacked by one thread of torch
    if step >= len(items) or any(
        item.requires_grad or not item.is_cpu or (item.dtype, item.shape) != (dtype, shape)
        for item in items
    ):
        return torch.stack(items)
    if not step:
        return join_tensors([item.unsqueeze(0) for item in items])
    stacked = torch.empty((len(items), *shape), dtype=dtype)
    for start in range(0, len(items), step):
        torch.stack(items[start : start + step], out=stacked[start : start + step])
    return stacked


def to_tensor(rows: np.ndarray) -> torch.Tensor:
    """Return rows from ``to_array`` as a tensor of the same memory."""
    if rows.dtype.names is None:
        return torch.from_numpy(rows)
    bits = rows.view(f"i{rows.dtype.itemsize}")
    return torch.from_numpy(bits).view(torch_dtype(rows.dtype.names[0]))


def to_array(rows: torch.Tensor) -> np.ndarray:
    """Return rows of any dtype in numpy, possibly in the same memory; see ``element_types``."""
    rows = rows.detach().cpu()
    name = type_name(rows.dtype)
    if name in NUMPY_TYPES:
        return rows.resolve_conj().numpy()
    bits = rows.view(torch.int16) if rows.dtype == torch.bfloat16 else bits_of(rows)
    return bits.contiguous().numpy().view(numpy_dtype(name))


def widened(rows: np.ndarray) -> np.ndarray | None:
    """Return rows of a dtype that numpy lacks as float32 or complex64; None if torch cannot."""
    leaf = to_tensor(rows)
    try:
        return leaf.to(torch.complex64 if leaf.is_complex() else torch.float32).numpy()
    except (RuntimeError, NotImplementedError):
        return None
