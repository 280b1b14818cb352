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
from datasets_cli.schema.columns import Key

spaces = gymnasium.spaces
_ARRAYS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


@dataclass(frozen=True)
class SpaceLeaf:
    """One array of an observation or an action."""

    key: Key
    path: tuple[str | int, ...]
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

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape in which one value is kept."""
        if self.one_hot and self.counts is not None:
            return (int(self.counts.sum()),)
        return tuple(self.space.shape or ())

    @cached_property
    def is_text(self) -> bool:
        """Whether it is an array of texts, which are objects."""
        return isinstance(self.space, spaces.Text)

    @cached_property
    def native_dtype(self) -> np.dtype[Any]:
        """The element type as gymnasium has it."""
        return np.dtype(object if self.is_text else self.space.dtype)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The element type that is kept."""
        return np.dtype(np.int64) if isinstance(self.space, spaces.Discrete) else self.native_dtype

    def keep(self, value: Any, rows: NDArray[Any]) -> None:
        """Write this leaf's part of what gymnasium gives."""
        # value: of one environment, or of several, whose arrays are `[N, ...]`.
        # rows: where to, `[N, *shape]`.
        for name in self.path:
            value = value[name]
        if not self.one_hot or self.counts is None:
            rows[...] = value
            return
        # Each number sets one column: its own, among those that its predecessors leave to it.
        numbers = (np.asarray(value) - self.space.start).reshape(len(rows), -1)
        rows[...] = 0
        rows[np.arange(len(rows))[:, None], numbers + self.offsets] = 1

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """Where the columns of each number begin, ``[n]``."""
        assert self.counts is not None
        return self.counts.cumsum() - self.counts

    def restore(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return what gymnasium takes, ``[N, ...]``, of what is kept, ``[N, *shape]``."""
        if not self.one_hot or self.counts is None:
            return rows.astype(self.native_dtype, copy=False)
        if len(self.counts) == 1:
            numbers = rows.argmax(axis=1)
        else:
            parts = np.split(rows, self.offsets[1:], axis=1)
            numbers = np.stack([part.argmax(axis=1) for part in parts], axis=1)
        shape = (len(rows), *(self.space.shape or ()))
        chosen: NDArray[Any] = numbers.reshape(shape) + self.space.start
        return chosen.astype(self.native_dtype, copy=False)


def leaves_of(
    space: gymnasium.Space, key: Key, *, one_hot: bool, text: bool = False
) -> list[SpaceLeaf]:
    """Return the arrays of a space, which are all below a key."""
    kinds = (*_ARRAYS, spaces.Text) if text else _ARRAYS
    return [SpaceLeaf(*each, one_hot) for each in _parts(space, key, (), kinds)]


def _parts(
    space: gymnasium.Space, key: Key, path: tuple[str | int, ...], kinds: tuple[type, ...]
) -> Iterator[tuple[Key, tuple[str | int, ...], gymnasium.Space]]:
    """Yield where each array is kept, where gymnasium has it, and its space."""
    if isinstance(space, spaces.Dict):
        for name, part in space.spaces.items():
            yield from _parts(part, (*key, name), (*path, name), kinds)
    elif isinstance(space, spaces.Tuple):
        for number, part in enumerate(space.spaces):
            yield from _parts(part, (*key, str(number)), (*path, number), kinds)
    elif isinstance(space, kinds):
        yield key, path, space
    else:
        names = ", ".join(kind.__name__ for kind in (*kinds, spaces.Dict, spaces.Tuple))
        raise UsageError(
            f"An environment's space {'.'.join(key)} is {space}. A row has arrays: spaces are "
            f"{names}. Wrap the environment, for example in gymnasium.wrappers.FlattenObservation."
        )


def tree_of(space: gymnasium.Space, parts: Iterator[Any]) -> Any:
    """Return what gymnasium takes of a space, made of the arrays that ``leaves_of`` lists."""
    if isinstance(space, spaces.Dict):
        return {name: tree_of(part, parts) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(tree_of(part, parts) for part in space.spaces)
    return next(parts)
