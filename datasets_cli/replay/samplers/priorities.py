"""Priorities: one number a row, and draws of rows in proportion to a power of it.

Row i is drawn with probability ``(p_i + eps)^alpha / sum_j (p_j + eps)^alpha`` (Schaul et al.,
2016, "Prioritized Experience Replay", equation 1).
"""

from __future__ import annotations

import math
from typing import Generic, Protocol, TypeVar

import numpy as np
import torch

from datasets_cli.errors import EmptyBuffer, UsageError
from datasets_cli.replay.samplers.sum_tree import Drawn, RunningSums, SumTree

Array = TypeVar("Array", np.ndarray, torch.Tensor)


class WeightTree(Protocol[Array]):
    """Weights of leaves, and what it takes to work with their kind of array; see ``SumTree``."""

    def array(self, values: torch.Tensor) -> Array:
        """Return a tensor as the kind of array that this tree works on."""

    def power(self, values: Array, exponent: float) -> Array:
        """Return ``values ** exponent``."""

    def limits(self, leaf: Array, values: Array) -> tuple[int, int, float]:
        """Return the first and last of leaves int64 ``[B]``, and the highest of values."""

    def put(self, numbers: Array, leaf: Array, values: Array) -> Array:
        """Give leaves numbers, of equal leaves the last counts; return what each has then."""

    @property
    def total(self) -> float:
        """The sum of all weights."""

    def draw(self, chance: torch.Tensor, count: int, exponent: float) -> Drawn:
        """Return leaves by chances float64 ``[B]``, and powers for their importance weights."""

    def set(self, leaf: Array, weights: Array) -> None:
        """Give leaves int64 ``[B]`` weights ``[B]``, or one; of equal leaves the last counts."""

    def set_run(self, start: int, weights: Array) -> None:
        """Give the leaves from ``start`` on weights float64 ``[n]``."""

    def least(self, count: int) -> float:
        """Return the least weight of the first ``count`` leaves that have one, or infinity."""


