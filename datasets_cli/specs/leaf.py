"""What specs of tensors have."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch

from datasets_cli.errors import UsageError
from datasets_cli.specs.shapes import Shape, ends_with, same_but_ones, shape_of
from datasets_cli.specs.spec import TensorSpec
from datasets_cli.specs.values import as_tensor, cast, known_device


class Leaf(TensorSpec):
    """What a tensor may be: a spec that is no Composite, and whose values are numbers."""

    @abstractmethod
    def _holds(self, value: torch.Tensor) -> bool:
        """Return whether a value of this shape and element type is in the space."""

    @abstractmethod
    def _nearest(self, value: torch.Tensor) -> torch.Tensor:
        """Return the value of this spec that is nearest to one of this shape."""

    @abstractmethod
    def _moved(self, device: torch.device, dtype: torch.dtype) -> TensorSpec:
        """Return this spec on a device, with an element type."""

    def zero(self, shape: Shape | None = None) -> Any:
        """Return zeros ``[*shape, *self.shape]``, which need not be in the space."""
        size = (*shape_of(shape), *self.shape)
        return torch.zeros(size, dtype=self.dtype, device=self.device)

    def one(self, shape: Shape | None = None) -> Any:
        """Return ones ``[*shape, *self.shape]``, which need not be in the space."""
        size = (*shape_of(shape), *self.shape)
        return torch.ones(size, dtype=self.dtype, device=self.device)

    def is_in(self, value: Any) -> bool:
        """Return whether a value has this shape and element type, and is in the space."""
        return (
            isinstance(value, torch.Tensor)
            and value.dtype == self.dtype
            and ends_with(value.shape, self.shape)
            and self._holds(value)
        )

    def type_check(self, value: Any) -> None:
        """Refuse what is of another element type.

        Raises:
            TypeError: it is.
        """
        if value.dtype != self.dtype:
            raise TypeError(f"The element type is {value.dtype}, where a spec has {self.dtype}.")

    def project(self, value: Any) -> Any:
        """Return the nearest value of this spec, of its element type.

        Args:
            value: numbers ``[..., *self.shape]``; returned as they are where they are in it.

        Raises:
            UsageError: it is of another shape; or NaN, where values are discrete. Continuous ones
                stay NaN.
        """
        if self.is_in(value):
            return value
        tensor = as_tensor(value)
        if not ends_with(tensor.shape, self.shape):
            raise UsageError(
                f"A value of shape {tuple(tensor.shape)} cannot be projected on a spec of shape "
                f"{tuple(self.shape)}: the last dimensions must be those of the spec."
            )
        if self.domain == "discrete" and bool(tensor.isnan().any()):
            raise UsageError(f"NaN is not near any value of {self}. Found: {value}")
        return self._nearest(tensor)

    def encode(self, value: Any) -> Any:
        """Return what an environment gives as a tensor of this shape, element type and device.

        It is a copy, and may be outside of the space, as an observation may be beyond its bounds.

        Args:
            value: numbers, as an array, a list or one number; dimensions of size 1 may be missing
                or too many. A tensor is returned as it is.

        Raises:
            UsageError: it is of another shape, not made of numbers, or not of whole ones that the
                element type has where it has no others.
        """
        if isinstance(value, torch.Tensor):
            return value
        tensor = cast(as_tensor(value), self.dtype).to(self.device)
        if not same_but_ones(tensor.shape, self.shape):
            raise UsageError(
                f"A value of shape {tuple(tensor.shape)} cannot be encoded by a spec of shape "
                f"{tuple(self.shape)}."
            )
        return tensor.reshape(self.shape)

    def to_numpy(self, value: Any) -> Any:
        """Return a value as an environment takes it: an array of numpy."""
        return value.detach().cpu().numpy()

    def to(self, destination: str | torch.device | torch.dtype | None) -> TensorSpec:
        """Return this spec on a device, or with an element type."""
        if destination is None:
            return self
        if isinstance(destination, torch.dtype):
            return self._moved(self.device, destination)
        return self._moved(known_device(destination), self.dtype)

    def _has_values_of(self, other: Any) -> bool:
        same = (self.dtype, self.space) == (other.dtype, other.space)
        return same and _same_mask(self.mask, other.mask)

    def _lines(self) -> list[str]:
        names = ("shape", "space", "device", "dtype", "domain")
        return [f"{name}={getattr(self, name)}" for name in names]


def _same_mask(first: torch.Tensor | None, second: torch.Tensor | None) -> bool:
    if first is None or second is None:
        return first is second
    return first.shape == second.shape and torch.equal(first, second)
