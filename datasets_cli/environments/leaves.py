"""The arrays that a space of gymnasium is made of: where each is kept, and in which form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datasets_cli.errors import UsageError
from datasets_cli.gymnasium_extra import gymnasium

spaces = gymnasium.spaces
_ARRAYS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


@dataclass(frozen=True)
class Leaf:
    """One array of an observation or an action."""

    key: tuple[str, ...]
    path: tuple[str, ...]
    space: Any
    one_hot: bool

    @cached_property
    def counts(self) -> NDArray[np.int64] | None:
        """How many values each number may have, ``[n]``; None where the space is not discrete."""
        if isinstance(self.space, spaces.Discrete):
            return np.array([self.space.n])
        if isinstance(self.space, spaces.MultiDiscrete):
            return np.asarray(self.space.nvec, np.int64).ravel()
        return None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one value as it is kept."""
        if self.one_hot and self.counts is not None:
            return (int(self.counts.sum()),)
        return tuple(self.space.shape or ())

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type as it is kept."""
        return np.dtype(np.int64 if isinstance(self.space, spaces.Discrete) else self.space.dtype)

    def pick(self, value: Any) -> Any:
        """Return this leaf's part of what gymnasium gives."""
        for name in self.path:
            value = value[name]
        return value

    def keep(self, value: Any, rows: NDArray[Any]) -> None:
        """Write what gymnasium gives."""
        # value: of one environment, or `[N, ...]` of several.
        # rows: where to, `[N, *shape]`.
        counts = self.counts
        if counts is None or not self.one_hot:
            rows[...] = value
            return
        numbers = np.asarray(value) - self.space.start
        # Each number sets one column: its own, among those that its predecessors leave to it.
        columns = np.reshape(numbers, (len(rows), len(counts))) + _offsets(counts)
        rows[...] = 0
        np.put_along_axis(rows, columns, 1, axis=1)

    def restore(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return what gymnasium takes, ``[N, ...]``, of what is kept, ``[N, *shape]``."""
        counts = self.counts
        if counts is None or not self.one_hot:
            native: NDArray[Any] = rows.astype(self.space.dtype, copy=False)
            return native
        parts = np.split(rows, np.cumsum(counts)[:-1], axis=1) if len(counts) > 1 else [rows]
        numbers = np.stack([part.argmax(axis=1) for part in parts], axis=1)
        shape = (len(rows), *(self.space.shape or ()))
        chosen: NDArray[Any] = (numbers.reshape(shape) + self.space.start).astype(self.space.dtype)
        return chosen


def _offsets(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where the columns of each number begin, ``[n]``."""
    return np.cumsum(counts) - counts


def leaves_of(space: gymnasium.Space, name: str, *, one_hot: bool) -> list[Leaf]:
    """Return the arrays of an observation space, at the root of a TensorDict."""
    if isinstance(space, spaces.Dict):
        return [*_leaves(space, (), (), one_hot)]
    return [*_leaves(space, (name,), (), one_hot)]


def action_leaves_of(space: gymnasium.Space, name: str, *, one_hot: bool) -> list[Leaf]:
    """Return the arrays of an action space, which are all below ``name``."""
    return [*_leaves(space, (name,), (), one_hot)]


def _leaves(
    space: gymnasium.Space, key: tuple[str, ...], path: tuple[str, ...], one_hot: bool
) -> Iterator[Leaf]:
    if isinstance(space, spaces.Dict):
        for name, part in space.spaces.items():
            yield from _leaves(part, (*key, name), (*path, name), one_hot)
    elif isinstance(space, _ARRAYS):
        yield Leaf(key, path, space, one_hot)
    else:
        kinds = ", ".join(kind.__name__ for kind in (*_ARRAYS, spaces.Dict))
        raise UsageError(
            f"An environment's space {'.'.join(key)} is {space}. A row has arrays: spaces are "
            f"{kinds}. Wrap the environment, for example in gymnasium.wrappers.FlattenObservation."
        )
