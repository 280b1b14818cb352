"""Stand-ins for TorchRL's compiled trees, which its wheel cannot load: its own Python runs on them.

Only what ``torchrl/data/replay_buffers/samplers/prioritized*.py`` calls: items by numbers, numpy
arrays or tensors, ``query`` over a range, ``scan_lower_bound``. Each is one plain array.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchrl.data.replay_buffers.samplers import prioritized


class ValueArray:
    empty: Any = 0
    dtype: Any = np.float32

    def __init__(self, size: int) -> None:
        self.values = np.full(size, self.empty, self.dtype)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, torch.Tensor):
            return torch.from_numpy(np.atleast_1d(self.values[index.numpy()]).reshape(index.shape))
        return self.values[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        rows = np.atleast_1d(np.asarray(index))
        values = np.broadcast_to(np.asarray(value, self.dtype).reshape(-1), rows.shape)
        for row, one in zip(rows.tolist(), values, strict=True):  # of equal rows the last counts
            self.values[row] = one


class SumArray(ValueArray):
    def query(self, start: int, stop: int) -> Any:
        return self.values[start:stop].sum()

    def scan_lower_bound(self, mass: Any) -> torch.Tensor:
        """The first leaves up to which the sum is not less than a mass; the size beyond all."""
        return torch.as_tensor(np.searchsorted(self.values.cumsum(), np.asarray(mass)))


class MinArray(ValueArray):
    empty = np.finfo(np.float32).max

    def query(self, start: int, stop: int) -> Any:
        return self.values[start:stop].min()


@pytest.fixture(autouse=True, scope="module")
def trees() -> Iterator[None]:
    """TorchRL's prioritised samplers work, on stand-ins for their trees."""
    with pytest.MonkeyPatch.context() as patch:
        for name, base in (("Sum", SumArray), ("Min", MinArray)):
            for bits, dtype in ((32, np.float32), (64, np.float64)):
                made = type(f"{name}Array{bits}", (base,), {"dtype": dtype})
                patch.setattr(prioritized, f"{name}SegmentTreeFp{bits}", made)
        yield
