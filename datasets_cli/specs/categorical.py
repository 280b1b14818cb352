"""One of several categories, as its number; and values of 0 or 1."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch.nn.functional import pad

import datasets_cli
from datasets_cli.errors import UsageError
from datasets_cli.specs.leaf import CategorySpec, LeafSpec
from datasets_cli.specs.spec import Change, ShapeLike, TensorSpec, as_tensor, shape_of
from datasets_cli.torchrl.keywords import accepts_keywords


@dataclass(frozen=True)
class CategoricalBox:
    """The numbers from 0 to ``n - 1``."""

    n: int


@dataclass(frozen=True)
class BoxList:
    """A box for each item of a tensor's last dimension."""

    boxes: tuple[CategoricalBox | BoxList, ...]

    def __iter__(self) -> Iterator[CategoricalBox | BoxList]:
        return iter(self.boxes)

    def __len__(self) -> int:
        return len(self.boxes)

    def __repr__(self) -> str:
        return f"BoxList(boxes={[*self.boxes]})"


class Categorical(CategorySpec):
    """Numbers from 0 to ``n - 1``.

    Args:
        n: how many categories there are.
        shape: of a value; one number where None.
        device: where values are.
        dtype: their element type.
        mask: ``[*shape, n]``, or what expands to it: False for the categories that are excluded.

    Raises:
        UsageError: there is no category, or the mask excludes all of them, or is of another shape.
    """

    space: CategoricalBox

    def __init__(
        self,
        n: int,
        shape: ShapeLike | None = None,
        device: str | torch.device | None = None,
        dtype: torch.dtype = torch.int64,
        mask: torch.Tensor | None = None,
    ) -> None:
        super().__init__(shape_of(shape), CategoricalBox(counted(n)), device, dtype, "discrete")
        check_fits(n, dtype)
        self.update_mask(mask)

    def update_mask(self, mask: torch.Tensor | None) -> None:
        """Exclude other categories, as ``mask`` of the class does; none where None."""
        self._mask = known_mask(mask, (*self.shape, self.n), self.device)

    def to_one_hot_spec(self) -> TensorSpec:
        """Return the spec of the same categories as vectors."""
        return datasets_cli.OneHot(self.n, (*self.shape, self.n), self.device, mask=self._mask)

    @property
    def n(self) -> int:
        """How many categories there are."""
        return self.space.n

    def rand(self, shape: ShapeLike | None = None) -> torch.Tensor:
        """Return numbers ``[*shape, *self.shape]``, each that the mask allows as likely."""
        size = self._size(shape)
        if self._mask is None:
            return torch.randint(0, self.n, size, dtype=self.dtype, device=self.device)
        weights = self._mask.expand(*size, self.n).reshape(-1, self.n).float()
        return torch.multinomial(weights, 1).reshape(size).to(self.dtype)

    def _holds(self, value: torch.Tensor) -> bool:
        return are_allowed(value, self.n, self._mask)

    def _nearest(self, value: torch.Tensor) -> torch.Tensor:
        # Clamped before it is a whole number: infinity has none.
        near = value.clamp(0, self.n - 1).round() if value.dtype != torch.bool else value
        if self._mask is None:
            return near.to(self.dtype)
        distance = (torch.arange(self.n, device=value.device) - near.unsqueeze(-1)).abs().double()
        return (
            distance.masked_fill(~self._mask.to(value.device), torch.inf).argmin(-1).to(self.dtype)
        )

    def _check_encoded(self, value: Any) -> None:
        check_numbers(value, self.n)

    def index(self, index: torch.Tensor, tensor_to_index: torch.Tensor) -> torch.Tensor:
        """Return the items ``[..., *B]`` of a tensor ``[..., n]`` at numbers ``[*B]``."""
        return chosen(tensor_to_index, index.long())

    def cardinality(self) -> int:
        """Return how many categories there are, those excluded included."""
        return self.n

    def enumerate(self, use_mask: bool = False) -> torch.Tensor:
        """Return all numbers ``[n, *self.shape]``, or those that the mask allows."""
        numbers = torch.arange(self.n, device=self.device).to(self.dtype)
        numbers = numbers.reshape(-1, *(1,) * self.ndim).expand(self.n, *self.shape)
        return self._listed(numbers, use_mask)


