"""The sum tree of ``sum_tree``, made of torch tensors for devices that numpy does not know.

Nodes are numbered as there. Nothing here waits for the device, except ``total`` and ``least``,
which are numbers.
"""

from __future__ import annotations

import torch


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
        """Return a tensor as it is."""
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
