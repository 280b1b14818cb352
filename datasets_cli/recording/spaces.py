"""The spaces of an environment: as JSON, as Minari has them, and their values as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from datasets_cli.errors import UsageError
from datasets_cli.gymnasium_extra import gymnasium
from datasets_cli.store.schema.columns import Key


def space_json(space: gymnasium.Space[Any]) -> dict[str, Any]:  # noqa: PLR0911 one a kind
    """Return a space as JSON values, in the words of Minari's ``metadata.json``.

    Raises:
        UsageError: it is of a kind that has no columns.
    """
    kind: dict[str, Any] = {"type": type(space).__name__}
    match space:
        case gymnasium.spaces.Box():
            kind |= {"dtype": str(space.dtype), "shape": list(space.shape)}
            return kind | {"low": space.low.tolist(), "high": space.high.tolist()}
        case gymnasium.spaces.Discrete():
            return kind | {"dtype": str(space.dtype), "start": int(space.start), "n": int(space.n)}
        case gymnasium.spaces.MultiDiscrete():
            numbers = {"nvec": space.nvec.tolist(), "start": space.start.tolist()}
            return kind | {"dtype": str(space.dtype), **numbers}
        case gymnasium.spaces.MultiBinary():
            return kind | {"n": space.n if isinstance(space.n, int) else list(space.n)}
        case gymnasium.spaces.Text():
            lengths = {"max_length": space.max_length, "min_length": space.min_length}
            return kind | {**lengths, "charset": "".join(sorted(space.character_set))}
        case gymnasium.spaces.Dict() | gymnasium.spaces.Tuple():
            inner = space.spaces
            if isinstance(inner, dict):
                return kind | {"subspaces": {key: space_json(inner[key]) for key in inner}}
            return kind | {"subspaces": [space_json(each) for each in inner]}
    raise UsageError(
        f"A space of the kind {type(space).__name__} cannot be recorded: its values have no fixed "
        "columns. Expected Box, Discrete, MultiDiscrete, MultiBinary, Text, or Dict and Tuple of "
        "these; a wrapper of gymnasium may make one of it."
    )


def columns_of(space: gymnasium.Space[Any], batch: Any, key: Key) -> dict[Key, np.ndarray]:
    """Return the values of several environments as columns ``[n, ...]``.

    Args:
        space: of one value.
        batch: as a vector environment gives it.
        key: of the space; below it are the names of a Dict, and the numbers of a Tuple's items.
    """
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
