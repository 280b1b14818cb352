"""Specs of numbers: `Bounded` by a low and a high value, or `Unbounded`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import torch

from datasets_cli.errors import Unsupported, UsageError, WrongSize
from datasets_cli.specs.leaf import LeafSpec
from datasets_cli.specs.spec import (
    ARITHMETIC,
    Change,
    ShapeLike,
    as_tensor,
    cast,
    clamped,
    known_dtype,
    shape_of,
)

LARGEST_OFFSET = 2.0**64 - 2.0**11  # the last number of float64 below 2**64


@dataclass(frozen=True, eq=False)
class ContinuousBox:
    """The values from ``low`` to ``high``, ``[*shape]`` each, both included; may be infinite."""

    low: torch.Tensor
    high: torch.Tensor

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ContinuousBox)
            and _equal(self.low, other.low)
            and _equal(self.high, other.high)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ContinuousBox(\n    low={_summary(self.low)},\n    high={_summary(self.high)})"


class Bounded(LeafSpec):
    """Values from ``low`` to ``high``, both included.

    Floating point values are ``"continuous"``, whole numbers ``"discrete"``.

    Args:
        low: the lowest value, one number or an array ``[*shape]``; -inf is not a limit.
        high: the highest value, one number or an array.
        shape: the shape of a value; None for the shape of the bounds.
        device: the device of values.
        dtype: the dtype of values; None for torch's default.
        minimum: an alias of ``low``.
        maximum: an alias of ``high``.

    Raises:
        UsageError: a bound is missing, given twice, NaN or not representable in the dtype; or low
            is above high.
        WrongSize: the bounds do not broadcast to the shape.
        Unsupported: torch does not compare values of the dtype.
    """

    space: ContinuousBox

    def __init__(
        self,
        low: Any = None,
        high: Any = None,
        shape: ShapeLike | None = None,
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
        *,
        minimum: Any = None,
        maximum: Any = None,
    ) -> None:
        dtype = known_dtype(dtype)
        if dtype not in ARITHMETIC:
            raise Unsupported(
                f"Values of {dtype} cannot be compared with bounds.",
                argument="dtype",
                found=dtype,
                advice="Use Unbounded.",
            )
        lowest = _bound("low", low, "minimum", minimum, dtype)
        highest = _bound("high", high, "maximum", maximum, dtype)
        size = _shape([lowest, highest], shape)
        domain = "continuous" if dtype.is_floating_point else "discrete"
        super().__init__(size, None, device, dtype, domain)
        low, high = (x.to(self.device).expand(size).contiguous() for x in (lowest, highest))
        if not (low <= high).all():  # false for NaN too
            raise UsageError(
                f"low must be at most high, and neither may be NaN; found {low} and {high}.",
                argument="low",
                found=low,
            )
        self.space = ContinuousBox(low, high)
        # Every reshaped or indexed part of finite bounds is finite, so copies keep this flag.
        self._is_finite = dtype.is_floating_point and bool((high - low).isfinite().all())

    @property
    def low(self) -> torch.Tensor:
        """The lowest values, ``[*shape]``."""
        return self.space.low

    @property
    def high(self) -> torch.Tensor:
        """The highest values, ``[*shape]``."""
        return self.space.high

    def rand(self, shape: ShapeLike | None = None) -> torch.Tensor:
        """Return values ``[*shape, *self.shape]``, uniform between finite bounds.

        With one infinite bound, the distance from the finite bound is exponential. With two
        infinite bounds, the value is normal. Both distributions have scale 1.
        """
        is_float = self.dtype.is_floating_point
        draw = self._rand_floats if is_float else self._rand_integers
        values = draw(self._size(shape))
        return values.clamp(self.low, self.high) if self.dtype != torch.bool else values

    def _rand_floats(self, size: torch.Size) -> torch.Tensor:
        low, high = self.low, self.high
        uniform = torch.zeros(size, dtype=self.dtype, device=self.device).uniform_()
        span = high - low
        if self._is_finite:
            return uniform * span + low
        has_low, has_high = low.isfinite(), high.isfinite()
        wide = low * (1 - uniform) + high * uniform  # for finite bounds whose distance overflows
        distance = -torch.log1p(-uniform)
        values = torch.where(has_low & has_high, wide, torch.randn_like(uniform))
        values = torch.where(has_low & ~has_high, low + distance, values)
        values = torch.where(has_high & ~has_low, high - distance, values)
        return torch.where(span.isfinite(), uniform * span + low, values)

    def _rand_integers(self, size: torch.Size) -> torch.Tensor:
        low, high = self.low.long(), self.high.long()
        is_wide = self.dtype in (torch.int32, torch.int64)
        floats = torch.float64 if is_wide else torch.float32
        span = high.to(floats) - low.to(floats)
        offset = torch.rand(size, dtype=floats, device=self.device)
        offset = torch.minimum((offset * (span + 1)).floor(), span).clamp(max=LARGEST_OFFSET)
        # In halves: an offset may be up to 2**64, and an int64 only below 2**63.
        half = (offset / 2).floor()
        return (low + half.long() + (offset - half).long()).to(self.dtype)

    def _holds(self, value: torch.Tensor) -> bool:
        low, high = self.low.to(value.device), self.high.to(value.device)
        return bool(((value >= low) & (value <= high)).all())

    def _nearest(self, value: torch.Tensor) -> torch.Tensor:
        if self.dtype == torch.bool:  # which torch does not clamp
            return (value.bool() | self.low.to(value.device)) & self.high.to(value.device)
        return clamped(value, self.low, self.high)

    def _changed(self, change: Change) -> Self:
        low, high = change(self.low), change(self.high)
        return self._like_this(shape=low.shape, space=ContinuousBox(low, high))

    def _moved(self, device: torch.device, dtype: torch.dtype) -> Bounded:
        if dtype != self.dtype:
            return Bounded(self.low, self.high, device=device, dtype=dtype)
        space = ContinuousBox(self.low.to(device), self.high.to(device))
        return self._like_this(device=device, space=space)

    def _register_batch_size(self, batch_size: torch.Size) -> None:
        """Do nothing; TorchRL's Composite calls this on its entries."""

    def _name(self) -> str:
        return f"Bounded{self.domain.title()}"


