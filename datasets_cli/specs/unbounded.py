"""Values of an element type, without bounds."""

from __future__ import annotations

from typing import Any, Self

import torch

from datasets_cli.errors import UsageError
from datasets_cli.specs.leaf import Leaf
from datasets_cli.specs.shapes import Change, Shape
from datasets_cli.specs.spaces import ContinuousBox
from datasets_cli.specs.values import ARITHMETIC, clamped, known_dtype


class Unbounded(Leaf):
    """Any values of an element type: an UnboundedContinuous or an UnboundedDiscrete.

    Args:
        shape: of a value.
        device: where values are.
        dtype: their element type; torch's default where None.
    """

    def __init__(
        self,
        shape: Shape = (1,),
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        dtype = known_dtype(dtype)
        is_float = dtype.is_floating_point
        if type(self) is Unbounded:
            self.__class__ = UnboundedContinuous if is_float else UnboundedDiscrete
        if is_float != isinstance(self, UnboundedContinuous):
            raise UsageError(f"{type(self).__name__} is not for {dtype}. Unbounded is for both.")
        super().__init__(shape, None, device, dtype, "continuous" if is_float else "discrete")
        self.space: Any = self._limits(self.shape)

    def _limits(self, shape: torch.Size) -> ContinuousBox | None:
        """Return the numbers that the element type has; complex ones have no order."""
        if self.dtype.is_complex:
            return None
        if self.dtype == torch.bool:
            limits: tuple[Any, Any] = (False, True)
        else:
            type_info = torch.finfo if self.dtype.is_floating_point else torch.iinfo
            limits = (type_info(self.dtype).min, type_info(self.dtype).max)
        low, high = (torch.tensor(x, dtype=self.dtype, device=self.device) for x in limits)
        return ContinuousBox(low.expand(shape), high.expand(shape))

    def rand(self, shape: Shape | None = None) -> torch.Tensor:
        """Return normal values ``[*shape, *self.shape]``, or whole numbers from 0 on."""
        size = self._size(shape)
        dtype, device = self.dtype, self.device
        if dtype.is_floating_point or dtype.is_complex:
            drawn = dtype if dtype in ARITHMETIC or dtype.is_complex else torch.float32
            return torch.randn(size, dtype=drawn, device=device).to(dtype)
        drawn = dtype if dtype in ARITHMETIC else torch.int64
        return torch.empty(size, dtype=drawn, device=device).random_().to(dtype)

    def _holds(self, value: torch.Tensor) -> bool:
        return True

    def _nearest(self, value: torch.Tensor) -> torch.Tensor:
        if self.domain == "continuous" or self.space is None:
            return value.to(self.dtype)
        return clamped(value, self.space.low, self.space.high)

    def _changed(self, change: Change) -> Self:
        changed = super()._changed(change)
        return changed._like_this(space=self._limits(changed.shape))

    def _moved(self, device: torch.device, dtype: torch.dtype) -> Unbounded:
        return Unbounded(self.shape, device, dtype)


class UnboundedContinuous(Unbounded):
    """Any floating point values: ``Unbounded`` of such an element type."""

    def __init__(  # of its own, so that what it refuses names this class
        self,
        shape: Shape = (1,),
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(shape, device, dtype)


class UnboundedDiscrete(Unbounded):
    """Any whole numbers: ``Unbounded`` of such an element type, int64 by default."""

    def __init__(
        self,
        shape: Shape = (1,),
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = torch.int64,
    ) -> None:
        super().__init__(shape, device, dtype)


UnboundedContinuousTensorSpec = UnboundedContinuous
UnboundedDiscreteTensorSpec = UnboundedDiscrete
