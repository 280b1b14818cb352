"""What one-hot vectors have, of one category or several."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Self

import torch
from torch.nn.functional import one_hot

from datasets_cli.errors import UsageError
from datasets_cli.specs.categorical import Categorical, check_numbers
from datasets_cli.specs.leaf import Leaf
from datasets_cli.specs.multi_categorical import MultiCategorical
from datasets_cli.specs.shapes import Change, Shape, ends_with, keeps_last
from datasets_cli.specs.values import as_tensor

Numbers = Categorical | MultiCategorical


class CategoryVectors(Leaf):
    """Categories as one-hot vectors, one after the other in the last dimension."""

    # mask: `[*shape]`: False for the categories that are excluded.

    def __init__(
        self,
        numbers: Numbers,
        sizes: Sequence[int],
        shape: torch.Size,
        dtype: torch.dtype,
        mask: torch.Tensor | None,
    ) -> None:
        super().__init__(shape, numbers.space, numbers.device, dtype, "discrete")
        self.mask = mask
        self._numbers = numbers
        self._sizes = [*sizes]

    @abstractmethod
    def _join(self, items: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the numbers of the vectors as a value of ``_numbers``."""

    @abstractmethod
    def _split(self, numbers: torch.Tensor) -> Iterable[torch.Tensor]:
        """Return a value of ``_numbers`` as the number of each vector."""

    def rand(self, shape: Shape | None = None) -> torch.Tensor:
        """Return vectors ``[*shape, *self.shape]``, each that the mask allows as likely."""
        return self._vectors(self._numbers.rand(shape))

    def _vectors(self, numbers: torch.Tensor) -> torch.Tensor:
        items = zip(self._split(numbers), self._sizes, strict=True)
        vectors = [one_hot(item.long(), n) for item, n in items]
        return (torch.cat(vectors, -1) if vectors[1:] else vectors[0]).to(self.dtype)

    def _holds(self, value: torch.Tensor) -> bool:
        if not bool(((value == 0) | (value == 1)).all()):
            return False
        has_one = all(bool((part.sum(-1) == 1).all()) for part in value.split(self._sizes, -1))
        return has_one and self._numbers.is_in(self.to_categorical(value))

    def _nearest(self, value: torch.Tensor) -> torch.Tensor:
        allowed = value.double()
        if self.mask is not None:
            allowed = allowed.masked_fill(~self.mask.to(value.device), -torch.inf)
        return self._vectors(self.to_categorical(allowed))

    def encode(self, value: Any) -> torch.Tensor:
        """Return the vectors of numbers of categories, which may have dimensions before theirs.

        Raises:
            UsageError: a number is not one of a category, or there are more or fewer of them.
        """
        numbers = as_tensor(value).to(self.device)
        if not ends_with(numbers.shape, self._numbers.shape):
            raise UsageError(
                f"Numbers of shape {tuple(numbers.shape)} cannot be encoded by a spec of shape "
                f"{tuple(self.shape)}, whose numbers are of shape {tuple(self._numbers.shape)}."
            )
        for item, n in zip(self._split(numbers), self._sizes, strict=True):
            check_numbers(item, n)
        return self._vectors(numbers)

    def to_categorical(self, value: torch.Tensor) -> torch.Tensor:
        """Return the numbers of the categories of vectors, int64; of the largest value of each."""
        parts = (value.long() if value.dtype == torch.bool else value).split(self._sizes, -1)
        return self._join([part.argmax(-1) for part in parts])

    def to_numpy(self, value: torch.Tensor) -> Any:
        """Return the numbers of the categories, as an array of numpy."""
        return self.to_categorical(value).cpu().numpy()

    def index(self, index: torch.Tensor, tensor_to_index: torch.Tensor) -> torch.Tensor:
        """Return the items of a tensor, whose last dimension is as that of vectors ``index``."""
        numbers = self._split(self.to_categorical(index))
        parts = zip(tensor_to_index.split(self._sizes, -1), numbers, strict=True)
        return self._join([_chosen(part, number) for part, number in parts])

    def cardinality(self) -> int:
        """Return how many vectors there are, those excluded included."""
        return self._numbers.cardinality()

    def enumerate(self) -> torch.Tensor:
        """Return all vectors ``[cardinality, *self.shape]``, those excluded included."""
        return self._vectors(self._numbers.enumerate())

    def _changed(self, change: Change) -> Self:
        shape = keeps_last(self.shape, change)
        mask = None if self.mask is None else change(self.mask)
        return self._like_this(shape=shape, mask=mask, _numbers=self._numbers_of(shape, mask))

    @abstractmethod
    def _numbers_of(self, shape: torch.Size, mask: torch.Tensor | None) -> Numbers:
        """Return the spec of the same categories as numbers, for another shape of vectors."""

    def _moved(self, device: torch.device, dtype: torch.dtype) -> Self:
        numbers = self._numbers.to(device)
        mask = None if self.mask is None else self.mask.to(device)
        return self._like_this(device=device, dtype=dtype, mask=mask, _numbers=numbers)


def _chosen(tensor: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
    found = tensor.index_select(-1, number.reshape(-1))
    return found.reshape((*tensor.shape[:-1], *number.shape))


def refuse_register(use_register: bool) -> None:
    """Refuse values that are numbered in the order in which they are met."""
    if use_register:
        raise UsageError(
            "use_register=True is not supported: numbers would depend on the order in which values "
            "are met. Number them before they are encoded."
        )
