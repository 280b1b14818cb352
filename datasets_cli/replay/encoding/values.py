"""Columns of what is no tensor, such as text, and how tensordict has such values in a batch.

They stay in memory whatever the storage: each row keeps its own value, and a row that is written
over lets go of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict

from datasets_cli.schema.tree import Tree, put
from datasets_cli.store.rows.selected_rows import SelectedTexts
from datasets_cli.store.text.reader import TextRows, Values

_NO_SHAPE = torch.Size([])
_ENTRY: dict[str, Any] = NonTensorData("").__dict__
_STACK: dict[str, Any] = NonTensorStack(NonTensorData("")).__dict__


def put_texts(tree: Tree, texts: TextRows | SelectedTexts, index: torch.Tensor) -> None:
    """Put the text of the rows ``index`` int64 ``[B]`` into the nested dict of their leaves."""
    for key, values in texts.gather(index).items():
        put(tree, key, stack_texts(values, texts.shape(key)))


def stack_texts(values: Values, shape: tuple[int, ...]) -> NonTensorStack:
    """Return texts ``[B, *shape]``, lists nested in this way, as one non-tensor entry."""
    # Every text is an object of its own: tensordict assigns into such objects, and two rows that
    # share one would change together.
    entries = [stack_texts(value, shape[1:]) for value in values] if shape else map(_entry, values)
    stack: NonTensorStack = object.__new__(NonTensorStack)
    sizes = torch.Size([len(values), *shape])
    stack.__dict__.update({**_STACK, "tensordicts": list(entries), "_batch_size": sizes})
    return stack


def _entry(value: str) -> NonTensorData:
    """Return ``NonTensorData(value)``."""
    entry: NonTensorData = object.__new__(NonTensorData)
    state: dict[str, Any] = entry.__dict__
    state.update(_ENTRY)
    state["_tensordict"] = TensorDict._new_unsafe({}, _NO_SHAPE)
    state["_non_tensordict"] = {**_ENTRY["_non_tensordict"], "data": value}
    return entry


class ValueColumn:
    """Values ``[n, ...]`` that are no tensors, with what storages and writers do with a tensor."""

    dtype = "values that are no tensors"
    device = torch.device("cpu")

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    @classmethod
    def empty(cls, shape: tuple[int, ...]) -> ValueColumn:
        """Return a column whose values are all None."""
        return cls(np.empty(shape, object))

    @classmethod
    def of(cls, entry: NonTensorData | NonTensorStack) -> ValueColumn:
        """Return the values of a non-tensor entry, in the shape of its batch."""
        found = np.empty(tuple(entry.batch_size), object)
        if isinstance(entry, NonTensorData):
            for place in np.ndindex(found.shape):  # one value for all rows
                found[place] = entry.data
            return cls(found)
        nested = entry.tolist()
        for place in np.ndindex(found.shape):
            value = nested
            for number in place:
                value = value[number]
            found[place] = value
        return cls(found)

    @property
    def shape(self) -> torch.Size:
        """The rows, and the shape of the values in each."""
        return torch.Size(self.values.shape)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.values.ndim

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice | torch.Tensor) -> ValueColumn:
        return ValueColumn(self.values[_places(rows)])

    def __setitem__(self, rows: slice | torch.Tensor, new: ValueColumn) -> None:
        self.values[_places(rows)] = new.values

    def index_select(self, dim: int, index: torch.Tensor) -> ValueColumn:
        """Return the values at places int64 ``[B]`` of a dimension."""
        return ValueColumn(self.values.take(index.numpy(force=True), dim))

    def transpose(self, first: int, second: int) -> ValueColumn:
        """Return the values with two dimensions exchanged."""
        return ValueColumn(self.values.swapaxes(first, second))

    def flatten(self, first: int, last: int) -> ValueColumn:
        """Return the values with the dimensions ``first`` to ``last`` as one."""
        shape = self.values.shape
        size = math.prod(shape[first : last + 1])
        return ValueColumn(self.values.reshape(*shape[:first], size, *shape[last + 1 :]))

    def reshape(self, *shape: int) -> ValueColumn:
        """Return the values in another shape."""
        return ValueColumn(self.values.reshape(shape))

    def roll(self, shift: int, dim: int) -> ValueColumn:
        """Return the values moved by a number of places along a dimension, around its end."""
        return ValueColumn(np.roll(self.values, shift, dim))

    def as_entry(self) -> NonTensorStack:
        """Return the values as an entry of a TensorDict, which shares no object with others."""
        return stack_texts(self.values.tolist(), tuple(self.values.shape[1:]))


Column = torch.Tensor | ValueColumn
"""A column ``[n, ...]`` of rows: numbers, or values that are no tensors."""


def tensors_of(columns: Sequence[Column]) -> list[torch.Tensor]:
    """Return those columns that are tensors."""
    return [column for column in columns if isinstance(column, torch.Tensor)]


def _places(rows: slice | torch.Tensor) -> slice | np.ndarray:
    return rows if isinstance(rows, slice) else rows.numpy(force=True)
