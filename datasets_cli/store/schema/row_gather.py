"""Gathering the same rows of several tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from datasets_cli.store.schema.bits import to_array

# Copies from this size on, in bytes, are torch's: its threads pay.
THREADED_BYTES = 128 << 10


class RowGather:
    """Copies of the same rows of several tensors."""

    # numpy's `take` is up to twice as fast as torch's `index_select` where there is little to copy,
    # but it takes -1 for the last row, or for the first.
    # tensors: `[N, ...]` of one N, of types that torch can move. Their memory stays where it is:
    # what moves it, as sending them to another process does, leaves numpy's behind.

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        takes = [_take_of(tensor) for tensor in tensors]
        self._is_mixed = any(takes)
        if self._is_mixed:
            # torch gathers the least of them, and refuses numbers that are no rows for all.
            taken = [number for number, take in enumerate(takes) if take is not None]
            takes[min(taken, key=lambda number: _cost_of_check(tensors[number]))] = None
        self._columns = [
            (tensor, take, THREADED_BYTES // max(1, tensor[:1].nbytes))
            for tensor, take in zip(tensors, takes, strict=True)
        ]

    def rows(self, index: torch.Tensor) -> list[torch.Tensor]:
        """Return copies ``[B, ...]`` of the rows ``index`` int64 ``[B]`` of every tensor."""
        if not self._is_mixed:
            return [tensor.index_select(0, index) for tensor, _, _ in self._columns]
        numbers, size = index.numpy(), len(index)
        return [
            # "clip" is the mode that checks least
            tensor.index_select(0, index)
            if take is None or size > most_rows
            else torch.from_numpy(take(numbers, 0, None, "clip"))
            for tensor, take, most_rows in self._columns
        ]

    def arrays(self, index: torch.Tensor) -> list[np.ndarray]:
        """Return the rows as ``rows`` does, in numpy's memory; see ``to_array`` for its types."""
        numbers, size = index.numpy(), len(index)
        return [
            to_array(tensor.index_select(0, index))
            if take is None or size > most_rows
            else take(numbers, 0, None, "clip")
            for tensor, take, most_rows in self._columns
        ]


def _take_of(tensor: torch.Tensor) -> Callable[..., np.ndarray] | None:
    """Return what takes rows of the same memory in numpy; None where numpy cannot."""
    # Of rows of no bytes torch checks no numbers; numpy does not have bfloat16.
    if tensor.device.type != "cpu" or not tensor.nbytes or tensor.dtype == torch.bfloat16:
        return None
    return tensor.numpy().take


def _cost_of_check(tensor: torch.Tensor) -> tuple[bool, int]:
    """Return what is least for the tensor that torch checks the numbers on."""
    # torch raises RuntimeError in place of IndexError on [N, 1].
    return tensor.ndim > 1 and len(tensor) == tensor.numel(), tensor.nbytes
