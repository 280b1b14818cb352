"""One of several categories, as a vector with a one at its place."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch.nn.functional import one_hot

from datasets_cli.errors import UsageError
from datasets_cli.specs.categorical import Categorical, check_numbers, counted
from datasets_cli.specs.shapes import Change, Shape, ends_with, keeps_last, shape_of
from datasets_cli.specs.spaces import CategoricalBox
from datasets_cli.specs.spec import TensorSpec, as_tensor


class OneHot(TensorSpec):
    """Vectors of ``n`` values of which one is 1, at the place of a category.

    Args:
        n: how many categories there are.
        shape: of a value, whose last size is ``n``; ``[n]`` where None.
        device: where values are.
        dtype: their element type.
        use_register: refused: categories are numbers here.
        mask: ``[*shape]``, or what expands to it: False for the categories that are excluded.

    Raises:
        UsageError: as ``Categorical``; or the last size is not ``n``.
    """

    space: CategoricalBox

    def __init__(
        self,
        n: int,
        shape: Shape | None = None,
        device: str | torch.device | None = None,
        dtype: torch.dtype = torch.bool,
        use_register: bool = False,
        mask: torch.Tensor | None = None,
    ) -> None:
        refuse_register(use_register)
        size = shape_of((counted(n),) if shape is None else shape)
        if size[-1:] != (n,):
            raise UsageError(f"The last size of a one-hot vector of {n} is {n}, not {tuple(size)}.")
        numbers = Categorical(n, size[:-1], device, mask=mask)
        super().__init__(size, numbers.space, device, dtype, "discrete")
        self.mask = numbers.mask
        self._numbers = numbers  # the same categories, as numbers

    @property
    def n(self) -> int:
        """How many categories there are."""
        return self.space.n

    def rand(self, shape: Shape | None = None) -> torch.Tensor:
        """Return vectors ``[*shape, *self.shape]``, each that the mask allows as likely."""
        return self._vectors(self._numbers.rand(shape))

    def _vectors(self, numbers: torch.Tensor) -> torch.Tensor:
        return one_hot(numbers.long(), self.n).to(self.dtype)

    def _holds(self, value: torch.Tensor) -> bool:
        is_vector = (((value == 0) | (value == 1)).all(-1)) & (value.sum(-1) == 1)
        return bool(is_vector.all()) and self._numbers.is_in(self.to_categorical(value))

    def _nearest(self, value: torch.Tensor) -> torch.Tensor:
        if self.mask is None:
            return self._vectors(self.to_categorical(value))
        allowed = value.double().masked_fill(~self.mask.to(value.device), -torch.inf)
        return self._vectors(allowed.argmax(-1))

    def encode(self, value: Any) -> torch.Tensor:
        """Return the vectors ``[..., n]`` of the numbers of categories, ``[...]``.

        Raises:
            UsageError: a number is not one of a category, or there are more or fewer of them.
        """
        numbers = as_tensor(value).to(self.device)
        if not ends_with(numbers.shape, self.shape[:-1]):
            raise UsageError(
                f"Numbers of shape {tuple(numbers.shape)} cannot be encoded by a spec of shape "
                f"{tuple(self.shape)}, which has a vector of {self.n} for each."
            )
        check_numbers(numbers, self.n)
        return self._vectors(numbers)

    def to_categorical(self, value: torch.Tensor) -> torch.Tensor:
        """Return the numbers ``[...]`` of the categories of vectors ``[..., n]``, int64."""
        return (value.long() if value.dtype == torch.bool else value).argmax(-1)

    def to_categorical_spec(self) -> Categorical:
        """Return the spec of the same categories as numbers."""
        return self._numbers

    def to_numpy(self, value: torch.Tensor) -> Any:
        """Return the numbers of the categories, as an array of numpy."""
        return self.to_categorical(value).cpu().numpy()

    def index(self, index: torch.Tensor, tensor_to_index: torch.Tensor) -> torch.Tensor:
        """Return the items ``[..., *B]`` of a tensor ``[..., n]`` at vectors ``[*B, n]``."""
        return self._numbers.index(self.to_categorical(index), tensor_to_index)

    def cardinality(self) -> int:
        """Return how many categories there are, those excluded included."""
        return self.n

    def enumerate(self) -> torch.Tensor:
        """Return all vectors ``[n, *self.shape]``, those excluded included."""
        return self._vectors(self._numbers.enumerate())

    def _changed(self, change: Change) -> Self:
        shape = keeps_last(self.shape, change)
        mask = None if self.mask is None else change(self.mask)
        numbers = Categorical(self.n, shape[:-1], self.device, mask=mask)
        return self._like_this(shape=shape, mask=mask, _numbers=numbers)

    def _moved(self, device: torch.device, dtype: torch.dtype) -> OneHot:
        return OneHot(self.n, self.shape, device, dtype, mask=self.mask)


OneHotDiscreteTensorSpec = OneHot


def refuse_register(use_register: bool) -> None:
    """Refuse values that are numbered in the order in which they are met.

    Raises:
        UsageError: always, if ``use_register``.
    """
    if use_register:
        raise UsageError(
            "use_register=True is not supported: numbers would depend on the order in which values "
            "are met. Number them before they are encoded."
        )