class Priorities(Generic[Array]):
    """The priorities of the rows of a storage, and a sum tree over their powers."""

    # Its arrays are those of the tree; only what both kinds have is used. Not safe for two threads
    # at once.

    def __init__(
        self, tree: WeightTree[Array], capacity: int, alpha: float, eps: float, device: torch.device
    ) -> None:
        self.capacity = capacity
        self.eps = eps
        self._alpha = alpha
        self._tree: WeightTree[Array] = tree
        unknown = torch.full((capacity,), -1.0, dtype=torch.float64, device=device)
        self._raw: Array = tree.array(unknown)  # -1 marks a row without a priority
        self._allowed: Array | None = None  # bool [capacity], or None where every row may be drawn
        self._num_known = 0  # no row from here on has a priority
        self._num_allowed = 0  # rows that may be drawn, where not every one may be
        self._num_covered = 0  # rows that the storage had when it was last looked at

    @property
    def alpha(self) -> float:
        """The power; setting it works out the weight of every row again."""
        return self._alpha

    @alpha.setter
    def alpha(self, value: float) -> None:
        self._alpha = value
        self._weigh(0, self._num_known)

    @property
    def known(self) -> torch.Tensor:
        """The priorities float64 ``[n]`` of the rows up to the last that has one; -1 for none."""
        return torch.as_tensor(self._raw[: self._num_known])

    def set(self, rows: torch.Tensor, priority: torch.Tensor) -> float:
        """Give rows priorities and return the highest; of equal rows the last counts."""
        # rows: int64 `[B]`; -1 is passed over.
        # priority: floats, one a row `[B]` or one for all `[]`; their sign does not matter.
        return self._set(self._tree.array(rows), abs(self._tree.array(priority)))

    def _set(self, row: Array, value: Array) -> float:
        if not len(row):
            return -1.0
        first, last, highest = self._tree.limits(row, value)
        if first < -1:
            raise UsageError(
                f"There is no row {first}: rows count from 0, and -1 is one that was refused."
            )
        if first < 0:
            meant = row >= 0  # those that the writer took
            return self._set(row[meant], value[meant] if value.ndim else value)
        if not math.isfinite(highest):
            raise UsageError("A priority is NaN or infinite; expected numbers. Is the loss finite?")
        if last >= self.capacity:
            raise UsageError(f"Row {last} is not below the max_capacity of {self.capacity}.")
        self._num_known = max(self._num_known, last + 1)
        kept = self._tree.put(self._raw, row, value)
        weights = self._tree.power(kept + self.eps, self._alpha)
        self._tree.set(row, weights if self._allowed is None else weights * self._allowed[row])
        return highest

    def fill(self, priorities: torch.Tensor) -> None:
        """Give the first rows priorities float64 ``[n]``; -1 for none."""
        self._num_known = len(priorities)
        self._raw[: self._num_known] = self._tree.array(priorities)
        self._weigh(0, self._num_known)

    def clear(self, rows: torch.Tensor) -> None:
        """Take the priorities from rows int64 ``[B]``, which must get new ones before a draw."""
        self._raw[self._tree.array(rows[rows >= 0])] = -1

    def has_size(self, num_rows: int) -> bool:
        """Return whether the rows that can be drawn are the first ``num_rows``."""
        return num_rows == self._num_covered == self._num_known

    def resize(self, num_rows: int, default: float) -> None:
        """Make the rows that can be drawn the first ``num_rows``."""
        if self._num_known > num_rows:
            self._raw[num_rows : self._num_known] = -1
            self._weigh(num_rows, self._num_known)
        start = min(self._num_covered, num_rows)
        new = self._raw[start:num_rows]
        if (new < 0).any():
            new[new < 0] = default
            self._weigh(start, num_rows)
        self._num_covered = self._num_known = num_rows

    def set_mask(self, allowed: torch.Tensor) -> None:
        """Draw only among the rows that ``allowed`` bool ``[N]`` marks, until the next call."""
        if self._allowed is None:
            everything = torch.ones(self.capacity, dtype=torch.bool, device=allowed.device)
            self._allowed = self._tree.array(everything)
        self._allowed[: len(allowed)] = self._tree.array(allowed)
        self._num_allowed = int(allowed.sum())
        self._weigh(0, len(allowed))

    def draw(self, count: int, beta: float, generator: torch.Generator) -> Drawn:
        """Return rows int64 ``[count]`` and importance weights float64 ``[count]``."""
        # A weight is `(power of the row's priority / the least power of all rows)^-beta`: 1 for the
        # row that is drawn most rarely, less for all others.
        total = self._tree.total
        if not 0 < total < math.inf:
            raise EmptyBuffer(
                "There is nothing to draw from: the storage is empty, or every priority is 0 with "
                f"eps 0, or their powers overflow. The sum of (|p| + eps)^alpha is {total}."
            )
        # float64: a float32 cannot name every row of a storage above 2**24 rows.
        device = generator.device
        chance = torch.rand(count, dtype=torch.float64, generator=generator, device=device)
        return self._tree.draw(chance, self._num_known, -beta)

    def max_weight(self, beta: float) -> float:
        """Return ``(n * p)^-beta`` of the row that is drawn most rarely, with probability p."""
        # By it `draw` divides the weights `(n * p)^-beta` of all n rows, so that they are at most
        # 1; times it, weights of rows that were drawn by several samplers compare. It is 1 where
        # all are drawn alike, as before any row has a priority.
        total = self._tree.total
        if not total:
            return 1.0
        count = self._num_known if self._allowed is None else self._num_allowed
        return float((count * self._tree.least(self._num_known) / total) ** -beta)

    def _weigh(self, start: int, stop: int) -> None:
        """Work out the weights of the rows ``start`` to ``stop - 1`` from their priorities."""
        raw = self._raw[start:stop]
        weights = self._tree.power(abs(raw) + self.eps, self._alpha) * (raw >= 0)
        if self._allowed is not None:
            weights *= self._allowed[start:stop]
        self._tree.set_run(start, weights)


def priorities_on(
    device: torch.device, capacity: int, alpha: float, eps: float
) -> Priorities[np.ndarray] | Priorities[torch.Tensor]:
    """Return priorities without any known: with numpy's arrays on the CPU, torch's elsewhere."""
    if device.type == "cpu":
        return Priorities(SumTree(capacity), capacity, alpha, eps, device)
    return Priorities(RunningSums(capacity, device), capacity, alpha, eps, device)
