"""What all specs have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from copy import copy
from textwrap import indent
from typing import Any, Self

import torch

from datasets_cli.errors import UsageError
from datasets_cli.specs.arguments import (
    Change,
    ShapeLike,
    after_change,
    dimension,
    indexing,
    known_device,
    known_dtype,
    shape_of,
    written_sizes,
)
from datasets_cli.specs.spaces import ValueSpace


class TensorSpec(ABC):
    """What a tensor may be: its shape, the space of its values, its device and element type.

    A value of a spec may have further dimensions before those of ``shape``. Methods that change
    something return another spec.

    Args:
        shape: of a value.
        space: where its values are from.
        device: where they are; torch's default device where None.
        dtype: their element type.
        domain: ``"continuous"`` or ``"discrete"``.
    """

    mask: torch.Tensor | None = None

    def __init__(
        self,
        shape: ShapeLike,
        space: ValueSpace | None,
        device: str | torch.device | None = None,
        dtype: torch.dtype = torch.float32,
        domain: str = "",
    ) -> None:
        self.shape = shape_of(shape)
        self.space: Any = space
        self.device: Any = known_device(device)
        self.dtype: Any = known_dtype(dtype)
        self.domain: Any = domain

    def _size(self, shape: ShapeLike | None) -> torch.Size:
        """Return the shape of values that have further dimensions before those of one."""
        return shape_of(shape) + self.shape

    @abstractmethod
    def rand(self, shape: ShapeLike | None = None) -> Any:
        """Return random values ``[*shape, *self.shape]``, drawn by torch's global generator."""

    @abstractmethod
    def zero(self, shape: ShapeLike | None = None) -> Any:
        """Return zeros ``[*shape, *self.shape]``, which need not be in the space."""

    @abstractmethod
    def one(self, shape: ShapeLike | None = None) -> Any:
        """Return ones ``[*shape, *self.shape]``, which need not be in the space."""

    @abstractmethod
    def is_in(self, value: Any) -> bool:
        """Return whether a value has this shape and element type, and is in the space."""

    def assert_is_in(self, value: Any) -> None:
        """Refuse what is not a value of this spec.

        Raises:
            AssertionError: it is not.
        """
        if not self.is_in(value):
            raise AssertionError(
                f"A value is not in its spec, {self}. Found: {value}. project(value) gives the "
                "nearest that is."
            )

    @abstractmethod
    def type_check(self, value: Any) -> None:
        """Refuse what is of another element type.

        Raises:
            TypeError: it is.
        """

    @abstractmethod
    def project(self, value: Any) -> Any:
        """Return the nearest value of this spec, of its element type.

        Args:
            value: numbers ``[..., *self.shape]``; returned as they are where they are in it.

        Raises:
            UsageError: it is of another shape; or NaN, where values are discrete. Continuous ones
                stay NaN.
        """

    @abstractmethod
    def encode(self, value: Any) -> Any:
        """Return what an environment gives as a value of this shape, element type and device.

        Raises:
            UsageError: it is of another shape, or cannot be such a value.
        """

    @abstractmethod
    def to_numpy(self, value: Any) -> Any:
        """Return a value as an environment takes it, made of arrays of numpy."""

    def cardinality(self) -> int | float:
        """Return how many values there are, as float ``inf`` where they are not counted."""
        return float("inf")

    def enumerate(self) -> Any:
        """Return all values ``[cardinality, *self.shape]``.

        Raises:
            UsageError: they cannot be counted.
        """
        raise UsageError(f"The values of {self} cannot be listed: they are not counted.")

    def index(self, index: Any, tensor_to_index: torch.Tensor) -> torch.Tensor:
        """Return the items of a tensor's last dimension that a value of this spec chooses.

        Args:
            index: a value of this spec, ``[*B]`` categories.
            tensor_to_index: ``[..., cardinality]``.

        Returns:
            Items ``[..., *B]``.

        Raises:
            UsageError: values of this spec choose nothing.
        """
        raise UsageError(f"A value of {type(self).__name__} does not choose an item of a tensor.")

    # -- other specs

    def _changed(self, change: Change) -> Self:
        """Return this spec after a change of shape, which a mask follows."""
        mask = None if self.mask is None else change(self.mask)
        return self._like_this(shape=after_change(self.shape, change), mask=mask)

    @property
    def ndim(self) -> int:
        """How many dimensions a value has."""
        return len(self.shape)

    def expand(self, *sizes: Any) -> Self:
        """Return this spec with sizes of dimensions that are new, or of size 1 so far."""
        new, ndim = written_sizes(sizes), self.ndim
        return self._with(lambda tensor: tensor.expand((*new, *tensor.shape[ndim:])))

    def reshape(self, *sizes: Any) -> Self:
        """Return this spec with its dimensions divided otherwise; -1 is what remains."""
        new, ndim = written_sizes(sizes), self.ndim
        return self._with(lambda tensor: tensor.reshape((*new, *tensor.shape[ndim:])))

    def flatten(self, start_dim: int, end_dim: int) -> Self:
        """Return this spec with dimensions made one."""
        first, last = dimension(start_dim, self.ndim), dimension(end_dim, self.ndim)
        return self._with(lambda tensor: tensor.flatten(first, last))

    def unflatten(self, dim: int, sizes: Iterable[int]) -> Self:
        """Return this spec with one dimension made several."""
        place, new = dimension(dim, self.ndim), tuple(sizes)
        return self._with(lambda tensor: tensor.unflatten(place, new))

    def squeeze(self, dim: int | None = None) -> Self:
        """Return this spec without a dimension of size 1, or all of them."""
        ones = tuple(place for place, size in enumerate(self.shape) if size == 1)
        places = ones if dim is None else (dimension(dim, self.ndim),)
        return self._with(lambda tensor: tensor.squeeze(places))

    def unsqueeze(self, dim: int) -> Self:
        """Return this spec with one more dimension of size 1."""
        place = dimension(dim, self.ndim + 1)
        return self._with(lambda tensor: tensor.unsqueeze(place))

    def unbind(self, dim: int = 0) -> tuple[Self, ...]:
        """Return the spec of each item of a dimension."""
        place = dimension(dim, self.ndim)
        return tuple(
            self._with(lambda tensor, item=item: tensor.select(place, item))  # type: ignore[misc]
            for item in range(self.shape[place])
        )

    def __getitem__(self, index: Any) -> Any:
        """Return the spec of ``value[index]``."""
        return self._with(indexing(index, self.ndim))

    @abstractmethod
    def to(self, destination: str | torch.device | torch.dtype | None) -> TensorSpec:
        """Return this spec on a device, or with an element type."""

    def clone(self) -> Self:
        """Return an equal spec that shares no memory with this one."""
        return self._with(torch.clone)

    def _like_this(self, **attributes: Any) -> Self:
        """Return a copy of this spec with other attributes."""
        other = copy(self)
        vars(other).update(attributes)
        return other

    def _with(self, change: Change) -> Self:
        try:
            return self._changed(change)
        except IndexError as error:
            raise IndexError(f"{self} cannot be indexed so: {error}") from error
        except (RuntimeError, TypeError) as error:
            raise UsageError(f"The shape of {self} cannot be changed so: {error}") from error

    # -- the same by other names

    def sample(self, shape: ShapeLike | None = None) -> Any:
        """Return ``rand(shape)``."""
        return self.rand(shape)

    def zeros(self, shape: ShapeLike | None = None) -> Any:
        """Return ``zero(shape)``."""
        return self.zero(shape)

    def ones(self, shape: ShapeLike | None = None) -> Any:
        """Return ``one(shape)``."""
        return self.one(shape)

    def contains(self, value: Any) -> bool:
        """Return ``is_in(value)``."""
        return self.is_in(value)

    def view(self, *sizes: Any) -> Self:
        """Return ``reshape(*sizes)``."""
        return self.reshape(*sizes)

    def ndimension(self) -> int:
        """Return ``ndim``."""
        return self.ndim

    def cpu(self) -> TensorSpec:
        """Return ``to("cpu")``."""
        return self.to("cpu")

    def cuda(self, device: int | str | torch.device | None = None) -> TensorSpec:
        """Return ``to("cuda")``, or on one of several."""
        return self.to(torch.device("cuda" if device is None else device))

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other) or not isinstance(other, TensorSpec):
            return False
        same = (self.shape, self.device) == (other.shape, other.device)
        return same and self._has_values_of(other)

    __hash__ = None  # type: ignore[assignment]

    @abstractmethod
    def _has_values_of(self, other: Any) -> bool:
        """Return whether another spec of this class, shape and device has the same values."""

    def __repr__(self) -> str:
        lines = ",\n".join(self._lines())
        return f"{self._name()}(\n{indent(lines, '    ')})"

    def _name(self) -> str:
        return type(self).__name__

    def _lines(self) -> list[str]:
        """Return what is printed of this spec, an attribute or an entry each."""
        names = ("shape", "space", "device", "dtype", "domain")
        return [f"{name}={getattr(self, name)}" for name in names]

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Do what ``torch.stack`` does to values, to their specs."""
        return _stack(*args, **(kwargs or {})) if function is torch.stack else NotImplemented


def _stack(specs: Iterable[TensorSpec], dim: int = 0) -> TensorSpec:
    """Return the spec of stacked values."""
    first, *others = specs
    if different := [other for other in others if first != other]:
        raise UsageError(f"Only equal specs can be stacked. Found {first} and {different[0]}.")
    place = dimension(dim, first.ndim + 1)
    sizes = (*first.shape[:place], len(others) + 1, *first.shape[place:])
    stacked: TensorSpec = first.unsqueeze(place).expand(sizes)
    return stacked
