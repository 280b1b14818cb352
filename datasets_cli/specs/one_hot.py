"""One of several categories, as a vector with a one at its place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from datasets_cli.errors import UsageError
from datasets_cli.specs.categorical import Categorical, counted
from datasets_cli.specs.shapes import Shape, shape_of
from datasets_cli.specs.spaces import CategoricalBox
from datasets_cli.specs.vectors import CategoryVectors, refuse_register


class OneHot(CategoryVectors):
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
        super().__init__(numbers, [n], size, dtype, numbers.mask)

    @property
    def n(self) -> int:
        """How many categories there are."""
        return self.space.n

    def to_categorical_spec(self) -> Categorical:
        """Return the spec of the same categories as numbers."""
        return self._numbers_of(self.shape, self.mask)

    def _join(self, items: Sequence[torch.Tensor]) -> torch.Tensor:
        return items[0]

    def _split(self, numbers: torch.Tensor) -> Iterable[torch.Tensor]:
        return (numbers,)

    def _numbers_of(self, shape: torch.Size, mask: torch.Tensor | None) -> Categorical:
        return Categorical(self.n, shape[:-1], self.device, mask=mask)


OneHotDiscreteTensorSpec = OneHot
