"""What all specs have."""

from __future__ import annotations

from abc import abstractmethod
from textwrap import indent
from typing import Any, Self

import torch

from datasets_cli.errors import UsageError
from datasets_cli.specs.arguments import ShapeLike, known_device, known_dtype, shape_of
from datasets_cli.specs.shaped import Shaped


class TensorSpec(Shaped):
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

    def __init__(
        self,
        shape: ShapeLike,
        space: Any,
        device: str | torch.device | None = None,
        dtype: torch.dtype = torch.float32,
        domain: str = "",
    ) -> None:
        self.shape = shape_of(shape)
        self.space: Any = space
        self.device: Any = known_device(device)
        self.dtype: Any = known_dtype(dtype)
        self.domain: Any = domain

    def __getattr__(self, name: str) -> Any:
        instead = INSTEAD.get(name, "")
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}. {instead}".strip())

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
    def type_check(self, value: Any, key: Any = None) -> None:
        """Refuse what is of another element type; ``key`` is that of the value, for the error.

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
    def encode(self, value: Any, *, ignore_device: bool = False) -> Any:
        """Return what an environment gives as a value of this shape, element type and device.

        Raises:
            UsageError: it is of another shape, or cannot be such a value.
        """

    def memoize_encode(self, mode: bool = True) -> None:
        """Return None: ``encode`` keeps nothing, and gives the same either way."""

    def erase_memoize_cache(self) -> None:
        """Return None: ``encode`` keeps nothing."""

    @abstractmethod
    def to_numpy(self, value: Any, safe: bool | None = None) -> Any:
        """Return a value as an environment takes it, in numpy; ``safe`` refuses one not in it."""

    def cardinality(self) -> int | float:
        """Return how many values there are, as float ``inf`` where they are not counted."""
        return float("inf")

    def enumerate(self, use_mask: bool = False) -> Any:
        """Return all values ``[cardinality, *self.shape]``, or those that a mask allows.

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

    @abstractmethod
    def to(self, destination: str | torch.device | torch.dtype | None) -> TensorSpec:
        """Return this spec on a device, or with an element type."""

    def clear_device_(self) -> Self:
        """Return this spec; a Composite has no device any more."""
        return self

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


INSTEAD = {
    "rand_update": "Write values.update(spec.rand()).",
    "zeros_update": "Write values.update(spec.zero()).",
    "ones_update": "Write values.update(spec.one()).",
    "refine_names": "Set names.",
    "separates": "Take out each entry by pop().",
    "make_neg_dim": "Sizes of a shape are 0 or more.",
    "set_provisional_n": "A number of categories is known from the start.",
    "n": "Each item has its number of categories: nvec.",
    "implements_for_spec": "torch.stack, index_select, squeeze and unsqueeze take specs.",
    **dict.fromkeys(
        ("to_one_hot", "to_one_hot_spec", "to_categorical", "to_categorical_spec", "update_mask"),
        "It is not of categories.",
    ),
}
"""What of TorchRL's is not here, and what to do instead."""
