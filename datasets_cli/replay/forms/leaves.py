"""Leaves of rows: what stands under each key, and what is said of rows that have none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tensordict import (
    NonTensorData,
    TensorDictBase,
    is_non_tensor,
    is_tensor_collection,
    is_tensorclass,
)

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import Rows
from datasets_cli.replay.forms.values import Column, ValueColumn
from datasets_cli.store.schema.columns import Key, show_key


def leaves_of(rows: Rows, above: Key = ()) -> dict[Key, Column]:
    """Return the leaves of a TensorDict or a tensorclass."""
    found: dict[Key, Column] = {}
    for name, item in _items(rows, above):
        key = (*above, name)
        if isinstance(item, torch.Tensor):
            found[key] = item
        elif is_non_tensor(item):
            found[key] = ValueColumn.of(item)
        elif is_tensor_collection(item):
            found |= leaves_of(item, key)
        else:
            raise no_tensor(show_key(key), item)
    return found


def _items(rows: Rows, above: Key) -> list[tuple[str, Any]]:
    """Return the entries of a TensorDict or a tensorclass, by name."""
    shared: dict[str, Any] = {}  # by all rows of a tensorclass; None is what it has by itself
    if is_tensorclass(rows):
        others = rows._non_tensordict.items()
        shared = {name: value for name, value in others if value is not None}
        rows = rows._tensordict
    try:
        found = list(rows.items())
    except RuntimeError as error:
        raise UsageError(
            f"{show_key(above) or 'These rows'} cannot be one tensor each: {error} Rows of unequal "
            "shapes are kept by ListStorage and LazyStackStorage."
        ) from error
    values = [(name, NonTensorData(value, rows.batch_size)) for name, value in shared.items()]
    return found + values


def outline(rows: Rows) -> str:
    """Return the containers and kinds of rows in a few words: ``dict(a: Tensor, b: int)``."""
    if isinstance(rows, Mapping | TensorDictBase):
        inside = [f"{name}: {outline(item)}" for name, item in rows.items()]
    elif isinstance(rows, tuple | list):
        inside = [outline(item) for item in rows]
    else:
        return type(rows).__name__
    shown = inside if len(inside) <= 20 else [*inside[:20], "..."]
    return f"{type(rows).__name__}({', '.join(shown)})"


def no_tensor(name: str, item: Any) -> UsageError:
    """Return the error of an entry that is no tensor."""
    return UsageError(
        f"{name} is not a tensor but {type(item).__name__}. Tensor storages take tensors; "
        "ListStorage takes anything."
    )


def inner_shape(data: Rows, ndim: int) -> tuple[int, ...]:
    """Return the batch size that each row has by itself, of a TensorDict or tensorclass."""
    return tuple(data.batch_size[ndim:]) if is_tensor_collection(data) else ()
