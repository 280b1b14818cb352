"""Base classes of the specs of one tensor, and `NonTensor`, the spec of text and other values."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import NonTensorData

from datasets_cli.errors import UsageError, WrongRows, wrong_value
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
    """The spec of one tensor of numbers."""

    @abstractmethod
    def _holds(self, value: torch.Tensor) -> bool:
        """Return whether a value of the right shape and dtype is in the space."""

    @abstractmethod
    def _nearest(self, value: torch.Tensor) -> torch.Tensor:
        """Return the nearest value of this spec to a value of the right shape."""

    def _checked(self, value: Any, safe: bool | None) -> Any:
        """Return a value; if ``safe``, raise an error if it is not in this spec."""
        if safe:
            self.assert_is_in(value)
        return value

    def _listed(self, values: torch.Tensor, use_mask: bool) -> torch.Tensor:
        """Return values ``[N, *self.shape]``; with ``use_mask``, the allowed ones."""
        is_part = use_mask and self._mask is not None
        return values[[self._holds(value) for value in values]] if is_part else values

    def _check_encoded(self, value: Any) -> None:
        """Raise an error if a number is not a category."""

    def _moved(self, device: torch.device, dtype: torch.dtype) -> TensorSpec:
        """Return this spec with another device and dtype."""
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
            raise TypeError(f"{name} has the dtype {value.dtype}; its spec has {self.dtype}.")

    def project(self, value: Any) -> Any:
        if self.is_in(value):
            return value
        tensor = as_tensor(value)
        if not ends_with(tensor.shape, self.shape):
            raise WrongRows(
                f"The shape of a value must end with the shape of the spec, {tuple(self.shape)}; "
                f"found {tuple(tensor.shape)}.",
                expected=tuple(self.shape),
                found=tuple(tensor.shape),
            )
        if self.domain == "discrete" and bool(tensor.isnan().any()):
            raise UsageError(f"NaN cannot be projected on {self}. Found: {value}", found=value)
        return self._nearest(tensor)

    def encode(self, value: Any, *, ignore_device: bool = False) -> Any:
        """Encode a value from an environment as a tensor of this shape, dtype and device.

        The tensor is a copy. It may be outside the space, as observations may exceed their bounds.

        Args:
            value: an array, a list or one number; its dimensions may be split or merged to fit. A
                tensor is returned unchanged.
            ignore_device: do not move the tensor to the device.

        Raises:
            WrongRows: the shape does not fit.
            UsageError: the value is not numeric, the dtype cannot represent it, or a number is not
                a category.
        """
        if isinstance(value, torch.Tensor):
            return value
        tensor = cast(as_tensor(value), self.dtype)
        if not can_become(tensor.shape, self.shape):
            raise WrongRows(
                f"A value of shape {tuple(tensor.shape)} cannot be encoded by a spec of shape "
                f"{tuple(self.shape)}.",
                expected=tuple(self.shape),
                found=tuple(tensor.shape),
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
    """The spec of categories, as numbers or as one-hot vectors."""

    def to_one_hot_spec(self) -> TensorSpec:
        """Return the spec of the same categories as vectors."""
        return self

    def to_categorical_spec(self) -> TensorSpec:
        """Return the spec of the same categories as numbers."""
        return self

    def to_one_hot(self, value: torch.Tensor, safe: bool | None = None) -> Any:
        """Convert values to one-hot vectors; ``safe`` checks that they are in this spec."""
        value, spec = self._checked(value, safe), self.to_one_hot_spec()
        return value if spec is self else spec.encode(value)

    def to_categorical(self, value: torch.Tensor, safe: bool | None = None) -> Any:
        """Convert values to numbers; ``safe`` checks that they are in this spec."""
        return self._checked(value, safe)


def _same_mask(first: torch.Tensor | None, second: torch.Tensor | None) -> bool:
    if first is None or second is None:
        return first is second
    return first.shape == second.shape and torch.equal(first, second)


@dataclass(frozen=True)
class TextBox:
    """The texts of a set of characters, with a minimum and a maximum length."""

    min_length: int
    max_length: int
    characters: frozenset[str]

    @property
    def example(self) -> str:
        """A text of the minimum length."""
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
        shape: the shape of a value.
        device: the device that the TensorDict of a value reports.
        dtype: None; values do not have a dtype.
        example_data: the value of ``rand``, ``zero`` and ``one``.
        space: the allowed texts; None allows values of any type.

    Raises:
        UsageError: dtype is not None, or the example is not in the space.
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
            raise UsageError(
                f"A NonTensor does not have a dtype; found {dtype}.", argument="dtype", found=dtype
            )
        super().__init__(shape, None, device)
        self.space: Any = space
        self.device = None if device is None else known_device(device)
        self.dtype = self.domain = None
        is_left_out = space is not None and example_data is None
        self.example_data = space.example if space and is_left_out else example_data
        if space is not None and self.example_data not in space:
            raise wrong_value("example_data", space, example_data)

    def rand(self, shape: ShapeLike | None = None) -> NonTensorData:
        """Return the example as a batch ``[*shape, *self.shape]``."""
        size = self._size(shape)
        return NonTensorData(self.example_data, batch_size=size, device=self.device)

    zero = one = rand

    def is_in(self, value: Any) -> bool:
        """Return whether a value, or every value of a batch, is in the space."""
        return self.space is None or all(each in self.space for each in _leaves(value))

    def type_check(self, value: Any, key: Any = None) -> None:
        """Do nothing: values do not have a dtype."""

    def project(self, value: Any) -> Any:
        """Return the value unchanged.

        Raises:
            UsageError: the value is not in the space; texts do not have a nearest text.
        """
        if not self.is_in(value):
            raise UsageError(
                f"{value!r} is not in {self.space}, and texts cannot be projected.",
                expected=self.space,
                found=value,
            )
        return value

    def encode(self, value: Any, *, ignore_device: bool = False) -> Any:
        """Wrap the value as NonTensorData of this shape."""
        if isinstance(value, torch.Tensor | NonTensorData):
            return value
        device = None if ignore_device else self.device
        return NonTensorData(value, batch_size=self.shape, device=device)

    def to_numpy(self, value: Any, safe: bool | None = None) -> Any:
        """Return the value without the wrapper of a TensorDict."""
        if safe:
            self.assert_is_in(value)
        return _plain(value)

    def to(self, destination: str | torch.device | torch.dtype | None) -> NonTensor:
        """Return this spec on a device; a dtype has no effect."""
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
