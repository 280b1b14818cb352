"""Zeros and ones."""

from __future__ import annotations

from typing import Any

import torch

from datasets_cli.errors import UsageError
from datasets_cli.specs.categorical import check_numbers, counted
from datasets_cli.specs.leaf import Leaf
from datasets_cli.specs.shapes import Shape, shape_of
from datasets_cli.specs.spaces import CategoricalBox

MOST_LISTED = 20  # more values of 0 or 1 have above a million combinations


class Binary(Leaf):
    """Values of 0 or 1.

    Args:
        n: how many there are, the last size of ``shape``; may be left out where that is given.
        shape: of a value; ``[n]`` where None.
        device: where values are.
        dtype: their element type.

    Raises:
        UsageError: neither is given, or they contradict each other.
    """

    space: CategoricalBox

    def __init__(
        self,
        n: int | None = None,
        shape: Shape | None = None,
        device: str | torch.device | None = None,
        dtype: torch.dtype = torch.int8,
    ) -> None:
        if n is None and shape is None:
            raise UsageError("Binary takes n, how many values there are, or their shape.")
        size = shape_of((counted(n),) if shape is None else shape)
        if n is not None and size[-1:] != (n,):
            raise UsageError(f"The last size of {tuple(size)} must be n, {n}.")
        super().__init__(size, CategoricalBox(2), device, dtype, "discrete")

    @property
    def n(self) -> int:
        """How many values an item has: 2."""
        return self.space.n

    def rand(self, shape: Shape | None = None) -> torch.Tensor:
        """Return zeros and ones ``[*shape, *self.shape]``, each as likely."""
        return torch.randint(0, 2, self._size(shape), dtype=self.dtype, device=self.device)

    def _holds(self, value: torch.Tensor) -> bool:
        return bool(((value == 0) | (value == 1)).all())

    def _nearest(self, value: torch.Tensor) -> torch.Tensor:
        near = value if value.dtype == torch.bool else value.clamp(0, 1).round()
        return near.to(self.dtype)

    def _check_encoded(self, value: Any) -> None:
        check_numbers(value, 2)

    def cardinality(self) -> int:
        """Return how many values the last dimension has."""
        return int(2 ** (self.shape[-1] if self.shape else 1))

    def enumerate(self) -> torch.Tensor:
        """Return all values of the last dimension ``[2**n, *self.shape]``.

        Raises:
            UsageError: there are more than a million.
        """
        num_items = self.shape[-1] if self.shape else 1
        if num_items > MOST_LISTED:
            raise UsageError(f"The 2**{num_items} values of {self} are too many to be listed.")
        numbers = torch.arange(2**num_items, device=self.device)
        # The digits of each number, the highest first.
        digits = (numbers.unsqueeze(-1) >> torch.arange(num_items - 1, -1, -1)) & 1
        rows = digits.to(self.dtype).reshape(-1, *(1,) * (self.ndim - 1), *self.shape[-1:])
        return rows.expand(len(numbers), *self.shape)


BinaryDiscreteTensorSpec = Binary
