"""Text of rows as tensordict's non-tensor entries.

tensordict's own constructors check every entry for what is known here, and take 11 µs a text; a
copy of what they leave in an object takes 1 µs. Tested on the oldest and newest tensordict that we
support, as ``make_batch`` is.
"""

from __future__ import annotations

from typing import Any

import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict

from datasets_cli.store.rows.selected_rows import SelectedTexts
from datasets_cli.store.schema.tree import Tree, put
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
