"""Row numbers: of an index of the user, flat, and ``[B, ndim]`` with several dimensions."""

from __future__ import annotations

import math
import reprlib
from typing import TypeGuard

import torch

from datasets_cli.errors import OutOfRange, wrong_value
from datasets_cli.replay.arguments import Index, NestedKey, Rows
from datasets_cli.replay.storages.collate import map_rows
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.schema.shapes import RowNumbers


def is_key(index: Index) -> TypeGuard[NestedKey]:
    """Return whether an index is a key: a name, or a tuple of names."""
    if isinstance(index, tuple):
        return bool(index) and all(isinstance(name, str) for name in index)
    return isinstance(index, str)


def row_numbers(index: Index, storage: Storage) -> RowNumbers:
    """Return the flat row numbers of an index, int64 in its shape."""
    num_rows = len(storage)
    if storage.ndim > 1:
        by_step = torch.arange(num_rows).view(-1, *storage.grid[1:])
        found: torch.Tensor = by_step.transpose(0, storage.ndim - 1)[index]  # type: ignore[index]
        return found
    if index is Ellipsis:
        index = slice(None)
    if isinstance(index, slice):
        return torch.tensor(range(num_rows)[index], dtype=torch.int64)
    try:
        rows = torch.as_tensor(index)
    except (TypeError, ValueError, RuntimeError) as error:
        raise _not_rows("whole numbers", index) from error
    if rows.dtype == torch.bool:
        if rows.shape != (num_rows,):
            raise wrong_value(
                "index", f"a mask of the shape [{num_rows}]", [*rows.shape], kind=OutOfRange
            )
        return rows.nonzero().flatten()
    if rows.numel() == 0:
        return rows.long()
    floating = rows.is_floating_point() or rows.is_complex()
    rows = rows if floating else rows.long()  # narrow integers would wrap around
    if floating or int(rows.min()) < -num_rows or int(rows.max()) >= num_rows:
        if not num_rows:
            raise OutOfRange(storage.no_rows)
        raise _not_rows(f"whole numbers from {-num_rows} to {num_rows - 1}", index)
    return torch.where(rows < 0, rows + num_rows, rows)


def _not_rows(expected: str, index: Index) -> OutOfRange:
    return OutOfRange(
        f"Row numbers must be {expected}, not {reprlib.repr(index)}.",
        argument="index",
        expected=expected,
        found=index,
    )


def rows_at(storage: Storage, index: Index) -> Rows:
    """Return copies of the stored rows at an index."""
    if storage.ndim == 1 and isinstance(index, slice) and index.step in (None, 1):
        start, stop, _ = index.indices(len(storage))
        return storage.run(start, max(start, stop))
    rows = row_numbers(index, storage)
    if rows.ndim == 0:
        return storage.item(int(rows))
    batch = storage.get(rows.flatten())
    if rows.ndim > 1:
        return map_rows(lambda part: part.reshape(*rows.shape, *part.shape[1:]), batch)
    return batch


def unravel_rows(storage: Storage, rows: RowNumbers) -> torch.Tensor:
    """Return flat row numbers as ``[B, ndim]``, or unchanged with one dimension; -1 stays -1.

    grid [2 steps, 3 environments]    flat  0 1 2 3 4 5
                                      step  0 0 0 1 1 1
                               environment  0 1 2 0 1 2
    """
    if storage.ndim == 1:
        return rows
    numbers = torch.stack(torch.unravel_index(rows.clamp(min=0), storage.grid), -1)
    return torch.where(rows.unsqueeze(-1) < 0, rows.unsqueeze(-1), numbers)


def flat_rows(storage: Storage, numbers: torch.Tensor) -> RowNumbers:
    """Return the flat row numbers of numbers ``[B, ndim]``; the inverse of ``unravel_rows``."""
    if storage.ndim == 1:
        return numbers.reshape(-1)
    # A step along one dimension skips the rows of all later dimensions.
    strides = [math.prod(storage.grid[depth + 1 :]) for depth in range(storage.ndim)]
    return (numbers * torch.tensor(strides, device=numbers.device)).sum(-1).clamp(min=-1)