def counted(n: Any) -> int:
    """Return a number of categories."""
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise UsageError(f"A number of categories must be a whole number of 1 or more, not {n!r}.")
    return int(n)


def check_fits(n: int, dtype: torch.dtype) -> None:
    """Refuse an element type that does not have a number for each category."""
    if dtype == torch.bool or dtype.is_complex:
        most = int(dtype == torch.bool)
    elif dtype.is_floating_point:
        most = int(2 / torch.finfo(dtype).eps)  # whole numbers up to this are exact
    else:
        most = torch.iinfo(dtype).max
    if n - 1 > most:
        raise UsageError(f"{dtype} cannot represent all categories from 0 to {n - 1}.")


def known_mask(mask: Any, shape: tuple[int, ...], device: torch.device) -> torch.Tensor | None:
    """Return a mask ``[*shape]`` of bools on a device, where there is one."""
    if mask is None:
        return None
    try:
        known = as_tensor(mask).to(device=device, dtype=torch.bool).clone()
        # One of all categories, whatever its dimensions.
        known = (known.reshape(-1) if known.numel() == shape[-1] else known).expand(shape)
    except RuntimeError as error:
        raise UsageError(f"A mask of shape {tuple(mask.shape)} does not fit {shape}.") from error
    return checked_mask(known)


def checked_mask(mask: torch.Tensor) -> torch.Tensor:
    """Return a mask ``[..., n]``."""
    if not bool(mask.any(-1).all()):
        raise UsageError("A mask excludes all categories: none is left to draw.")
    return mask


def are_allowed(value: torch.Tensor, n: int | torch.Tensor, mask: torch.Tensor | None) -> bool:
    """Return whether all numbers are of categories, from 0 to ``n - 1``, that a mask allows."""
    if not bool(((value >= 0) & (value < n)).all()):
        return False
    if mask is None:
        return True
    allowed = mask.to(value.device).expand(*value.shape, -1)
    return bool(allowed.gather(-1, value.long().unsqueeze(-1)).all())


