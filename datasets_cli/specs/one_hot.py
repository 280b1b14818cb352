"""Specs of one-hot vectors: `OneHot` for one category, `MultiOneHot` for several."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Self

import torch
from torch.nn.functional import one_hot

from datasets_cli.errors import Unsupported, WrongRows, WrongSize, wrong_value
from datasets_cli.specs.categorical import (
    BoxList,
    Categorical,
    CategoricalBox,
    MultiCategorical,
    check_numbers,
    chosen,
    counted,
)
from datasets_cli.specs.leaf import CategorySpec
from datasets_cli.specs.spec import (
    Change,
    ShapeLike,
    TensorSpec,
    as_tensor,
    can_become,
    ends_with,
    keeps_last,
    shape_of,
)

CategoryNumbers = Categorical | MultiCategorical


class CategoryVectors(CategorySpec):
    """The spec of one-hot vectors, concatenated along the last dimension."""

    def __init__(
        self,
        numbers: CategoryNumbers,
        sizes: Sequence[int],
        shape: torch.Size,
        dtype: torch.dtype,
    ) -> None:
        super().__init__(shape, numbers.space, numbers.device, dtype, "discrete")
        self._mask = numbers.mask
        self._numbers = numbers
        self._sizes = [*sizes]

    @abstractmethod
    def _join(self, items: Sequence[torch.Tensor]) -> torch.Tensor:
        """Combine the number of each vector to a value of ``_numbers``."""

    @abstractmethod
    def _split(self, numbers: torch.Tensor) -> Iterable[torch.Tensor]:
        """Split a value of ``_numbers`` into the number of each vector."""

    def rand(self, shape: ShapeLike | None = None) -> torch.Tensor:
        """Return vectors ``[*shape, *self.shape]``, uniform among the allowed categories."""
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
        if self._mask is not None:
            allowed = allowed.masked_fill(~self._mask.to(value.device), -torch.inf)
        return self._vectors(self.to_categorical(allowed))

    def encode(self, value: Any, *, ignore_device: bool = False) -> torch.Tensor:
        """Encode category numbers as vectors; numbers may have leading batch dimensions.

        Raises:
            UsageError: a number is not a category.
            WrongRows: the numbers have another shape.
        """
        numbers = as_tensor(value)
        numbers = numbers if ignore_device else numbers.to(self.device)
        shape = self._numbers.shape
        if not ends_with(numbers.shape, shape) and can_become(numbers.shape, shape):
            numbers = numbers.reshape(shape)
        if not ends_with(numbers.shape, shape):
            raise WrongRows(
                f"Category numbers of a spec of shape {tuple(self.shape)} must have the shape "
                f"{tuple(shape)}; found shape {tuple(numbers.shape)}.",
                expected=tuple(shape),
                found=tuple(numbers.shape),
            )
        for item, n in zip(self._split(numbers), self._sizes, strict=True):
            check_numbers(item, n)
        return self._vectors(numbers)

    def to_categorical(self, value: torch.Tensor, safe: bool | None = None) -> torch.Tensor:
        """Return the category numbers of vectors, int64: the index of the largest value of each."""
        value = self._checked(value, safe)
        parts = (value.long() if value.dtype == torch.bool else value).split(self._sizes, -1)
        return self._join([part.argmax(-1) for part in parts])

    def to_numpy(self, value: torch.Tensor, safe: bool | None = None) -> Any:
        """Return the category numbers as a numpy array."""
        return self.to_categorical(value, safe).cpu().numpy()

    def update_mask(self, mask: torch.Tensor | None) -> None:
        """Replace the mask; None allows all categories."""
        self._numbers = self._numbers_of(self.shape, mask)
        self._mask = self._numbers.mask

    def index(self, index: torch.Tensor, tensor_to_index: torch.Tensor) -> torch.Tensor:
        """Return the items of a tensor's last dimension at the ones of the vectors ``index``."""
        numbers = self._split(self.to_categorical(index))
        parts = zip(tensor_to_index.split(self._sizes, -1), numbers, strict=True)
        return self._join([chosen(part, number) for part, number in parts])

    def cardinality(self) -> int:
        """Return the number of vectors, excluded ones included."""
        return self._numbers.cardinality()

    def enumerate(self, use_mask: bool = False) -> torch.Tensor:
        """Return all vectors ``[cardinality, *self.shape]``, or with ``use_mask`` the allowed."""
        return self._vectors(self._numbers.enumerate(use_mask))

    def _changed(self, change: Change) -> Self:
        shape = keeps_last(self.shape, change)
        changed = super()._changed(change)
        return changed._like_this(_numbers=self._numbers_of(shape, changed._mask))

    @abstractmethod
    def _numbers_of(self, shape: torch.Size, mask: torch.Tensor | None) -> CategoryNumbers:
        """Return the spec of the category numbers of vectors of another shape."""

    def _moved(self, device: torch.device, dtype: torch.dtype) -> TensorSpec:
        return super()._moved(device, dtype)._like_this(_numbers=self._numbers.to(device))


