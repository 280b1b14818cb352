"""Sum trees: they draw a leaf with a probability in proportion to its weight.

                10                  each node is the sum of the two below it
           3          7
         1   2      2   5           a mass of 4.5 is not below 3, so go right with 1.5;
         a   b      c   d           that is below 2, so go left: leaf c

The tree is one array of float64, node n above nodes 2n and 2n + 1. A node is always computed from
the two below it, so rounding errors never pile up. This one is numpy's, for the CPU, where a batch
of 256 is a matter of microseconds an operation; ``DeviceSumTree`` is torch's, for other devices.

The leaves are the last ``width`` nodes: leaf i is node ``width + i``, and width is a power of 2. A
level of w nodes is the nodes w to 2w - 1, and row n of ``pairs`` is the two nodes below node n.
"""

from __future__ import annotations

import numpy as np
import torch

TABLE = 1024  # nodes of the level that a small batch is looked up in; fits the first cache
SMALL = 1024  # batches up to this are faster by the table, and by numpy's powers


class SumTree:
    """A sum tree of numpy arrays. Not locked: one thread at a time."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._width = 1 << (capacity - 1).bit_length()
        self._nodes = np.zeros(2 * self._width)
        self._least: tuple[float, int] | None = None

    @staticmethod
    def array(values: torch.Tensor) -> np.ndarray:
        """Return a tensor as the kind of array that this tree works on; memory may be shared."""
        return values.numpy(force=True)

    @staticmethod
    def tensor(values: np.ndarray) -> torch.Tensor:
        """Return an array as a tensor; memory is shared."""
        return torch.from_numpy(values)

    @staticmethod
    def power(values: np.ndarray, exponent: float) -> np.ndarray:
        """Return ``values ** exponent``; of many by torch, which takes a third of the time."""
        if len(values) <= SMALL:
            return values**exponent
        return torch.from_numpy(values).pow(exponent).numpy()

    @property
    def total(self) -> float:
        """The sum of all weights."""
        return float(self._nodes[1])

    def weights(self, leaf: np.ndarray) -> np.ndarray:
        """Return the weights float64 ``[B]`` of leaves int64 ``[B]``."""
        return self._nodes.take(leaf + self._width)

    def set(self, leaf: np.ndarray, weights: np.ndarray) -> None:
        """Give leaves int64 ``[B]`` weights ``[B]``, or one; of equal leaves the last counts."""
        nodes = self._nodes
        pairs = nodes.reshape(-1, 2)
        node = leaf + self._width
        nodes[node] = weights
        self._keep_least(node)
        width = self._width >> 1
        while width > 4 * len(leaf):  # a wide level: only the nodes above the changed ones
            node >>= 1
            pair = pairs.take(node, axis=0)
            nodes[node] = pair[:, 0] + pair[:, 1]
            width >>= 1
        while width:  # a level this narrow is faster whole, without any index
            pair = pairs[width : 2 * width]
            np.add(pair[:, 0], pair[:, 1], out=nodes[width : 2 * width])
            width >>= 1

    def set_run(self, start: int, weights: np.ndarray) -> None:
        """Give the leaves from ``start`` on weights float64 ``[n]``."""
        low, high = start + self._width, start + self._width + len(weights)
        self._nodes[low:high] = weights
        self._least = None
        pairs = self._nodes.reshape(-1, 2)
        while low > 1:
            low, high = low >> 1, (high + 1) >> 1  # the nodes above, of both edges too
            pair = pairs[low:high]
            np.add(pair[:, 0], pair[:, 1], out=self._nodes[low:high])

    def scan(self, mass: np.ndarray) -> np.ndarray:
        """Return the leaves int64 ``[B]`` under which masses float64 ``[B]`` fall."""
        nodes = self._nodes
        width, node, rest = self._look_up(mass)
        left, right = np.empty_like(rest), np.empty(len(rest), np.bool_)
        while width < self._width:
            node <<= 1  # to the left node below
            nodes.take(node, 0, left, "clip")
            np.greater_equal(rest, left, right)
            left *= right
            rest -= left  # what is passed over on the way to the right
            node += right
            width <<= 1
        # Sums that were rounded up let a mass fall beyond the last weight.
        empty = nodes.take(node) <= 0
        if empty.any():
            node[empty] = self._descend(mass[empty])
        node -= self._width
        return node

    def least(self, count: int) -> float:
        """Return the least weight of the first ``count`` leaves that have one, or infinity."""
        # It is kept between calls, and searched again only when the leaf that had it was set. So
        # every weight must be in those first leaves.
        if self._least is None:
            weights = self._nodes[self._width : self._width + count]
            leaf = weights.argmin()
            if weights[leaf] <= 0:
                weights = np.where(weights > 0, weights, np.inf)
                leaf = weights.argmin()
            self._least = float(weights[leaf]), int(leaf) + self._width
        return self._least[0]

    def _look_up(self, mass: np.ndarray) -> tuple[int, np.ndarray, np.ndarray]:
        """Return a level's width, the nodes there for masses, and what is left of the masses."""
        if len(mass) > SMALL or self._width <= TABLE:
            return 1, np.ones(len(mass), np.int64), mass.copy()
        # Node i of the level holds the masses from ends[i - 1] up to ends[i].
        level = self._nodes[TABLE : 2 * TABLE]
        ends = level.cumsum()
        place = ends.searchsorted(mass, side="right")
        np.minimum(place, TABLE - 1, out=place)
        rest = mass - ends.take(place)
        rest += level.take(place)  # mass - ends[i - 1]
        place += TABLE
        return TABLE, place, rest

    def _descend(self, mass: np.ndarray) -> np.ndarray:
        """Return the nodes of the leaves; none is without weight, even where sums round."""
        node, rest = np.ones(len(mass), np.int64), mass.copy()
        pairs, width = self._nodes.reshape(-1, 2), 1
        while width < self._width:
            pair = pairs.take(node, axis=0)
            right = (pair[:, 1] > 0) & ((rest >= pair[:, 0]) | (pair[:, 0] <= 0))
            rest -= pair[:, 0] * right
            node = 2 * node + right  # nodes 2n and 2n + 1 are below node n
            width <<= 1
        return node

    def _keep_least(self, node: np.ndarray) -> None:
        """Carry the least weight on past a change of these leaves, if that needs no search."""
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
        elif where in node:
            self._least = None


