"""Batches as nested dicts of numpy arrays."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import Rows
from datasets_cli.replay.rows.batch_format import BatchFormat, columns_of, nest, show_columns
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.schema.bits import TYPE_NAMES
from datasets_cli.schema.columns import Key
from datasets_cli.schema.element_types import NUMPY_TYPES
from datasets_cli.schema.tree import Tree


class NumpyFormat(BatchFormat):
    """Gives numpy arrays, which share their memory with the tensors that they are made of."""

    name: ClassVar[str] = "numpy"

    def check(self, storage: Storage) -> None:
        """Check that numpy has the columns' types, and that rows are in its memory."""
        check_device(storage.device)
        found = [(column.key, column.dtype) for column in columns_of(storage)]
        if lacking := [pair for pair in found if pair[1] not in NUMPY_TYPES]:
            raise _lacks(lacking)

    def from_tree(self, tree: Tree) -> Tree:
        """Return the dict with arrays in place of tensors; arrays that are there stay."""
        return _in_place(tree, ())

    def from_batch(self, batch: Rows, key: Key = ()) -> Rows:
        """Return a batch with arrays in place of tensors."""
        return nest(batch, as_array, key)


def as_array(key: Key, leaf: Any) -> np.ndarray:
    """Return a tensor as an array of the same memory."""
    if isinstance(leaf, np.ndarray):
        return leaf
    try:
        found: np.ndarray = leaf.numpy()
    except (TypeError, RuntimeError):
        check_device(leaf.device)
        name = TYPE_NAMES.get(leaf.dtype, str(leaf.dtype))
        if name not in NUMPY_TYPES:
            raise _lacks([(key, name)]) from None
        found = leaf.numpy(force=True)  # it has a gradient, or is marked as conjugate
    return found


def check_device(device: torch.device | None) -> None:
    """Check that a device's memory is numpy's."""
    if device is not None and device.type != "cpu":
        raise UsageError(
            f"Arrays of numpy are in the memory of the CPU, and the rows are on {device}. Leave "
            "out device=, or take format='torch'."
        )


def _in_place(tree: Tree, key: Key) -> Tree:
    for name, leaf in tree.items():
        kind = type(leaf)
        if kind is np.ndarray:
            continue
        if kind is dict:
            _in_place(leaf, (*key, name))
        elif kind is torch.Tensor:
            tree[name] = as_array((*key, name), leaf)
        else:
            tree[name] = nest(leaf, as_array, (*key, name))
    return tree


def _lacks(columns: list[tuple[Key, str]]) -> UsageError:
    return UsageError(
        f"numpy does not have the element type of {show_columns(columns)}. Take format='torch', or "
        "'jax' where it has it, or convert the column: preprocess(), or a transform."
    )