class OneHot(CategoryVectors):
    """One-hot vectors of ``n`` categories.

    Args:
        n: the number of categories.
        shape: the shape of a value, with the last size ``n``; None for ``[n]``.
        device: the device of values.
        dtype: the dtype of values.
        use_register: True is not supported; categories are numbers.
        mask: bool ``[*shape]`` or broadcastable to it; False excludes a category.

    Raises:
        UsageError: as ``Categorical``.
        WrongSize: the last size is not ``n``, or the mask has another shape.
        Unsupported: use_register is True.
    """

    space: CategoricalBox

    def __init__(
        self,
        n: int,
        shape: ShapeLike | None = None,
        device: str | torch.device | None = None,
        dtype: torch.dtype = torch.bool,
        use_register: bool = False,
        mask: torch.Tensor | None = None,
    ) -> None:
        _refuse_register(use_register)
        size = shape_of((counted(n),) if shape is None else shape)
        if size[-1:] != (n,):
            raise wrong_value(
                "shape", f"a shape whose last size is n, {n}", tuple(size), kind=WrongSize
            )
        numbers = Categorical(n, size[:-1], device, mask=mask)
        super().__init__(numbers, [n], size, dtype)

    @property
    def n(self) -> int:
        """The number of categories."""
        return self.space.n

    def to_categorical_spec(self) -> Categorical:
        """Return the spec of the same categories as numbers."""
        return self._numbers_of(self.shape, self._mask)

    def _join(self, items: Sequence[torch.Tensor]) -> torch.Tensor:
        return items[0]

    def _split(self, numbers: torch.Tensor) -> Iterable[torch.Tensor]:
        return (numbers,)

    def _numbers_of(self, shape: torch.Size, mask: torch.Tensor | None) -> Categorical:
        return Categorical(self.n, shape[:-1], self.device, mask=mask)


class MultiOneHot(CategoryVectors):
    """Concatenated one-hot vectors: vector ``i`` has ``nvec[i]`` categories.

    Args:
        nvec: the number of categories of each vector, ``[k]``.
        shape: the shape of a value, with the sum of ``nvec`` as its last size; None for that size.
        device: the device of values.
        dtype: the dtype of values.
        use_register: True is not supported; categories are numbers.
        mask: bool ``[*shape]`` or broadcastable to it; False excludes a category.

    Raises:
        UsageError: as ``MultiCategorical``.
        WrongSize: nvec is not one-dimensional, the last size is not the sum of ``nvec``, or the
            mask has another shape.
        Unsupported: use_register is True.
    """

    space: BoxList

    def __init__(
        self,
        nvec: Any,
        shape: ShapeLike | None = None,
        device: str | torch.device | None = None,
        dtype: torch.dtype = torch.bool,
        use_register: bool = False,
        mask: torch.Tensor | None = None,
    ) -> None:
        _refuse_register(use_register)
        items = MultiCategorical(nvec)
        sizes = [item.n for item in items.split()]
        size = shape_of((sum(sizes),) if shape is None else shape)
        if items.ndim != 1 or size[-1:] != (sum(sizes),):
            raise WrongSize(
                f"nvec must be one-dimensional and the last size of the shape its sum, "
                f"{sum(sizes)}; found nvec {nvec!r} and shape {tuple(size)}.",
                argument="shape",
                expected=sum(sizes),
                found=tuple(size),
            )
        numbers = MultiCategorical(sizes, (*size[:-1], len(sizes)), device, mask=mask)
        super().__init__(numbers, sizes, size, dtype)

    @property
    def nvec(self) -> torch.Tensor:
        """The number of categories of each vector, int64 ``[k]``."""
        return torch.tensor(self._sizes)

    def to_categorical_spec(self) -> MultiCategorical:
        """Return the spec of the same categories as numbers."""
        return self._numbers_of(self.shape, self._mask)

    def _join(self, items: Sequence[torch.Tensor]) -> torch.Tensor:
        return torch.stack([*items], -1)

    def _split(self, numbers: torch.Tensor) -> Iterable[torch.Tensor]:
        return numbers.unbind(-1)

    def _numbers_of(self, shape: torch.Size, mask: torch.Tensor | None) -> MultiCategorical:
        size = (*shape[:-1], len(self._sizes))
        return MultiCategorical(self._sizes, size, self.device, mask=mask)


def _refuse_register(use_register: bool) -> None:
    if use_register:
        raise Unsupported(
            "use_register=True is not supported: category numbers would depend on the order of "
            "the calls.",
            argument="use_register",
            found=True,
            advice="Number the values before encoding them.",
        )
