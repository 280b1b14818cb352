"""Row numbers: from a user's index to flat rows, and to places in several dimensions."""

from __future__ import annotations

import math
import reprlib
from typing import TypeGuard

import torch
from tensordict import TensorDictBase

from datasets_cli.errors import OutOfRange
from datasets_cli.replay.arguments import Index, NestedKey, Rows
from datasets_cli.replay.storages.collate import map_rows
from datasets_cli.replay.storages.protocol import Storage


def is_key(index: Index) -> TypeGuard[NestedKey]:
    """Return whether an index is a key: a name, or a tuple of names."""
    if isinstance(index, tuple):
        return bool(index) and all(isinstance(name, str) for name in index)
    return isinstance(index, str)


def row_numbers(index: Index, storage: Storage) -> torch.Tensor:
    """Return the flat row numbers int64 of an index, in its shape."""
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
        raise OutOfRange(f"Rows are whole numbers, not {reprlib.repr(index)}.") from error
    if rows.dtype == torch.bool:
        if rows.shape != (num_rows,):
            raise OutOfRange(f"A mask must have one entry a row ({num_rows}), not {[*rows.shape]}.")
        return rows.nonzero().flatten()
    if rows.numel() == 0:
        return rows.long()
    floating = rows.is_floating_point() or rows.is_complex()
    rows = rows if floating else rows.long()  # narrow integers would wrap around
    if floating or int(rows.min()) < -num_rows or int(rows.max()) >= num_rows:
        if not num_rows:
            raise OutOfRange(storage.no_rows)
        known = f"whole numbers from {-num_rows} to {num_rows - 1}"
        raise OutOfRange(f"Rows are {known}, not {reprlib.repr(index)}.")
    return torch.where(rows < 0, rows + num_rows, rows)


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


def unravel_rows(storage: Storage, rows: torch.Tensor) -> torch.Tensor:
    """Return flat rows int64 ``[B]`` as places: unchanged, or ``[B, ndim]``; -1 stays."""
    if storage.ndim == 1:
        return rows
    places = torch.stack(torch.unravel_index(rows.clamp(min=0), storage.grid), -1)
    return torch.where(rows.unsqueeze(-1) < 0, rows.unsqueeze(-1), places)


def flat_rows(storage: Storage, numbers: torch.Tensor) -> torch.Tensor:
    """Return the flat rows int64 ``[B]`` of places; the inverse of ``unravel_rows``."""
    if storage.ndim == 1:
        return numbers.reshape(-1)
    steps = [math.prod(storage.grid[depth + 1 :]) for depth in range(storage.ndim)]
    return (numbers * torch.tensor(steps, device=numbers.device)).sum(-1).clamp(min=-1)


def without_index(data: Rows) -> Rows:
    """Return rows without ``index``, which a batch or TorchRL's writer adds."""
    has_index = isinstance(data, TensorDictBase) and "index" in data.keys()  # noqa: SIM118
    return data.exclude("index") if has_index else data
