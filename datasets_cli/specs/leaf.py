"""What specs of tensors have."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import NonTensorData

from datasets_cli.errors import UsageError
from datasets_cli.specs.spec import (
    ShapeLike,
    TensorSpec,
    as_tensor,
    can_become,
    cast,
    ends_with,
    known_device,
)
from datasets_cli.torchrl.keywords import accepts_keywords


class LeafSpec(TensorSpec):
    """What a tensor may be: a spec that is not a Composite, and whose values are numbers."""

    @abstractmethod
    def _holds(self, value: torch.Tensor) -> bool:
        """Return whether a value of this shape and element type is in the space."""

    @abstractmethod
    def _nearest(self, value: torch.Tensor) -> torch.Tensor:
        """Return the value of this spec that is nearest to one of this shape."""

    def _checked(self, value: Any, safe: bool | None) -> Any:
        """Return a value; if ``safe``, refuse one that is not in this spec."""
        if safe:
            self.assert_is_in(value)
        return value

    def _listed(self, values: torch.Tensor, use_mask: bool) -> torch.Tensor:
        """Return those of all values ``[N, *self.shape]`` that the mask allows, if it is asked."""
        is_part = use_mask and self._mask is not None
        return values[[self._holds(value) for value in values]] if is_part else values

    def _check_encoded(self, value: Any) -> None:
        """Refuse numbers of this shape and element type that are of no category."""

    def _moved(self, device: torch.device, dtype: torch.dtype) -> TensorSpec:
        """Return this spec on a device, with an element type."""
        mask = None if self._mask is None else self._mask.to(device)
        return self._like_this(device=device, dtype=dtype, _mask=mask)

    def zero(self, shape: ShapeLike | None = None) -> torch.Tensor:
        return torch.zeros(self._size(shape), dtype=self.dtype, device=self.device)

    def one(self, shape: ShapeLike | None = None) -> torch.Tensor:
        return torch.ones(self._size(shape), dtype=self.dtype, device=self.device)

    def is_in(self, value: Any) -> bool:
        return (
            isinstance(value, torch.Tensor)
            and value.dtype == self.dtype
            and ends_with(value.shape, self.shape)
            and self._holds(value)
        )

    def type_check(self, value: Any, key: Any = None) -> None:
        if value.dtype != self.dtype:
            name = "A value" if key is None else repr(key)
            raise TypeError(f"{name} is of {value.dtype}, where its spec has {self.dtype}.")

    def project(self, value: Any) -> Any:
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

    def encode(self, value: Any, *, ignore_device: bool = False) -> Any:
        """Return what an environment gives as a tensor of this shape, element type and device.

        It is a copy, and may be outside of the space, as an observation may be beyond its bounds.

        Args:
            value: numbers, as an array, a list or one number, whose dimensions may be divided or
                joined otherwise. A tensor is returned unchanged.
            ignore_device: leave it on the device where it is.

        Raises:
            UsageError: it is of another shape, not made of numbers, not of whole ones that the
                element type has where it has no others, or a number of no category.
        """
        if isinstance(value, torch.Tensor):
            return value
        tensor = cast(as_tensor(value), self.dtype)
        if not can_become(tensor.shape, self.shape):
            raise UsageError(
                f"A value of shape {tuple(tensor.shape)} cannot be encoded by a spec of shape "
                f"{tuple(self.shape)}."
            )
        self._check_encoded(value)
        placed = tensor if ignore_device else tensor.to(self.device)
        return placed.reshape(self.shape)

    def to_numpy(self, value: Any, safe: bool | None = None) -> Any:
        return self._checked(value, safe).detach().cpu().numpy()

    def to(self, destination: str | torch.device | torch.dtype | None) -> TensorSpec:
        if destination is None:
            return self
        if isinstance(destination, torch.dtype):
            return self._moved(self.device, destination)
        return self._moved(known_device(destination), self.dtype)

    def _has_values_of(self, other: Any) -> bool:
        same = (self.dtype, self.space) == (other.dtype, other.space)
        return same and _same_mask(self._mask, other._mask)


class CategorySpec(LeafSpec):
    """Categories: their numbers, or one-hot vectors."""

    def to_one_hot_spec(self) -> TensorSpec:
        """Return this spec, which is of vectors."""
        return self

    def to_categorical_spec(self) -> TensorSpec:
        """Return this spec, which is of numbers."""
        return self

    def to_one_hot(self, value: torch.Tensor, safe: bool | None = None) -> Any:
        """Return values as one-hot vectors; ``safe`` refuses one that is not in this spec."""
        value, spec = self._checked(value, safe), self.to_one_hot_spec()
        return value if spec is self else spec.encode(value)

    def to_categorical(self, value: torch.Tensor, safe: bool | None = None) -> Any:
        """Return values as numbers; ``safe`` refuses one that is not in this spec."""
        return self._checked(value, safe)


def _same_mask(first: torch.Tensor | None, second: torch.Tensor | None) -> bool:
    if first is None or second is None:
        return first is second
    return first.shape == second.shape and torch.equal(first, second)


@dataclass(frozen=True)
class TextBox:
    """Texts of some characters."""

    min_length: int
    max_length: int
    characters: frozenset[str]

    @property
    def example(self) -> str:
        """A text of the smallest length."""
        return min(self.characters, default="") * self.min_length

    def __contains__(self, value: object) -> bool:
        return (
            isinstance(value, str)
            and self.min_length <= len(value) <= self.max_length
            and self.characters.issuperset(value)
        )


@accepts_keywords
class NonTensor(TensorSpec):
    """Values of any type.

    Args:
        shape: of a value.
        device: where a TensorDict says that they are.
        dtype: None; values have no element type.
        example_data: what ``rand``, ``zero`` and ``one`` give.
        space: which texts there are; values of any type where None.

    Raises:
        UsageError: an element type is given, or the example is not in the space.
    """

    def __init__(
        self,
        shape: ShapeLike = (1,),
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
        example_data: Any = None,
        *,
        space: TextBox | None = None,
    ) -> None:
        if dtype is not None:
            raise UsageError(f"A NonTensor has no element type; found {dtype}.")
        super().__init__(shape, None, device)
        self.space: Any = space
        self.device = None if device is None else known_device(device)
        self.dtype = self.domain = None
        is_left_out = space is not None and example_data is None
        self.example_data = space.example if space and is_left_out else example_data
        if space is not None and self.example_data not in space:
            raise UsageError(f"The example {example_data!r} is not one of {space}.")

    def rand(self, shape: ShapeLike | None = None) -> NonTensorData:
        """Return the example, as a batch ``[*shape, *self.shape]``."""
        size = self._size(shape)
        return NonTensorData(self.example_data, batch_size=size, device=self.device)

    zero = one = rand

    def is_in(self, value: Any) -> bool:
        """Return whether a value, or each of a batch of them, is in the space."""
        return self.space is None or all(each in self.space for each in _leaves(value))

    def type_check(self, value: Any, key: Any = None) -> None:
        """Return None: values have no element type."""

    def project(self, value: Any) -> Any:
        """Return the value where it is in the space.

        Raises:
            UsageError: it is not: no text is near another one.
        """
        if not self.is_in(value):
            raise UsageError(f"{value!r} is not one of {self.space}, and no text is near another.")
        return value

    def encode(self, value: Any, *, ignore_device: bool = False) -> Any:
        """Return the value as data of a TensorDict, of this shape."""
        if isinstance(value, torch.Tensor | NonTensorData):
            return value
        device = None if ignore_device else self.device
        return NonTensorData(value, batch_size=self.shape, device=device)

    def to_numpy(self, value: Any, safe: bool | None = None) -> Any:
        """Return the value as an environment takes it, without what a TensorDict puts around it."""
        if safe:
            self.assert_is_in(value)
        return _plain(value)

    def to(self, destination: str | torch.device | torch.dtype | None) -> NonTensor:
        """Return this spec on a device; an element type changes nothing."""
        if destination is None or isinstance(destination, torch.dtype):
            return self
        return self._like_this(device=known_device(destination))

    def _has_values_of(self, other: Any) -> bool:
        return bool(self.space == other.space and self.example_data == other.example_data)

    def _lines(self) -> list[str]:
        return [*super()._lines(), f"example_data={self.example_data}"]


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def _leaves(value: Any) -> list[Any]:
    plain = _plain(value)
    if not isinstance(plain, list):
        return [plain]
    return [leaf for each in plain for leaf in _leaves(each)]