def _equal(first: torch.Tensor, second: torch.Tensor) -> bool:
    same = first.device == second.device and first.dtype == second.dtype
    return same and torch.equal(first, second)


def _summary(tensor: torch.Tensor) -> str:
    return (
        f"Tensor(shape={tensor.shape}, device={tensor.device}, dtype={tensor.dtype}, "
        f"contiguous={tensor.is_contiguous()})"
    )


def _bound(
    name: str, value: Any, old_name: str, old_value: Any, dtype: torch.dtype
) -> torch.Tensor:
    if (value is None) == (old_value is None):
        found = "neither" if value is None else "both"
        raise UsageError(
            f"Bounded requires either {name} or its alias {old_name}; found {found}.", argument=name
        )
    # A copy, because the caller may change the array later.
    return cast(as_tensor(old_value if value is None else value).clone(), dtype)


def _shape(bounds: list[torch.Tensor], shape: ShapeLike | None) -> torch.Size:
    try:
        sizes = [bound.shape for bound in bounds]
        size = torch.broadcast_shapes(*sizes) if shape is None else shape_of(shape)
        for bound in bounds:
            bound.expand(size)
    except RuntimeError as error:
        shapes = [tuple(bound.shape) for bound in bounds]
        raise WrongSize(
            f"Bounds of shapes {shapes} do not broadcast to the shape {shape}.",
            argument="shape",
            expected=shape,
            found=shapes,
        ) from error
    return size


class Unbounded(LeafSpec):
    """All values of a dtype: an UnboundedContinuous or an UnboundedDiscrete.

    Args:
        shape: the shape of a value.
        device: the device of values.
        dtype: the dtype of values; None for torch's default.
    """

    def __init__(
        self,
        shape: ShapeLike = (1,),
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        dtype = known_dtype(dtype)
        is_float = dtype.is_floating_point
        if type(self) is Unbounded:
            self.__class__ = UnboundedContinuous if is_float else UnboundedDiscrete
        if is_float != isinstance(self, UnboundedContinuous):
            raise UsageError(
                f"{type(self).__name__} does not accept {dtype}.",
                argument="dtype",
                found=dtype,
                advice="Use Unbounded, which accepts every dtype.",
            )
        super().__init__(shape, None, device, dtype, "continuous" if is_float else "discrete")
        self.space: Any = self._limits(self.shape)

    def _limits(self, shape: torch.Size) -> ContinuousBox | None:
        """Return the range of the dtype, or None for complex numbers, which have no order."""
        if self.dtype.is_complex:
            return None
        if self.dtype == torch.bool:
            limits: tuple[Any, Any] = (False, True)
        else:
            type_info = torch.finfo if self.dtype.is_floating_point else torch.iinfo
            limits = (type_info(self.dtype).min, type_info(self.dtype).max)
        low, high = (torch.tensor(x, dtype=self.dtype, device=self.device) for x in limits)
        return ContinuousBox(low.expand(shape), high.expand(shape))

    def rand(self, shape: ShapeLike | None = None) -> torch.Tensor:
        """Return values ``[*shape, *self.shape]``: normal, or integers of at least 0."""
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
    """All floating point values: ``Unbounded`` with a floating point dtype."""

    def __init__(  # errors about arguments name this class
        self,
        shape: ShapeLike = (1,),
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(shape, device, dtype)


class UnboundedDiscrete(Unbounded):
    """All integers: ``Unbounded`` with an integer dtype, int64 by default."""

    def __init__(
        self,
        shape: ShapeLike = (1,),
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = torch.int64,
    ) -> None:
        super().__init__(shape, device, dtype)
