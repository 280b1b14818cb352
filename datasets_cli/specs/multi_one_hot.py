"""Several categories at once, as vectors one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from datasets_cli.errors import UsageError
from datasets_cli.specs.multi_categorical import MultiCategorical
from datasets_cli.specs.shapes import Shape, shape_of
from datasets_cli.specs.spaces import BoxList
from datasets_cli.specs.vectors import CategoryVectors, refuse_register


class MultiOneHot(CategoryVectors):
    """One-hot vectors, one after the other: item ``i`` is one of ``nvec[i]`` categories.

    Args:
        nvec: how many categories each item has, ``[k]``.
        shape: of a value, whose last size is the sum of ``nvec``; that alone where None.
        device: where values are.
        dtype: their element type.
        use_register: refused: categories are numbers here.
        mask: ``[*shape]``, or what expands to it: False for the categories that are excluded.

    Raises:
        UsageError: as ``MultiCategorical``; or the last size is not the sum.
    """

    space: BoxList

    def __init__(
        self,
        nvec: Any,
        shape: Shape | None = None,
        device: str | torch.device | None = None,
        dtype: torch.dtype = torch.bool,
        use_register: bool = False,
        mask: torch.Tensor | None = None,
    ) -> None:
        refuse_register(use_register)
        items = MultiCategorical(nvec)
        sizes = [item.n for item in items.split()]
        size = shape_of((sum(sizes),) if shape is None else shape)
        if items.ndim != 1 or size[-1:] != (sum(sizes),):
            raise UsageError(
                f"nvec must be a row of numbers, {nvec!r}, and the last size of the shape their "
                f"sum; found {tuple(size)}."
            )
        numbers = MultiCategorical(sizes, (*size[:-1], len(sizes)), device, mask=mask)
        whole = None if mask is None else numbers.given_mask()
        super().__init__(numbers, sizes, size, dtype, whole)

    @property
    def nvec(self) -> torch.Tensor:
        """How many categories each item has, int64 ``[k]``."""
        return torch.tensor(self._sizes)

    def to_categorical_spec(self) -> MultiCategorical:
        """Return the spec of the same categories as numbers."""
        return self._numbers_of(self.shape, self.mask)

    def _join(self, items: Sequence[torch.Tensor]) -> torch.Tensor:
        return torch.stack([*items], -1)

    def _split(self, numbers: torch.Tensor) -> Iterable[torch.Tensor]:
        return numbers.unbind(-1)

    def _numbers_of(self, shape: torch.Size, mask: torch.Tensor | None) -> MultiCategorical:
        size = (*shape[:-1], len(self._sizes))
        return MultiCategorical(self._sizes, size, self.device, mask=mask)


MultiOneHotDiscreteTensorSpec = MultiOneHot
