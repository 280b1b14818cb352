"""Several categories at once, as their numbers."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
import torch
from torch.nn.functional import pad

import datasets_cli
from datasets_cli.errors import UsageError
from datasets_cli.replay.torchrl_words import Word, takes
from datasets_cli.specs.arguments import Change, ShapeLike, as_tensor, shape_of
from datasets_cli.specs.categorical import (
    BoxList,
    Categorical,
    CategoricalBox,
    are_allowed,
    check_fits,
    check_numbers,
    checked_mask,
    known_mask,
)
from datasets_cli.specs.leaf import CategorySpec
from datasets_cli.specs.spec import TensorSpec


@takes(remove_singleton=Word(True, (False,)))  # one item keeps its dimension
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


MultiDiscreteTensorSpec = MultiCategorical


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
