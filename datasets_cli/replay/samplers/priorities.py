"""Priorities: one number per row, and draws of rows in proportion to a power of it.

Row i is drawn with probability ``(p_i + eps)^alpha / sum_j (p_j + eps)^alpha`` (Schaul et al.,
2016, "Prioritized Experience Replay", equation 1).
"""

from __future__ import annotations

import math
from typing import Generic

import numpy as np
import torch

from datasets_cli.errors import EmptyBuffer, OutOfRange, wrong_value
from datasets_cli.replay.samplers.sum_tree import (
    Array,
    Drawn,
    RunningSums,
    SumTree,
    WeightTree,
)
from datasets_cli.schema.shapes import Mask, RowNumbers


class Priorities(Generic[Array]):
    """The priorities of the rows of a storage, and a sum tree over their powers."""

    # Its arrays are of the tree's kind; only operations that both kinds have are used. Not
    # thread-safe.

    def __init__(
        self, tree: WeightTree[Array], capacity: int, alpha: float, eps: float, device: torch.device
    ) -> None:
        self.capacity = capacity
        self.eps = eps
        self._alpha = alpha
        self._tree: WeightTree[Array] = tree
        unknown = torch.full((capacity,), -1.0, dtype=torch.float64, device=device)
        self._raw: Array = tree.array(unknown)  # -1 marks a row without a priority
        self._allowed: Array | None = None  # bool [capacity]; None if every row can be drawn
        self._num_known = 0  # the last row with a priority, plus 1
        self._num_allowed = 0  # True values in `_allowed`
        self._num_covered = 0  # rows of the storage at the last call of `resize`

    @property
    def alpha(self) -> float:
        return self._alpha

    @alpha.setter
    def alpha(self, value: float) -> None:
        self._alpha = value
        self._weigh(0, self._num_known)

    @property
    def known(self) -> torch.Tensor:
        """The priorities float64 ``[n]`` of the rows up to the last with one; -1 if missing."""
        return torch.as_tensor(self._raw[: self._num_known])

    def set(self, rows: RowNumbers, priority: torch.Tensor) -> float:
        """Set the priorities ``[B]``, or one for all ``[]``, of rows; return the highest.

        The row -1 is skipped, and of a repeated row the last priority counts. The absolute values
        are set. The highest of an empty batch is -1.
        """
        return self._set(self._tree.array(rows), abs(self._tree.array(priority)))

    def _set(self, row: Array, value: Array) -> float:
        if not len(row):
            return -1.0
        first, last, highest = self._tree.limits(row, value)
        if first < -1:
            raise OutOfRange(
                f"Row {first} does not exist: rows are numbered from 0; -1 stands for a row that "
                "the writer rejected.",
                argument="index",
                row=first,
                expected=f"-1 to {self.capacity - 1}",
                found=first,
            )
        if first < 0:
            written = row >= 0
            return self._set(row[written], value[written] if value.ndim else value)
        if not math.isfinite(highest):
            raise wrong_value(
                "priority", "finite numbers", highest, "Check that the loss is finite."
            )
        if last >= self.capacity:
            raise OutOfRange(
                f"Row {last} is not below the max_capacity of {self.capacity}.",
                argument="index",
                row=last,
                expected=f"-1 to {self.capacity - 1}",
                found=last,
            )
        self._num_known = max(self._num_known, last + 1)
        stored = self._tree.put(self._raw, row, value)
        weights = self._tree.power(stored + self.eps, self._alpha)
        self._tree.set(row, weights if self._allowed is None else weights * self._allowed[row])
        return highest

    def fill(self, priorities: torch.Tensor) -> None:
        """Set the priorities float64 ``[n]`` of the first rows; -1 if missing."""
        self._num_known = len(priorities)
        self._raw[: self._num_known] = self._tree.array(priorities)
        self._weigh(0, self._num_known)

    def clear(self, rows: RowNumbers) -> None:
        """Remove the priorities of rows, which must get new ones before a draw."""
        self._raw[self._tree.array(rows[rows >= 0])] = -1

    def has_size(self, num_rows: int) -> bool:
        """Return whether exactly the first ``num_rows`` rows have priorities."""
        return num_rows == self._num_covered == self._num_known

    def resize(self, num_rows: int, default: float) -> None:
        """Remove the priorities of rows from ``num_rows``; set the missing ones to ``default``."""
        if self._num_known > num_rows:
            self._raw[num_rows : self._num_known] = -1
            self._weigh(num_rows, self._num_known)
        start = min(self._num_covered, num_rows)
        new = self._raw[start:num_rows]
        if (new < 0).any():
            new[new < 0] = default
            self._weigh(start, num_rows)
        self._num_covered = self._num_known = num_rows

    def set_mask(self, allowed: Mask) -> None:
        """Restrict draws to the rows that are True, until the next call."""
        if self._allowed is None:
            all_rows = torch.ones(self.capacity, dtype=torch.bool, device=allowed.device)
            self._allowed = self._tree.array(all_rows)
        self._allowed[: len(allowed)] = self._tree.array(allowed)
        self._num_allowed = int(allowed.sum())
        self._weigh(0, len(allowed))

    def draw(self, count: int, beta: float, generator: torch.Generator) -> Drawn:
        """Return row numbers int64 ``[count]``, and importance weights float64 ``[count]``.

        A weight is ``(p / p_min)^-beta`` of the probability of the row and the least probability of
        all rows: 1 for the rarest row, less for every other.
        """
        total = self._tree.total
        if not 0 < total < math.inf:
            raise EmptyBuffer(
                f"No row can be drawn: the sum of (|p| + eps)^alpha is {total}.",
                expected="a positive, finite sum",
                found=total,
                advice="Write rows, or set priorities that are neither all 0 (with eps=0) nor so "
                "large that their powers overflow.",
            )
        # float64: float32 cannot number the rows of a storage above 2**24 rows.
        device = generator.device
        chance = torch.rand(count, dtype=torch.float64, generator=generator, device=device)
        return self._tree.draw(chance, self._num_known, -beta)

    def max_weight(self, beta: float) -> float:
        """Return the largest importance weight ``(n * p)^-beta``: that of the rarest row.

        ``draw`` divides the weights by it, so that they are at most 1. Multiplied by it again, the
        weights of several samplers are comparable. It is 1 before any row has a priority.
        """
        total = self._tree.total
        if not total:
            return 1.0
        count = self._num_known if self._allowed is None else self._num_allowed
        return float((count * self._tree.least(self._num_known) / total) ** -beta)

    def _weigh(self, start: int, stop: int) -> None:
        """Compute the weights of the rows ``start`` to ``stop - 1`` from their priorities."""
        raw = self._raw[start:stop]
        weights = self._tree.power(abs(raw) + self.eps, self._alpha) * (raw >= 0)
        if self._allowed is not None:
            weights *= self._allowed[start:stop]
        self._tree.set_run(start, weights)


def priorities_on(
    device: torch.device, capacity: int, alpha: float, eps: float
) -> Priorities[np.ndarray] | Priorities[torch.Tensor]:
    """Return empty priorities: of numpy arrays on the CPU, of torch tensors on other devices."""
    if device.type == "cpu":
        return Priorities(SumTree(capacity), capacity, alpha, eps, device)
    return Priorities(RunningSums(capacity, device), capacity, alpha, eps, device)