def chosen(tensor: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
    """Return the items ``[..., *B]`` of a tensor ``[..., n]`` at numbers int64 ``[*B]``."""
    return tensor.index_select(-1, number.reshape(-1)).reshape(tensor.shape[:-1] + number.shape)


def check_numbers(value: Any, n: int | np.ndarray) -> None:
    """Refuse what are not numbers of categories."""
    numbers = np.asarray(value.cpu() if isinstance(value, torch.Tensor) else value)
    if not ((numbers >= 0) & (numbers < n) & (numbers == np.floor(numbers))).all():
        raise UsageError(
            f"A category must be a whole number from 0 to {n - 1}; found {numbers.tolist()}."
        )


MOST_LISTED = 20  # more values of 0 or 1 have above a million combinations


class Binary(LeafSpec):
    """Values of 0 or 1.

    Args:
        n: how many there are, the last size of ``shape``; may be left out where that is given.
        shape: of a value; ``[n]`` where None.
        device: where values are.
        dtype: their element type.

    Raises:
        UsageError: neither is given, or they contradict each other.
    """

    space: CategoricalBox

    def __init__(
        self,
        n: int | None = None,
        shape: ShapeLike | None = None,
        device: str | torch.device | None = None,
        dtype: torch.dtype = torch.int8,
    ) -> None:
        if n is None and shape is None:
            raise UsageError("Binary takes n, how many values there are, or their shape.")
        size = shape_of((counted(n),) if shape is None else shape)
        if n is not None and size[-1:] != (n,):
            raise UsageError(f"The last size of {tuple(size)} must be n, {n}.")
        super().__init__(size, CategoricalBox(2), device, dtype, "discrete")

    @property
    def n(self) -> int:
        """How many values an item has: 2."""
        return self.space.n

    def rand(self, shape: ShapeLike | None = None) -> torch.Tensor:
        """Return zeros and ones ``[*shape, *self.shape]``, each as likely."""
        return torch.randint(0, 2, self._size(shape), dtype=self.dtype, device=self.device)

    def _holds(self, value: torch.Tensor) -> bool:
        return bool(((value == 0) | (value == 1)).all())

    def _nearest(self, value: torch.Tensor) -> torch.Tensor:
        near = value if value.dtype == torch.bool else value.clamp(0, 1).round()
        return near.to(self.dtype)

    def _check_encoded(self, value: Any) -> None:
        check_numbers(value, 2)

    def cardinality(self) -> int:
        """Return how many values the last dimension has."""
        return int(2 ** (self.shape[-1] if self.shape else 1))

    def enumerate(self, use_mask: bool = False) -> torch.Tensor:
        """Return all values of the last dimension ``[2**n, *self.shape]``.

        Raises:
            UsageError: there are more than a million.
        """
        num_items = self.shape[-1] if self.shape else 1
        if num_items > MOST_LISTED:
            raise UsageError(f"The 2**{num_items} values of {self} are too many to be listed.")
        numbers = torch.arange(2**num_items, device=self.device)
        # The digits of each number, the highest first.
        digits = (numbers.unsqueeze(-1) >> torch.arange(num_items - 1, -1, -1)) & 1
        rows = digits.to(self.dtype).reshape(-1, *(1,) * (self.ndim - 1), *self.shape[-1:])
        return rows.expand(len(numbers), *self.shape)


@accepts_keywords
class MultiCategorical(CategorySpec):
    """Numbers that each have their own categories: item ``i`` is from 0 to ``nvec[i] - 1``.

    Args:
        nvec: how many categories each item has, ``[k]``, or ``[*shape]`` where other dimensions
            differ as well.
        shape: of a value, whose last size is ``k``; that of ``nvec`` where None.
        device: where values are.
        dtype: their element type.
        mask: ``[*shape[:-1], sum of nvec]``, or what expands to it: False for the categories that
            are excluded, those of the first item first.

    Raises:
        UsageError: an item has no category, the mask excludes all of one, or shapes differ.
    """

    space: BoxList

    def __init__(
        self,
        nvec: Any,
        shape: ShapeLike | None = None,
        device: str | torch.device | None = None,
        dtype: torch.dtype = torch.int64,
        mask: torch.Tensor | None = None,
    ) -> None:
        counts = as_tensor(nvec).clone()
        counts = torch.atleast_1d(counts) if shape is None else counts
        if counts.is_floating_point() or counts.dtype == torch.bool or not (counts > 0).all():
            raise UsageError(f"nvec must be whole numbers from 1 on, not {nvec!r}.")
        size = counts.shape if shape is None else shape_of(shape)
        try:
            counts = counts.long().expand(size)
        except RuntimeError as error:
            raise UsageError(f"nvec {nvec!r} does not fit the shape {tuple(size)}.") from error
        super().__init__(size, _space(counts), device, dtype, "discrete")
        check_fits(int(counts.max()), dtype)
        self.nvec = counts.to(self.device)
        # [*shape, most categories of an item]: as nvec it follows each change of shape.
        self.update_mask(mask)

    def update_mask(self, mask: torch.Tensor | None) -> None:
        """Exclude other categories, as ``mask`` of the class does; none where None."""
        self._mask = None if mask is None else self._by_item(mask)

    def to_one_hot_spec(self) -> TensorSpec:
        """Return the spec of the same categories as vectors, if each row has the same."""
        sizes = [item.n for item in self.split()]
        shape = (*self.shape[:-1], sum(sizes))
        return datasets_cli.MultiOneHot(sizes, shape, self.device, mask=self.mask)

    def _by_item(self, mask: Any) -> torch.Tensor:
        sizes = [item.n for item in self.split()]
        whole: Any = known_mask(mask, (*self.shape[:-1], sum(sizes)), self.device)
        items = [pad(part, (0, max(sizes) - part.shape[-1])) for part in whole.split(sizes, -1)]
        return checked_mask(torch.stack(items, -2))

    @property
    def mask(self) -> torch.Tensor | None:
        """The mask as the class takes it, ``[*shape[:-1], sum of nvec]``, if there is one."""
        if self._mask is None:
            return None
        return torch.cat([item.mask for item in self.split() if item.mask is not None], -1)

    def _allowed(self, device: torch.device) -> torch.Tensor:
        """Return which categories each item has, ``[*shape, most of an item]``."""
        if self._mask is not None:
            return self._mask.to(device)
        nvec: torch.Tensor = self.nvec.to(device)
        return torch.arange(int(nvec.max()), device=device) < nvec.unsqueeze(-1)

    def rand(self, shape: ShapeLike | None = None) -> torch.Tensor:
        """Return numbers ``[*shape, *self.shape]``, each that the mask allows as likely."""
        size = self._size(shape)
        sizes = _one_row(self.nvec)
        if self._mask is None and sizes is not None:
            options: dict[str, Any] = {"dtype": self.dtype, "device": self.device}
            return torch.stack([torch.randint(0, n, size[:-1], **options) for n in sizes], -1)
        weights = self._allowed(self.device).float()
        drawn = torch.multinomial(weights.expand(*size, -1).reshape(-1, weights.shape[-1]), 1)
        return drawn.reshape(size).to(self.dtype)

    def _holds(self, value: torch.Tensor) -> bool:
        return are_allowed(value, self.nvec.to(value.device), self._mask)

    def _nearest(self, value: torch.Tensor) -> torch.Tensor:
        wide = value.long() if value.dtype == torch.bool else value
        allowed = self._allowed(value.device)
        most = allowed.shape[-1]
        # Clamped first: infinity has no distance from two numbers that differs.
        near = wide.clamp(0, most - 1).unsqueeze(-1)
        distance = (torch.arange(most, device=value.device) - near).abs().double()
        return distance.masked_fill(~allowed, torch.inf).argmin(-1).to(self.dtype)

    def _check_encoded(self, value: Any) -> None:
        check_numbers(np.reshape(value, self.shape), self.nvec.cpu().numpy())

    def split(self) -> tuple[Categorical, ...]:
        """Return the spec of each item of the last dimension.

        Raises:
            UsageError: how many categories an item has differs in other dimensions.
        """
        sizes = _one_row(self.nvec)
        if sizes is None:
            raise UsageError(f"The items of {self} do not have one number of categories each.")
        masks = [None] * len(sizes) if self._mask is None else self._mask.unbind(-2)
        return tuple(
            Categorical(
                n, self.shape[:-1], self.device, self.dtype, None if m is None else m[..., :n]
            )
            for n, m in zip(sizes, masks, strict=True)
        )

    def cardinality(self) -> int:
        """Return how many values the last dimension has, those excluded included.

        Raises:
            UsageError: as ``split``.
        """
        return math.prod(item.n for item in self.split())

    def enumerate(self, use_mask: bool = False) -> torch.Tensor:
        """Return all values of the last dimension ``[cardinality, *self.shape]``, or those allowed.

        Raises:
            UsageError: as ``split``.
        """
        items = [torch.arange(item.n, device=self.device) for item in self.split()]
        rows = torch.stack(torch.meshgrid(*items, indexing="ij"), -1).to(self.dtype)
        rows = rows.reshape(-1, *(1,) * (self.ndim - 1), len(items))
        return self._listed(rows.expand(len(rows), *self.shape), use_mask)

    def _changed(self, change: Change) -> Self:
        nvec = change(self.nvec)
        return super()._changed(change)._like_this(space=_space(nvec), nvec=nvec)

    def _moved(self, device: torch.device, dtype: torch.dtype) -> TensorSpec:
        return super()._moved(device, dtype)._like_this(nvec=self.nvec.to(device))


def _one_row(nvec: torch.Tensor) -> list[int] | None:
    """Return the numbers of the last dimension where they are the same in all others."""
    if nvec.ndim == 0:
        return None
    rows = nvec.reshape(-1, nvec.shape[-1])
    is_one = len(rows) > 0 and bool((rows == rows[:1]).all())
    return [int(n) for n in rows[0]] if is_one else None


def _space(nvec: torch.Tensor) -> Any:
    return _boxes(_one_row(nvec) or nvec.tolist())


def _boxes(counts: Any) -> Any:
    if not isinstance(counts, list):
        return CategoricalBox(counts)
    return BoxList(tuple(_boxes(each) for each in counts))
