"""Sum trees: they draw a leaf with a probability in proportion to its weight.

                10                  each node is the sum of the two below it
           3          7
         1   2      2   5           a mass of 4.5 is not below 3, so go right with 1.5;
         a   b      c   d           that is below 2, so go left: leaf c

The tree is one array of float64, node n above nodes 2n and 2n + 1. A node is always computed from
the two below it, so rounding errors never accumulate. ``SumTree`` uses numpy arrays on the CPU,
where an operation on a batch of 256 takes microseconds. Other devices use ``RunningSums``.

The leaves are the last ``width`` nodes: leaf i is node ``width + i``, and width is a power of 2. A
level of w nodes is the nodes w to 2w - 1, and row n of ``pairs`` is the two nodes below node n.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

import numpy as np
import torch

from datasets_cli.schema.mapping import sent

TABLE = 1024  # nodes of the level that a small batch is looked up in; fits the first cache
SMALL = 1024  # batches up to this size are faster with the table, and with numpy's powers
ONE = np.ones((), np.int64)  # numpy would convert a Python number in every call

Array = TypeVar("Array", np.ndarray, torch.Tensor)

Drawn = tuple[torch.Tensor, torch.Tensor]
"""Leaves int64 ``[B]``, and a power of their weights over the least weight, float64 ``[B]``."""


class WeightTree(ABC, Generic[Array]):
    """Weights of leaves, in one kind of array, and the functions of this kind. Not thread-safe."""

    @abstractmethod
    def array(self, values: torch.Tensor) -> Array:
        """Convert a tensor to the kind of array of this tree."""

    @abstractmethod
    def power(self, values: Array, exponent: float) -> Array:
        """Return ``values ** exponent``."""

    @abstractmethod
    def limits(self, leaf: Array, values: Array) -> tuple[int, int, float]:
        """Return the smallest and largest of leaves int64 ``[B]``, and the largest of values."""

    @abstractmethod
    def put(self, numbers: Array, leaf: Array, values: Array) -> Array:
        """Set the numbers of leaves, and return them; of a repeated leaf the last value counts."""

    @property
    @abstractmethod
    def total(self) -> float:
        """The sum of all weights."""

    @abstractmethod
    def draw(self, chance: torch.Tensor, count: int, exponent: float) -> Drawn:
        """Return leaves by chances float64 ``[B]``, and powers of their relative weights.

        The weights are relative to the least positive weight of the first ``count`` leaves.
        """

    @abstractmethod
    def set(self, leaf: Array, weights: Array) -> None:
        """Set the weights ``[B]``, or one for all, of leaves int64 ``[B]``.

        The weights of a repeated leaf must be equal.
        """

    @abstractmethod
    def set_run(self, start: int, weights: Array) -> None:
        """Set the weights float64 ``[n]`` of the leaves from number ``start``."""

    @abstractmethod
    def least(self, count: int) -> float:
        """Return the least positive weight of the first ``count`` leaves, or infinity."""


class SumTree(WeightTree[np.ndarray]):
    """A sum tree of numpy arrays."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._width = 1 << (capacity - 1).bit_length()
        self._nodes = np.zeros(2 * self._width)
        self._least: tuple[float, int] | None = None

    @staticmethod
    def array(values: torch.Tensor) -> np.ndarray:
        return values.numpy(force=True)

    @staticmethod
    def power(values: np.ndarray, exponent: float) -> np.ndarray:
        if len(values) <= SMALL:
            return values**exponent
        # torch computes many powers in a third of the time.
        return torch.from_numpy(values).pow(exponent).numpy()

    @staticmethod
    def limits(leaf: np.ndarray, values: np.ndarray) -> tuple[int, int, float]:
        # Not by `min` and `max`: these are Python functions, and take three times as long.
        return leaf.item(leaf.argmin()), leaf.item(leaf.argmax()), values.item(values.argmax())

    @staticmethod
    def put(numbers: np.ndarray, leaf: np.ndarray, values: np.ndarray) -> np.ndarray:
        numbers[leaf] = values
        return numbers.take(leaf)

    @property
    def total(self) -> float:
        return float(self._nodes[1])

    def draw(self, chance: torch.Tensor, count: int, exponent: float) -> Drawn:
        leaf, weights = self.scan(self.array(chance) * self.total)
        powers = self.power(weights / self.least(count), exponent)
        return torch.from_numpy(leaf), torch.from_numpy(powers)

    def set(self, leaf: np.ndarray, weights: np.ndarray) -> None:
        nodes = self._nodes
        pairs = nodes.reshape(-1, 2)
        node = leaf + self._width
        nodes[node] = weights
        self._update_least(node)
        width = self._width >> 1
        while width > 4 * len(leaf):  # a wide level: update only the nodes above the changed ones
            node >>= ONE
            pair = pairs.take(node, axis=0)
            nodes[node] = pair[:, 0] + pair[:, 1]
            width >>= 1
        while width:  # a narrow level: updating all nodes is faster than indexing
            pair = pairs[width : 2 * width]
            np.add(pair[:, 0], pair[:, 1], out=nodes[width : 2 * width])
            width >>= 1

    def set_run(self, start: int, weights: np.ndarray) -> None:
        low, high = start + self._width, start + self._width + len(weights)
        self._nodes[low:high] = weights
        self._least = None
        pairs = self._nodes.reshape(-1, 2)
        while low > 1:
            low, high = low >> 1, (high + 1) >> 1  # the nodes above, including both edges
            pair = pairs[low:high]
            np.add(pair[:, 0], pair[:, 1], out=self._nodes[low:high])

    def scan(self, mass: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the leaves int64 ``[B]`` at masses, and their weights float64 ``[B]``."""
        nodes = self._nodes
        width, node, rest = self._look_up(mass)
        left, right = np.empty_like(rest), np.empty(len(rest), np.bool_)
        while width < self._width:
            node += node  # down to the left
            nodes.take(node, 0, left, "clip")
            np.greater_equal(rest, left, right)
            left *= right
            rest -= left  # going right, subtract the sum on the left
            node += right
            width <<= 1
        # If a sum was rounded up, a mass can fall on a leaf of weight 0: search it again.
        weights = nodes.take(node)
        if not weights.all():
            empty = weights <= 0
            node[empty] = self._descend(mass[empty])
            weights = nodes.take(node)
        node -= self._width
        return node, weights

    def least(self, count: int) -> float:
        # It is cached, and searched again only after its leaf was set. Leaves from `count` on must
        # have weight 0.
        if self._least is None:
            weights = self._nodes[self._width : self._width + count]
            leaf = weights.argmin()
            if weights[leaf] <= 0:
                weights = np.where(weights > 0, weights, np.inf)
                leaf = weights.argmin()
            self._least = float(weights[leaf]), int(leaf) + self._width
        return self._least[0]

    def _look_up(self, mass: np.ndarray) -> tuple[int, np.ndarray, np.ndarray]:
        """Return a level's width, the nodes of masses at it, and the masses within these nodes."""
        if len(mass) > SMALL or self._width <= TABLE:
            return 1, np.ones(len(mass), np.int64), mass.copy()
        # Node i of the level covers the masses from ends[i - 1] to ends[i].
        level = self._nodes[TABLE : 2 * TABLE]
        ends = level.cumsum()
        node = ends.searchsorted(mass, side="right")
        np.minimum(node, TABLE - 1, out=node)
        rest = mass - ends.take(node)
        rest += level.take(node)  # mass - ends[i - 1]
        node += TABLE
        return TABLE, node, rest

    def _descend(self, mass: np.ndarray) -> np.ndarray:
        """Return the nodes of leaves at masses; their weight is positive even if sums round."""
        node, rest = np.ones(len(mass), np.int64), mass.copy()
        pairs, width = self._nodes.reshape(-1, 2), 1
        while width < self._width:
            pair = pairs.take(node, axis=0)
            right = (pair[:, 1] > 0) & ((rest >= pair[:, 0]) | (pair[:, 0] <= 0))
            rest -= pair[:, 0] * right
            node = 2 * node + right  # nodes 2n and 2n + 1 are below node n
            width <<= 1
        return node

    def _update_least(self, node: np.ndarray) -> None:
        """Update the cached least weight after these leaves were set, or clear it."""
        if self._least is None:
            return
        least, where = self._least
        weights = self._nodes.take(node)
        lowest = weights.argmin()
        if weights[lowest] <= 0:
            weights = np.where(weights > 0, weights, np.inf)
            lowest = weights.argmin()
        if weights[lowest] <= least:
            self._least = float(weights[lowest]), int(node[lowest])
        elif self._nodes[where] != least:
            self._least = None


class RunningSums(WeightTree[torch.Tensor]):
    """The weights as a tensor on a device, such as CUDA."""

    # A device adds up a million numbers in about the time of one small operation. A tree of a
    # million leaves takes 200 operations: some ten for each level.

    def __init__(self, capacity: int, device: torch.device) -> None:
        self.capacity = capacity
        self.device = device
        self._weights = torch.zeros(capacity, dtype=torch.float64, device=device)
        self._ends: torch.Tensor | None = None  # running sums of the weights; None after a change

    def array(self, values: torch.Tensor) -> torch.Tensor:
        dtype = torch.float64 if values.is_floating_point() else values.dtype
        return sent(values.detach(), self.device).to(dtype)

    @staticmethod
    def power(values: torch.Tensor, exponent: float) -> torch.Tensor:
        return values**exponent

    @staticmethod
    def limits(leaf: torch.Tensor, values: torch.Tensor) -> tuple[int, int, float]:
        # Wait for the device once, not three times; float64 is exact for every row number.
        first, last, highest = torch.stack((*leaf.aminmax(), values.max())).tolist()
        return int(first), int(last), highest

    @staticmethod
    def put(numbers: torch.Tensor, leaf: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        if values.ndim:  # a device writes in any order: give repeated leaves equal values
            ordered, position = leaf.sort(stable=True)
            last = torch.searchsorted(ordered, leaf, right=True) - 1
            values = values.index_select(0, position.index_select(0, last))
        numbers[leaf] = values
        return values

    @property
    def total(self) -> float:
        return float(self._sums()[-1])  # waits for the device

    def draw(self, chance: torch.Tensor, count: int, exponent: float) -> Drawn:
        ends = self._sums()
        # A chance is below 1: its product with the last end is below this end.
        leaf = torch.searchsorted(ends, self.array(chance) * ends[-1], right=True)
        # A device adds in any order: by rounding, a mass can fall on a leaf of weight 0. The leaf
        # of least weight replaces it.
        least, rarest = self._least(count)
        weights = self._weights.index_select(0, leaf)
        leaf = torch.where(weights > 0, leaf, rarest)
        return leaf, (weights.clamp_(min=least) / least) ** exponent

    def set(self, leaf: torch.Tensor, weights: torch.Tensor) -> None:
        self._weights[leaf] = weights
        self._ends = None

    def set_run(self, start: int, weights: torch.Tensor) -> None:
        self._weights[start : start + len(weights)] = weights
        self._ends = None

    def least(self, count: int) -> float:
        return float(self._least(count)[0])

    def _sums(self) -> torch.Tensor:
        """Return the running sums of the weights, float64 ``[capacity]``."""
        if self._ends is None:
            self._ends = self._weights.cumsum(0)
        return self._ends

    def _least(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the least positive weight of the first leaves, and its leaf, both ``[]``."""
        weights = torch.threshold(self._weights[:count], 0.0, math.inf)  # 0 becomes infinite
        least, leaf = weights.min(0)
        return least, leaf
