"""One of several categories, as its number."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch

from datasets_cli.errors import UsageError
from datasets_cli.specs.leaf import Leaf
from datasets_cli.specs.shapes import Change, Shape, after_change, shape_of
from datasets_cli.specs.spaces import CategoricalBox
from datasets_cli.specs.values import as_tensor


class Categorical(Leaf):
    """Numbers from 0 to ``n - 1``.

    Args:
        n: how many categories there are.
        shape: of a value; one number where None.
        device: where values are.
        dtype: their element type.
        mask: ``[*shape, n]``, or what expands to it: False for the categories that are excluded.

    Raises:
        UsageError: there is no category, or the mask excludes all of them, or is of another shape.
    """

    space: CategoricalBox

    def __init__(
        self,
        n: int,
        shape: Shape | None = None,
        device: str | torch.device | None = None,
        dtype: torch.dtype = torch.int64,
        mask: torch.Tensor | None = None,
    ) -> None:
        super().__init__(shape_of(shape), CategoricalBox(counted(n)), device, dtype, "discrete")
        check_fits(n, dtype)
        self.mask = known_mask(mask, (*self.shape, n), self.device)

    @property
    def n(self) -> int:
        """How many categories there are."""
        return self.space.n

    def rand(self, shape: Shape | None = None) -> torch.Tensor:
        """Return numbers ``[*shape, *self.shape]``, each that the mask allows as likely."""
        size = (*shape_of(shape), *self.shape)
        if self.mask is None:
            return torch.randint(0, self.n, size, dtype=self.dtype, device=self.device)
        weights = self.mask.expand(*size, self.n).reshape(-1, self.n).float()
        return torch.multinomial(weights, 1).reshape(size).to(self.dtype)

    def _holds(self, value: torch.Tensor) -> bool:
        if not bool(((value >= 0) & (value < self.n)).all()):
            return False
        if self.mask is None:
            return True
        mask = self.mask.to(value.device).expand(*value.shape, self.n)
        return bool(mask.gather(-1, value.long().unsqueeze(-1)).all())

    def _nearest(self, value: torch.Tensor) -> torch.Tensor:
        # Clamped before it is a whole number: infinity has none.
        near = value.clamp(0, self.n - 1).round() if value.dtype != torch.bool else value
        if self.mask is None:
            return near.to(self.dtype)
        distance = (torch.arange(self.n, device=value.device) - near.unsqueeze(-1)).abs().double()
        return (
            distance.masked_fill(~self.mask.to(value.device), torch.inf).argmin(-1).to(self.dtype)
        )

    def encode(self, value: Any) -> torch.Tensor:
        """Return the number of a category as a tensor ``[*self.shape]``.

        Raises:
            UsageError: it is of another shape, not a whole number, or not of a category.
        """
        tensor: torch.Tensor = super().encode(value)
        if tensor is not value:
            check_numbers(value, self.n)
        return tensor

    def index(self, index: torch.Tensor, tensor_to_index: torch.Tensor) -> torch.Tensor:
        """Return the items ``[..., *B]`` of a tensor ``[..., n]`` at numbers ``[*B]``."""
        found = tensor_to_index.index_select(-1, index.long().reshape(-1))
        return found.reshape((*tensor_to_index.shape[:-1], *index.shape))

    def cardinality(self) -> int:
        """Return how many categories there are, those excluded included."""
        return self.n

    def enumerate(self) -> torch.Tensor:
        """Return all numbers ``[n, *self.shape]``, those excluded included."""
        numbers = torch.arange(self.n, device=self.device).to(self.dtype)
        return numbers.reshape(-1, *(1,) * self.ndim).expand(self.n, *self.shape)

    def _changed(self, change: Change) -> Self:
        mask = None if self.mask is None else change(self.mask)
        return self._like_this(shape=after_change(self.shape, change), mask=mask)

    def _moved(self, device: torch.device, dtype: torch.dtype) -> Categorical:
        mask = None if self.mask is None else self.mask.to(device)
        return self._like_this(device=device, dtype=dtype, mask=mask)


DiscreteTensorSpec = Categorical


def counted(n: Any) -> int:
    """Return a number of categories."""
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise UsageError(f"A number of categories is a whole number from 1 on, not {n!r}.")
    return int(n)


def check_fits(n: int, dtype: torch.dtype) -> None:
    """Refuse an element type that does not have a number for each category."""
    most = 1 if dtype == torch.bool else 0 if dtype.is_complex else _most(dtype)
    if n - 1 > most:
        raise UsageError(f"{dtype} does not have all numbers from 0 to {n - 1}, one a category.")


def _most(dtype: torch.dtype) -> int:
    if dtype.is_floating_point:
        return int(2 / torch.finfo(dtype).eps)  # whole numbers up to this are exact
    return torch.iinfo(dtype).max


def known_mask(mask: Any, shape: tuple[int, ...], device: torch.device) -> torch.Tensor | None:
    """Return a mask ``[*shape]`` of bools on a device, where there is one."""
    if mask is None:
        return None
    try:
        known = as_tensor(mask).to(device=device, dtype=torch.bool).clone().expand(shape)
    except RuntimeError as error:
        raise UsageError(f"A mask of shape {tuple(mask.shape)} does not fit {shape}.") from error
    return checked_mask(known)


def checked_mask(mask: torch.Tensor) -> torch.Tensor:
    """Return a mask ``[..., n]``."""
    if not bool(mask.any(-1).all()):
        raise UsageError("A mask excludes all categories: none is left to draw.")
    return mask


def check_numbers(value: Any, n: int | np.ndarray) -> None:
    """Refuse what are not numbers of categories."""
    numbers = np.asarray(value.cpu() if isinstance(value, torch.Tensor) else value)
    if not ((numbers >= 0) & (numbers < n) & (numbers == np.floor(numbers))).all():
        raise UsageError(
            f"A category is a whole number from 0 to {n - 1}; found {numbers.tolist()}."
        )
