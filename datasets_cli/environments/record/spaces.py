"""Values of an environment's spaces as columns, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from datasets_cli.gymnasium_extra import gymnasium
from datasets_cli.store.schema.columns import Key


def columns_of(space: gymnasium.Space[Any], batch: Any, key: Key) -> dict[Key, np.ndarray]:
    """Return the values of several environments as columns ``[n, ...]``."""
    if isinstance(space, gymnasium.spaces.Dict):
        parts = [(name, inner, batch[name]) for name, inner in space.spaces.items()]
    elif isinstance(space, gymnasium.spaces.Tuple):
        items = enumerate(zip(space.spaces, batch, strict=True))
        parts = [(str(number), inner, values) for number, (inner, values) in items]
    elif isinstance(space, gymnasium.spaces.Text):
        texts = np.empty(len(batch), object)
        texts[:] = [*batch]
        return {key: texts}
    else:
        return {key: np.asarray(batch)}
    found: dict[Key, np.ndarray] = {}
    for name, inner, values in parts:
        found |= columns_of(inner, values, (*key, name))
    return found


def batch_of(space: gymnasium.Space[Any], values: Iterable[Any]) -> Any:
    """Return values of a space as a vector environment takes them."""
    items, tools = tuple(values), gymnasium.vector.utils
    empty: Any = tools.create_empty_array(space, len(items))
    return tools.concatenate(space, items, empty)


def batch_of_columns(
    space: gymnasium.Space[Any], column: Callable[[Key], np.ndarray], key: Key
) -> Any:
    """Return what ``columns_of`` makes columns of; ``column`` gives the one of a key."""
    if isinstance(space, gymnasium.spaces.Dict):
        return {
            name: batch_of_columns(inner, column, (*key, name))
            for name, inner in space.spaces.items()
        }
    if isinstance(space, gymnasium.spaces.Tuple):
        return tuple(
            batch_of_columns(inner, column, (*key, str(number)))
            for number, inner in enumerate(space.spaces)
        )
    return column(key)
