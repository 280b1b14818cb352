"""What has a shape: each change of it, which another shape of the same follows."""

from __future__ import annotations

import sys
from abc import ABC, ABCMeta
from collections.abc import Callable, Iterable
from copy import copy
from functools import reduce
from typing import Any, Self

import torch

from datasets_cli.errors import OutOfRange, UsageError
from datasets_cli.specs.arguments import (
    Change,
    after_change,
    dimension,
    indexing,
    written_sizes,
)


class Shaped(ABC):
    """What has a shape; methods return another one of another shape."""

    shape: torch.Size
    _mask: torch.Tensor | None = None

    def __new__(cls, *args: Any, **named: Any) -> Self:
        _tell_torchrl(cls)
        return super().__new__(cls)

    def _changed(self, change: Change) -> Self:
        """Return this spec after a change of shape, which a mask follows."""
        mask = None if self._mask is None else change(self._mask)
        return self._like_this(shape=after_change(self.shape, change), _mask=mask)

    @property
    def mask(self) -> torch.Tensor | None:
        """The mask as the class takes it, if there is one."""
        return self._mask

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
        # One at a time, the last first: so does a TensorDict.
        return self._with(lambda tensor: reduce(torch.squeeze, reversed(places), tensor))

    def unsqueeze(self, dim: int) -> Self:
        """Return this spec with one more dimension of size 1."""
        place = dimension(dim, self.ndim + 1)
        return self._with(lambda tensor: tensor.unsqueeze(place))

    def unbind(self, dim: int = 0) -> tuple[Self, ...]:
        """Return the spec of each item of a dimension."""
        place = dimension(dim, self.ndim)
        return tuple(self[(slice(None),) * place + (item,)] for item in range(self.shape[place]))

    def __getitem__(self, index: Any) -> Any:
        """Return the spec of ``value[index]``."""
        return self._with(indexing(index, self.ndim))

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
            raise OutOfRange(f"{self} cannot be indexed so: {error}") from error
        except (RuntimeError, TypeError) as error:
            raise UsageError(f"The shape of {self} cannot be changed so: {error}") from error

    def view(self, *sizes: Any) -> Self:
        """Return ``reshape(*sizes)``."""
        return self.reshape(*sizes)

    @property
    def _safe_shape(self) -> torch.Size:
        """``shape``; TorchRL's modules ask for one without sizes below 0."""
        return self.shape

    def ndimension(self) -> int:
        """Return ``ndim``."""
        return self.ndim

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Do what functions of torch, such as ``torch.stack``, do to values, to their specs."""
        done = FUNCTIONS.get(function)
        return NotImplemented if done is None else done(*args, **(kwargs or {}))


def _stack(tensors: Iterable[Shaped], dim: int = 0) -> Shaped:
    """Return the spec of stacked values."""
    first, *others = tensors
    if different := [other for other in others if first != other]:
        raise UsageError(f"Only equal specs can be stacked. Found {first} and {different[0]}.")
    place = dimension(dim, first.ndim + 1)
    sizes = (*first.shape[:place], len(others) + 1, *first.shape[place:])
    return first.unsqueeze(place).expand(sizes)


def _index_select(input: Shaped, dim: int, index: torch.Tensor) -> Shaped:  # torch's names
    """Return the spec of the values at some places of a dimension."""
    place = dimension(dim, input.ndim)
    if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < input.shape[place]:
        raise OutOfRange(f"{index} is out of the {input.shape[place]} items of dimension {dim}.")
    selected: Shaped = input[(slice(None),) * place + (index.reshape(-1),)]
    return selected


FUNCTIONS: dict[Any, Callable[..., Shaped]] = {
    torch.stack: _stack,
    torch.index_select: _index_select,
    torch.squeeze: lambda input, dim=None: input.squeeze(dim),
    torch.unsqueeze: lambda input, dim: input.unsqueeze(dim),
}
"""What functions of torch do to specs."""


def _tell_torchrl(kind: type) -> None:
    """Make TorchRL's classes, where it is imported, know ours of their names as kinds of them."""
    # Its modules ask a spec for its class, and actors and losses look that up in a table.
    specs, utils = (sys.modules.get(f"torchrl.data.{name}") for name in ("tensor_specs", "utils"))
    if kind in TOLD or specs is None or not hasattr(utils, "ACTION_SPACE_MAP"):
        return
    TOLD.add(kind)
    for each in kind.__mro__:
        known: Any = getattr(specs, each.__name__, None)
        if isinstance(known, ABCMeta) and each.__module__.startswith("datasets_cli."):
            known.register(each)
            spaces = utils.ACTION_SPACE_MAP  # type: ignore[union-attr]
            if known in spaces:
                spaces[each] = spaces[known]


TOLD: set[type] = set()
"""Classes of specs that TorchRL knows."""
