"""Specs of category numbers: `Categorical`, `MultiCategorical`, and `Binary` values of 0 or 1."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch.nn.functional import pad

import datasets_cli
from datasets_cli.errors import Unsupported, UsageError, WrongSize, wrong_value
from datasets_cli.specs.leaf import CategorySpec, LeafSpec
from datasets_cli.specs.spec import Change, ShapeLike, TensorSpec, as_tensor, shape_of
from datasets_cli.torchrl.keywords import accepts_keywords


@dataclass(frozen=True)
class CategoricalBox:
    """The integers from 0 to ``n - 1``."""

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
        n: the number of categories.
        shape: the shape of a value; None for a single number.
        device: the device of values.
        dtype: the dtype of values.
        mask: bool ``[*shape, n]`` or broadcastable to it; False excludes a category.

    Raises:
        UsageError: n is below 1, the dtype cannot represent ``n - 1``, or the mask excludes all
            categories.
        WrongSize: the mask has another shape.
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
        """Replace the mask; None allows all categories."""
        self._mask = known_mask(mask, (*self.shape, self.n), self.device)

    def to_one_hot_spec(self) -> TensorSpec:
        """Return the spec of the same categories as vectors."""
        return datasets_cli.OneHot(self.n, (*self.shape, self.n), self.device, mask=self._mask)

    @property
    def n(self) -> int:
        """The number of categories."""
        return self.space.n

    def rand(self, shape: ShapeLike | None = None) -> torch.Tensor:
        """Return numbers ``[*shape, *self.shape]``, uniform among the allowed categories."""
        size = self._size(shape)
        if self._mask is None:
            return torch.randint(0, self.n, size, dtype=self.dtype, device=self.device)
        weights = self._mask.expand(*size, self.n).reshape(-1, self.n).float()
        return torch.multinomial(weights, 1).reshape(size).to(self.dtype)

    def _holds(self, value: torch.Tensor) -> bool:
        return are_allowed(value, self.n, self._mask)

    def _nearest(self, value: torch.Tensor) -> torch.Tensor:
        # Clamped before rounding, because infinity cannot be rounded.
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
        """Return the number of categories, excluded ones included."""
        return self.n

    def enumerate(self, use_mask: bool = False) -> torch.Tensor:
        """Return all numbers ``[n, *self.shape]``; with ``use_mask``, the allowed ones."""
        numbers = torch.arange(self.n, device=self.device).to(self.dtype)
        numbers = numbers.reshape(-1, *(1,) * self.ndim).expand(self.n, *self.shape)
        return self._listed(numbers, use_mask)


def counted(n: Any) -> int:
    """Validate a number of categories and return it."""
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise UsageError(
            f"A number of categories must be an integer of at least 1, not {n!r}.", found=n
        )
    return int(n)


def check_fits(n: int, dtype: torch.dtype) -> None:
    """Raise an error if the dtype cannot represent every category."""
    if dtype == torch.bool or dtype.is_complex:
        most = int(dtype == torch.bool)
    elif dtype.is_floating_point:
        most = int(2 / torch.finfo(dtype).eps)  # whole numbers up to this are exact
    else:
        most = torch.iinfo(dtype).max
    if n - 1 > most:
        raise UsageError(
            f"{dtype} cannot represent all categories from 0 to {n - 1}.",
            argument="dtype",
            found=dtype,
        )


def known_mask(mask: Any, shape: tuple[int, ...], device: torch.device) -> torch.Tensor | None:
    """Return a mask as a bool tensor ``[*shape]`` on a device, or None."""
    if mask is None:
        return None
    try:
        known = as_tensor(mask).to(device=device, dtype=torch.bool).clone()
        # A mask of all categories may have any number of dimensions.
        known = (known.reshape(-1) if known.numel() == shape[-1] else known).expand(shape)
    except RuntimeError as error:
        raise wrong_value(
            "mask", f"a shape that broadcasts to {shape}", tuple(mask.shape), kind=WrongSize
        ) from error
    return checked_mask(known)


def checked_mask(mask: torch.Tensor) -> torch.Tensor:
    """Return a mask ``[..., n]``, or raise an error if it excludes all categories."""
    if not bool(mask.any(-1).all()):
        raise UsageError("The mask excludes all categories.", argument="mask")
    return mask


def are_allowed(value: torch.Tensor, n: int | torch.Tensor, mask: torch.Tensor | None) -> bool:
    """Return whether all numbers are from 0 to ``n - 1`` and allowed by the mask."""
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
    """Raise an error unless all values are integers from 0 to ``n - 1``."""
    numbers = np.asarray(value.cpu() if isinstance(value, torch.Tensor) else value)
    if not ((numbers >= 0) & (numbers < n) & (numbers == np.floor(numbers))).all():
        raise UsageError(
            f"A category must be an integer from 0 to {n - 1}; found {numbers.tolist()}.",
            expected=f"0 to {n - 1}",
            found=numbers.tolist(),
        )


MOST_LISTED = 20  # more values of 0 or 1 have above a million combinations


class Binary(LeafSpec):
    """Values of 0 or 1.

    Args:
        n: the last size of ``shape``; optional if ``shape`` is given.
        shape: the shape of a value; None for ``[n]``.
        device: the device of values.
        dtype: the dtype of values.

    Raises:
        UsageError: both n and shape are missing.
        WrongSize: the last size of ``shape`` is not ``n``.
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
            raise UsageError("Binary requires n, the number of values, or shape.", argument="n")
        size = shape_of((counted(n),) if shape is None else shape)
        if n is not None and size[-1:] != (n,):
            raise wrong_value(
                "shape", f"a shape whose last size is n, {n}", tuple(size), kind=WrongSize
            )
        super().__init__(size, CategoricalBox(2), device, dtype, "discrete")

    @property
    def n(self) -> int:
        """The number of categories of an item: 2."""
        return self.space.n

    def rand(self, shape: ShapeLike | None = None) -> torch.Tensor:
        """Return zeros and ones ``[*shape, *self.shape]``, equally likely."""
        return torch.randint(0, 2, self._size(shape), dtype=self.dtype, device=self.device)

    def _holds(self, value: torch.Tensor) -> bool:
        return bool(((value == 0) | (value == 1)).all())

    def _nearest(self, value: torch.Tensor) -> torch.Tensor:
        near = value if value.dtype == torch.bool else value.clamp(0, 1).round()
        return near.to(self.dtype)

    def _check_encoded(self, value: Any) -> None:
        check_numbers(value, 2)

    def cardinality(self) -> int:
        """Return the number of values of the last dimension."""
        return int(2 ** (self.shape[-1] if self.shape else 1))

    def enumerate(self, use_mask: bool = False) -> torch.Tensor:
        """Return all values of the last dimension ``[2**n, *self.shape]``.

        Raises:
            WrongSize: n is above 20, so more than a million values.
        """
        num_items = self.shape[-1] if self.shape else 1
        if num_items > MOST_LISTED:
            raise WrongSize(
                f"{self} has 2**{num_items} values; at most 2**{MOST_LISTED} can be listed.",
                expected=MOST_LISTED,
                found=num_items,
            )
        numbers = torch.arange(2**num_items, device=self.device)
        # The digits of each number, the highest first.
        digits = (numbers.unsqueeze(-1) >> torch.arange(num_items - 1, -1, -1)) & 1
        rows = digits.to(self.dtype).reshape(-1, *(1,) * (self.ndim - 1), *self.shape[-1:])
        return rows.expand(len(numbers), *self.shape)


