"""Formats of batches: the protocol, and nested dicts of numpy arrays."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from tensordict import LazyStackedTensorDict, NonTensorData, NonTensorStack, is_tensor_collection

from datasets_cli.errors import Unsupported, UsageError, WrongRows
from datasets_cli.replay.arguments import Rows
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.schema.bits import TYPE_NAMES
from datasets_cli.schema.columns import NUMPY_TYPES, Column, Key, show_key
from datasets_cli.schema.tree import Tree


class BatchFormat(Protocol):
    """Converts batches to nested dicts of arrays; without a format, batches are TensorDicts."""

    name: ClassVar[str]

    @abstractmethod
    def check(self, storage: Storage) -> None:
        """Check that the format has the dtypes of a storage."""

    @abstractmethod
    def from_tree(self, tree: Tree) -> Tree:
        """Convert a nested dict of leaves in place, and return it."""

    @abstractmethod
    def from_batch(self, batch: Rows, key: Key = ()) -> Rows:
        """Return a batch, a row or a column of torch in this format.

        TensorDicts and tensorclasses become nested dicts, tensors arrays, and text str or lists of
        str. Other objects are unchanged.
        """


def storage_columns(storage: Storage) -> tuple[Column, ...]:
    """Return the columns of a dataset's storage; an empty tuple for other storages."""
    dataset: Any = getattr(storage, "dataset", None)
    found: tuple[Column, ...] = () if dataset is None else dataset.columns_read
    return found


def show_columns(columns: list[tuple[Key, str]]) -> str:
    """Return keys and dtypes for a message."""
    return ", ".join(f"{show_key(key)} ({dtype})" for key, dtype in columns)


MakeLeaf = Callable[[Key, Any], Any]
"""A function from a key and its tensor, or numpy array, to a leaf."""


def nest(rows: Rows, make_leaf: MakeLeaf, key: Key = ()) -> Rows:
    """Return rows with TensorDicts converted to dicts, and leaves by ``make_leaf``."""
    if isinstance(rows, torch.Tensor | np.ndarray):
        return make_leaf(key, rows)
    if is_tensor_collection(rows):
        return _nest_entries(rows, make_leaf, key)
    if isinstance(rows, dict):
        return {name: nest(part, make_leaf, (*key, str(name))) for name, part in rows.items()}
    if isinstance(rows, tuple) and hasattr(rows, "_fields"):  # a named tuple
        return type(rows)(*(nest(part, make_leaf, key) for part in rows))
    if isinstance(rows, list | tuple):
        return type(rows)(nest(part, make_leaf, key) for part in rows)
    return rows


def _nest_entries(rows: Any, make_leaf: MakeLeaf, key: Key) -> Rows:
    """Return the nested dict of a TensorDict or tensorclass, or the values of non-tensor data."""
    if isinstance(rows, NonTensorStack):
        return rows.tolist()
    if isinstance(rows, NonTensorData):
        return _for_all(rows.data, tuple(rows.batch_size))
    names = rows.keys()
    if isinstance(rows, LazyStackedTensorDict):  # its keys are the common keys of its parts
        every = {name for part in rows.tensordicts for name in part.keys()}  # noqa: SIM118
        if odd := sorted(every.difference(names)):
            shown = ", ".join(show_key((*key, name)) for name in odd)
            raise WrongRows(
                f"Only some of the rows have {shown}, so it cannot be converted to an array.",
                key=(*key, odd[0]),
                found=odd,
                advice="Pass format='torch', or leave the entry out.",
            )
    return {name: nest(_entry(rows, name, key), make_leaf, (*key, name)) for name in names}


def _entry(rows: Any, name: str, key: Key) -> Any:
    try:
        return rows.get(name)
    except RuntimeError as error:  # a lazy stack of rows that differ in their shapes
        raise WrongRows(
            f"{show_key((*key, name))} has different shapes in the rows, so it cannot be converted "
            "to one array.",
            key=(*key, name),
            advice="Pass format='torch', or a collate_fn that pads the rows.",
        ) from error


def _for_all(value: Any, shape: tuple[int, ...]) -> Any:
    """Return one value for all rows, in lists nested as the shape."""
    return [_for_all(value, shape[1:]) for _ in range(shape[0])] if shape else value


class NumpyFormat(BatchFormat):
    """Converts tensors to numpy arrays, which share their memory."""

    name: ClassVar[str] = "numpy"

    def check(self, storage: Storage) -> None:
        """Check that numpy has the dtypes of a storage, and that rows are on the CPU."""
        check_device(storage.device)
        found = [(column.key, column.dtype) for column in storage_columns(storage)]
        if lacking := [pair for pair in found if pair[1] not in NUMPY_TYPES]:
            raise lacks_dtype("numpy", lacking)

    def from_tree(self, tree: Tree) -> Tree:
        """Convert tensors to arrays in place, and return the dict."""
        return _in_place(tree, ())

    def from_batch(self, batch: Rows, key: Key = ()) -> Rows:
        """Return a batch with tensors converted to arrays."""
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
            raise lacks_dtype("numpy", [(key, name)]) from None
        found = leaf.numpy(force=True)  # a tensor with a gradient, or with the conjugate bit
    return found


def check_device(device: torch.device | None) -> None:
    """Check that a device is the CPU."""
    if device is not None and device.type != "cpu":
        raise Unsupported(
            f"numpy needs rows on the CPU; these are on {device}.",
            argument="format",
            expected="cpu",
            found=str(device),
            advice="Leave out device=, or pass format='torch'.",
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


def lacks_dtype(library: str, columns: list[tuple[Key, str]]) -> UsageError:
    """Return the error of columns whose dtype a library does not have."""
    return Unsupported(
        f"{library} does not have the dtype of {show_columns(columns)}.",
        argument="format",
        key=columns[0][0],
        found=columns[0][1],
        advice="Pass format='torch', or convert the column with preprocess() or a transform.",
    )
