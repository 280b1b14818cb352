"""Shapes, numbers, element types and devices as users write them, and what changes shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import accumulate
from operator import mul
from typing import Any, SupportsIndex

import numpy as np
import torch

from datasets_cli.errors import OutOfRange, UsageError

ShapeLike = SupportsIndex | Iterable[SupportsIndex]
"""One size, or the size of each dimension."""

SCALAR = torch.Size(())

Change = Callable[[torch.Tensor], torch.Tensor]
"""Changes the first dimensions of a tensor; those that follow them stay as they are."""


def shape_of(shape: ShapeLike | None) -> torch.Size:
    """Return a shape; that of a single value where None."""
    if shape is None:
        return SCALAR
    try:
        sizes: Any = tuple(shape) if isinstance(shape, Iterable) else (shape,)
        known = torch.Size(sizes)
    except (TypeError, ValueError) as error:
        raise UsageError(f"A shape must be whole numbers, not {shape!r}.") from error
    if any(size < 0 for size in known):
        raise UsageError(f"Sizes of a shape must be 0 or more, not {tuple(known)}.")
    return known


def written_sizes(sizes: tuple[Any, ...]) -> tuple[int, ...]:
    """Return the sizes of ``expand(2, 3)`` or ``expand((2, 3))``; -1 is kept."""
    is_sequence = len(sizes) == 1 and isinstance(sizes[0], Iterable)
    return tuple(sizes[0] if is_sequence else sizes)


def dimension(number: int, ndim: int) -> int:
    """Return the number of a dimension, counted from the first."""
    if not -ndim <= number < ndim:
        raise OutOfRange(f"There is no dimension {number} among {ndim}.")
    return number % ndim


def ends_with(shape: torch.Size, end: torch.Size) -> bool:
    """Return whether a shape is another one, or that one after other dimensions."""
    return len(shape) >= len(end) and shape[len(shape) - len(end) :] == end


def after_change(shape: torch.Size, change: Change) -> torch.Size:
    """Return what a change makes of a shape."""
    return change(_no_memory(shape)).shape


def keeps_last(shape: torch.Size, change: Change) -> torch.Size:
    """Return what a change makes of a shape whose last dimension must not change."""
    places = torch.arange(shape[-1])
    changed = change(places.expand(shape))
    if changed.shape[-1:] != places.shape or not torch.equal(changed, places.expand_as(changed)):
        raise UsageError(
            f"The last dimension of {tuple(shape)} is one value and cannot be changed or indexed; "
            "what comes before it can."
        )
    return changed.shape


def indexing(index: Any, ndim: int) -> Change:
    """Return the change that an index makes to tensors whose first ``ndim`` dimensions it is of."""
    items = index if isinstance(index, tuple) else (index,)
    ellipses = [place for place, item in enumerate(items) if item is Ellipsis]
    if ellipses:
        # [..., 0] of 3 dimensions is [:, :, 0]: what follows these must not be indexed.
        missing = ndim - sum(map(_num_indexed, items))
        first = ellipses[0]
        items = (*items[:first], *(slice(None),) * missing, *items[first + 1 :])
    if sum(map(_num_indexed, items)) > ndim:
        raise OutOfRange(f"{ndim} dimensions cannot be indexed by {index!r}.")
    return lambda tensor: tensor[items]


def can_become(first: Iterable[int], second: Iterable[int]) -> bool:
    """Return whether a shape is another one, some of whose dimensions are divided or joined."""
    # Numbers [2, 3] of [3, 2] would be other rows: neither 2 nor 3 is where both begin anew.
    ends, others = (tuple(accumulate(shape, mul, initial=1)) for shape in (first, second))
    return ends[-1] == others[-1] and ({*ends} <= {*others} or {*others} <= {*ends})


def _num_indexed(item: Any) -> int:
    """Return how many dimensions an item of an index is of."""
    if item is None or item is Ellipsis:
        return 0
    is_mask = isinstance(item, torch.Tensor) and item.dtype in (torch.bool, torch.uint8)
    return item.ndim if is_mask else 1


def _no_memory(shape: torch.Size) -> torch.Tensor:
    return torch.zeros((), dtype=torch.uint8).expand(shape)


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
    converted = tensor.to(dtype)
    is_whole = not dtype.is_floating_point and not dtype.is_complex and tensor.dtype != dtype
    if is_whole and not bool((converted == tensor).all()):
        raise UsageError(f"Values of {dtype} are whole numbers that it has, not {tensor.tolist()}.")
    return converted


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
