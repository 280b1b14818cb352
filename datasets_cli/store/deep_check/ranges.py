"""The range of a column's numbers, found block by block."""

from __future__ import annotations

import numpy as np
import torch

from datasets_cli.schema.columns import Key
from datasets_cli.store.deep_check.report import ColumnReport


def bytes_of(leaf: torch.Tensor) -> torch.Tensor:
    """Return the bytes of rows ``[n, *shape]`` of any element type as uint8 ``[n, row_bytes]``."""
    flat = leaf.contiguous().view(len(leaf), -1) if leaf.numel() else leaf.new_zeros((len(leaf), 0))
    return flat.view(torch.uint8)


class ColumnRange:
    """NaN, infinity, smallest and largest number of one column, so far."""

    def __init__(self, key: Key) -> None:
        self._key = key
        self._num_nan = self._num_infinite = 0
        self._smallest: float | None = None
        self._largest: float | None = None
        self._first: torch.Tensor | None = None
        self._is_constant = True

    def add(self, leaf: torch.Tensor) -> None:
        """Add rows ``[n, *shape]`` of any element type; n is 1 or more."""
        bits = bytes_of(leaf)
        if self._first is None:
            self._first = bits[0].clone()
        self._is_constant = self._is_constant and bool((bits == self._first).all())
        numbers = _numbers(leaf)
        if numbers is None or not numbers.size:
            return
        if numbers.dtype.kind in "fc":
            finite = np.isfinite(numbers)
            num_nan = int(np.isnan(numbers).sum())
            self._num_nan += num_nan
            self._num_infinite += int(numbers.size - finite.sum()) - num_nan
            if not finite.all():
                numbers = numbers[finite]
        if numbers.size and numbers.dtype.kind != "c":
            low, high = numbers.min().item(), numbers.max().item()
            self._smallest = low if self._smallest is None else min(self._smallest, low)
            self._largest = high if self._largest is None else max(self._largest, high)

    def report(self) -> ColumnReport:
        """Return what was found."""
        return ColumnReport(
            self._key,
            self._num_nan,
            self._num_infinite,
            _plain(self._smallest),
            _plain(self._largest),
            self._is_constant,
        )


def _plain(number: float | None) -> float | None:
    return int(number) if isinstance(number, bool) else number


def _numbers(leaf: torch.Tensor) -> np.ndarray | None:
    """Return the numbers of a leaf; None where two are packed into a byte and cannot be told."""
    try:
        return leaf.numpy()
    except TypeError:  # numpy does not have this type
        pass
    try:
        wide = torch.complex64 if leaf.is_complex() else torch.float32
        return leaf.to(wide).numpy()
    except (RuntimeError, NotImplementedError):
        return None
