"""Numbers as users write them, their element types and devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from datasets_cli.errors import UsageError

ARITHMETIC = frozenset(
    (
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    )
)
"""The element types whose values torch compares and draws."""


def as_tensor(value: Any) -> torch.Tensor:
    """Return numbers as a tensor: a copy, but of what is a tensor."""
    if isinstance(value, torch.Tensor):
        return value
    try:
        return torch.from_numpy(np.array(value))
    except (TypeError, ValueError) as error:
        raise UsageError(f"A value must be numbers of one shape, not {value!r}.") from error


def known_dtype(dtype: torch.dtype | None) -> torch.dtype:
    """Return an element type; torch's default one where None."""
    if dtype is None:
        return torch.get_default_dtype()
    if not isinstance(dtype, torch.dtype):
        raise UsageError(f"dtype must be an element type such as torch.float32, not {dtype!r}.")
    return dtype


def torch_dtype(name: Any) -> torch.dtype:
    """Return the element type of torch that has a name, such as ``float32``."""
    dtype = getattr(torch, name, None) if isinstance(name, str) else None
    if not isinstance(dtype, torch.dtype):
        raise UsageError(f"There is no element type {name!r} in torch {torch.__version__}.")
    return dtype


def cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return numbers in another element type; whole numbers stay what they are."""
    found = tensor.to(dtype)
    is_whole = not dtype.is_floating_point and not dtype.is_complex and tensor.dtype != dtype
    if is_whole and not bool((found == tensor).all()):
        raise UsageError(f"Values of {dtype} are whole numbers that it has, not {tensor.tolist()}.")
    return found


def clamped(value: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """Return the nearest values between bounds, in the element type of these."""
    low, high = low.to(value.device), high.to(value.device)
    near = value if low.dtype.is_floating_point else value.round()
    # Bounds are compared before the cast: what is beyond them may be beyond the element type.
    near = torch.where(value <= low, low, near.to(low.dtype))
    return torch.where(value >= high, high, near)


def known_device(device: str | torch.device | None) -> torch.device:
    """Return a device with its number; torch's default device where None."""
    if device is None:
        return torch.get_default_device()
    try:
        named = torch.device(device)
        if named.type == "cuda" and named.index is None:
            named = torch.device("cuda", torch.cuda.current_device())
    except (RuntimeError, TypeError, AssertionError) as error:
        raise UsageError(f"{device!r} is not a device of this machine: {error}") from error
    return named