class DeviceSumTree:
    """The sum tree as torch tensors on a device, such as CUDA; see ``SumTree`` for each method."""

    def __init__(self, capacity: int, device: torch.device) -> None:
        self.capacity = capacity
        self.device = device
        self._width = 1 << (capacity - 1).bit_length()
        self._nodes = torch.zeros(2 * self._width, dtype=torch.float64, device=device)

    def array(self, values: torch.Tensor) -> torch.Tensor:
        """Return a tensor on this tree's device; floats as float64, which the tree adds up."""
        dtype = torch.float64 if values.is_floating_point() else values.dtype
        return values.detach().to(self.device, dtype)

    @staticmethod
    def tensor(values: torch.Tensor) -> torch.Tensor:
        """Return a tensor unchanged."""
        return values

    @staticmethod
    def power(values: torch.Tensor, exponent: float) -> torch.Tensor:
        """Return ``values ** exponent``."""
        return values**exponent

    @property
    def total(self) -> float:
        """The sum of all weights."""
        return float(self._nodes[1])

    def weights(self, leaf: torch.Tensor) -> torch.Tensor:
        """Return the weights float64 ``[B]`` of leaves int64 ``[B]``."""
        return self._nodes.index_select(0, leaf + self._width)

    def set(self, leaf: torch.Tensor, weights: torch.Tensor) -> None:
        """Give leaves int64 ``[B]`` weights ``[B]``, or one; of equal leaves one of them counts."""
        nodes, pairs = self._nodes, self._nodes.view(-1, 2)
        node = leaf + self._width
        nodes[node] = weights
        width = self._width >> 1
        while width > 4 * len(leaf):
            node >>= 1
            nodes[node] = pairs.index_select(0, node).sum(1)
            width >>= 1
        while width:
            torch.sum(pairs[width : 2 * width], 1, out=nodes[width : 2 * width])
            width >>= 1

    def set_run(self, start: int, weights: torch.Tensor) -> None:
        """Give the leaves from ``start`` on weights float64 ``[n]``."""
        low, high = start + self._width, start + self._width + len(weights)
        nodes, pairs = self._nodes, self._nodes.view(-1, 2)
        nodes[low:high] = weights
        while low > 1:
            low, high = low >> 1, (high + 1) >> 1
            torch.sum(pairs[low:high], 1, out=nodes[low:high])

    def scan(self, mass: torch.Tensor) -> torch.Tensor:
        """Return the leaves int64 ``[B]``, always with weight, under which masses fall."""
        node, rest = torch.ones_like(mass, dtype=torch.int64), mass.clone()
        pairs, width = self._nodes.view(-1, 2), 1
        while width < self._width:
            left, right = pairs.index_select(0, node).unbind(1)
            go_right = (right > 0) & ((rest >= left) | (left <= 0))
            rest -= left * go_right
            node = 2 * node + go_right
            width <<= 1
        return node - self._width

    def least(self, count: int) -> float:
        """Return the least weight of the first ``count`` leaves that have one, or infinity."""
        weights = self._nodes[self._width : self._width + count]
        return float(torch.where(weights > 0, weights, torch.inf).min())