@accepts_keywords
class MultiCategorical(CategorySpec):
    """Numbers of several categories: item ``i`` is from 0 to ``nvec[i] - 1``.

    Args:
        nvec: the number of categories of each item, ``[k]``; ``[*shape]`` if it differs along other
            dimensions too.
        shape: the shape of a value, with the last size ``k``; None for the shape of ``nvec``.
        device: the device of values.
        dtype: the dtype of values.
        mask: bool ``[*shape[:-1], sum of nvec]`` or broadcastable to it, the first item's
            categories first; False excludes a category.

    Raises:
        UsageError: an item has fewer than one category, or the mask excludes all of an item.
        WrongSize: the shape of ``nvec`` or of the mask does not fit.
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
            raise UsageError(
                f"nvec must be integers of at least 1, not {nvec!r}.", argument="nvec", found=nvec
            )
        size = counts.shape if shape is None else shape_of(shape)
        try:
            counts = counts.long().expand(size)
        except RuntimeError as error:
            raise wrong_value(
                "nvec", f"numbers that broadcast to {tuple(size)}", nvec, kind=WrongSize
            ) from error
        super().__init__(size, _space(counts), device, dtype, "discrete")
        check_fits(int(counts.max()), dtype)
        self.nvec = counts.to(self.device)
        # Stored as [*shape, largest nvec], so that it follows changes of shape as nvec does.
        self.update_mask(mask)

    def update_mask(self, mask: torch.Tensor | None) -> None:
        """Replace the mask; None allows all categories."""
        self._mask = None if mask is None else self._by_item(mask)

    def to_one_hot_spec(self) -> TensorSpec:
        """Return the spec of the same categories as vectors; all rows must have the same nvec."""
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
        """The mask, bool ``[*shape[:-1], sum of nvec]``, or None."""
        if self._mask is None:
            return None
        return torch.cat([item.mask for item in self.split() if item.mask is not None], -1)

    def _allowed(self, device: torch.device) -> torch.Tensor:
        """Return the allowed categories of each item, bool ``[*shape, largest nvec]``."""
        if self._mask is not None:
            return self._mask.to(device)
        nvec: torch.Tensor = self.nvec.to(device)
        return torch.arange(int(nvec.max()), device=device) < nvec.unsqueeze(-1)

    def rand(self, shape: ShapeLike | None = None) -> torch.Tensor:
        """Return numbers ``[*shape, *self.shape]``, uniform among the allowed categories."""
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
        # Clamped first, because the distance from infinity is the same for every number.
        near = wide.clamp(0, most - 1).unsqueeze(-1)
        distance = (torch.arange(most, device=value.device) - near).abs().double()
        return distance.masked_fill(~allowed, torch.inf).argmin(-1).to(self.dtype)

    def _check_encoded(self, value: Any) -> None:
        check_numbers(np.reshape(value, self.shape), self.nvec.cpu().numpy())

    def split(self) -> tuple[Categorical, ...]:
        """Return the spec of each item of the last dimension.

        Raises:
            Unsupported: the number of categories of an item differs along other dimensions.
        """
        sizes = _one_row(self.nvec)
        if sizes is None:
            raise Unsupported(
                f"{self} cannot be split: an item has different numbers of categories in other "
                "dimensions.",
                found=self.nvec.tolist(),
            )
        masks = [None] * len(sizes) if self._mask is None else self._mask.unbind(-2)
        return tuple(
            Categorical(
                n, self.shape[:-1], self.device, self.dtype, None if m is None else m[..., :n]
            )
            for n, m in zip(sizes, masks, strict=True)
        )

    def cardinality(self) -> int:
        """Return the number of values of the last dimension, excluded ones included.

        Raises:
            Unsupported: as ``split``.
        """
        return math.prod(item.n for item in self.split())

    def enumerate(self, use_mask: bool = False) -> torch.Tensor:
        """Return all values of the last dimension, ``[cardinality, *self.shape]``.

        Args:
            use_mask: return the allowed values only.

        Raises:
            Unsupported: as ``split``.
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
    """Return the numbers of the last dimension if they are the same along all other ones."""
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
