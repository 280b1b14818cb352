"""Batches of leaves, of text and other values, or of single rows.

Values that are not tensors are in memory in every storage, until their row is overwritten.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tensordict import (
    LazyStackedTensorDict,
    NonTensorData,
    NonTensorStack,
    TensorDict,
    TensorDictBase,
    is_tensor_collection,
    is_tensorclass,
)
from torch.utils import _pytree

from datasets_cli.errors import WrongRows
from datasets_cli.replay.arguments import Rows, StateDict
from datasets_cli.schema.bits import bits_of, stack_tensors, to_tensor
from datasets_cli.schema.columns import Key, wrong_column
from datasets_cli.schema.shapes import RowNumbers
from datasets_cli.schema.tree import Tree, grow_tree, leaves_in, put
from datasets_cli.store.selection import SelectedTexts
from datasets_cli.store.texts import TextRows, Values


def make_batch(
    tree: Tree, batch_size: torch.Size, device: torch.device | None = None
) -> TensorDict:
    """Return the TensorDict ``[*batch_size]`` of a nested dict of leaves, which it takes over."""
    # The leaves are known to have this leading shape and device, so tensordict's constructors are
    # not called: the unchecked one takes three times as long, and the public one thirty times, and
    # half of the time of a small batch is wrappers.
    batch: TensorDict = TensorDict.__new__(TensorDict)
    batch._tensordict, batch._batch_size = tree, batch_size
    batch._device, batch._td_dim_names = device, None
    for name, entry in tree.items():
        if type(entry) is dict:
            tree[name] = make_batch(entry, batch_size, device)
    return batch


def map_rows(function: Callable[[Rows], Rows], batch: Rows) -> Rows:
    """Apply a function to a TensorDict, or to each tensor and TensorDict in a structure."""
    # A tensorclass counts as a TensorDict.
    return _pytree.tree_map(function, batch, is_leaf=_is_part)


def leading_sizes(rows: Rows, ndim: int) -> tuple[int, ...]:
    """Return the first ``ndim`` sizes, which all tensors and TensorDicts of rows share."""
    parts = _pytree.tree_leaves(rows, is_leaf=_is_part)
    sizes = {tuple(getattr(part, "shape", ()))[:ndim] for part in parts}
    if len(sizes) != 1 or any(len(size) < ndim for size in sizes):
        raise WrongRows(
            f"Tensors must have the same number of rows; found the sizes {sorted(sizes)}.",
            found=sorted(sizes),
        )
    return sizes.pop()


def _is_part(part: Rows) -> bool:
    return bool(is_tensor_collection(part))


def lazy_stack(rows: list[Rows], dim: int) -> LazyStackedTensorDict:
    """Return copies of rows as a lazy stack, with -1 in its batch size for unequal sizes."""
    sizes = sorted({tuple(row.batch_size) for row in rows})
    if len({*map(len, sizes)}) > 1:
        raise WrongRows(
            f"Rows with the batch sizes {', '.join(map(str, sizes))} cannot be stacked: their "
            "numbers of dimensions differ.",
            expected="the same number of dimensions",
            found=sizes,
            advice="Set batch sizes such as [T] for all rows.",
        )
    copies = [row.clone() for row in rows]
    stack: LazyStackedTensorDict = LazyStackedTensorDict.lazy_stack(copies, dim)
    return stack


ARRAYS = (np.ndarray, np.generic)


def rows_of_arrays(data: Rows, ndim: int, kinds: tuple[type, ...] = ARRAYS) -> Rows:
    """Return a nested dict with arrays as a TensorDict ``[*leading]``; other rows unchanged.

    There are ``ndim`` leading dimensions; ``kinds`` are the classes of arrays.
    """
    leaves = dict(leaves_in(data)) if isinstance(data, dict) else {}
    arrays = [leaf for leaf in leaves.values() if isinstance(leaf, kinds)]
    if not arrays:
        return data
    tree = grow_tree({key: _tensor_of(key, leaf) for key, leaf in leaves.items()})
    return TensorDict(tree, leading_sizes(arrays, ndim))


def _tensor_of(key: Key, array: Any) -> Any:
    """Return an array as a tensor, of the same memory if possible; texts as lists."""
    if not isinstance(array, ARRAYS):
        return array
    if array.dtype.kind in "UT":
        return array.tolist()
    try:
        return to_tensor(np.require(array, array.dtype.newbyteorder("="), ("C", "W")))
    except (TypeError, ValueError) as error:
        raise wrong_column(
            key, "numbers or texts", str(array.dtype), "Convert the array."
        ) from error


def as_tensordict(rows: Rows) -> TensorDictBase:
    """Return a tensorclass, or a TensorDict of any class, as a TensorDict or a lazy stack."""
    plain: TensorDictBase = rows._tensordict if is_tensorclass(rows) else rows
    if type(plain) in (TensorDict, LazyStackedTensorDict):
        return plain
    return TensorDict(dict(plain.items()), plain.batch_size)


def stack_rows(items: list[Rows]) -> Rows:
    """Return rows of tensors, or of tensors in lists, tuples and dicts, as one batch."""
    # TensorDicts retain their batch sizes and their values that are not tensors.
    if all(is_tensorclass(item) for item in items):
        return _stack_tensors(items)
    for kind, stack in _STACKS.items():
        if all(isinstance(item, kind) for item in items):
            return stack(items)
    kinds = ", ".join(sorted({type(item).__name__ for item in items}))
    raise WrongRows(
        f"Rows of type {kinds} cannot be stacked into a batch.",
        found=kinds,
        advice="Pass collate_fn=, a function that turns a list of rows into a batch.",
    )


def _stack_tensordicts(items: list[TensorDictBase]) -> TensorDictBase:
    shape, device = items[0].batch_size, items[0].device
    if any(type(item) is not TensorDict or item.batch_size != shape for item in items):
        return _stack_tensors(items)
    trees = [dict(item.items()) for item in items]  # four times as fast as stacking TensorDicts
    return make_batch(
        {name: _stack_entries(column) for name, column in _columns(trees).items()},
        torch.Size((len(items), *shape)),
        device if all(item.device == device for item in items) else None,
    )


def _stack_entries(column: list[Rows]) -> Rows:
    plain = all(type(item) is TensorDict for item in column)
    return _stack_tensordicts(column) if plain else _stack_tensors(column)


def _stack_tensors(items: list[Rows]) -> Rows:
    try:
        return stack_tensors(items) if type(items[0]) is torch.Tensor else torch.stack(items)
    except RuntimeError as error:
        raise WrongRows(f"Rows differ, so they cannot be stacked to a batch: {error}") from error


def _stack_dicts(items: list[dict[Rows, Rows]]) -> dict[Rows, Rows]:
    return {name: stack_rows(column) for name, column in _columns(items).items()}


def _stack_tuples(items: list[tuple[Rows, ...]]) -> tuple[Rows, ...]:
    return tuple(_stack_dicts([dict(enumerate(item)) for item in items]).values())


def _columns(trees: list[dict[Rows, Rows]]) -> dict[Rows, list[Rows]]:
    """Return the entries of rows by key; all rows must have the same keys."""
    names = trees[0].keys()
    for tree in trees:
        if odd := names ^ tree.keys():
            raise WrongRows(
                f"Rows cannot be stacked to a batch: only some of them have {odd}.", found=odd
            )
    return {name: [tree[name] for tree in trees] for name in names}


_STACKS: dict[type | tuple[type, ...], Callable[[list[Rows]], Rows]] = {
    TensorDictBase: _stack_tensordicts,
    torch.Tensor: _stack_tensors,
    tuple: _stack_tuples,
    list: lambda items: [*_stack_tuples(items)],
    dict: _stack_dicts,
    (bool, int, float): torch.tensor,
}


_NO_SHAPE = torch.Size([])
_ENTRY: StateDict = NonTensorData("").__dict__
_STACK: StateDict = NonTensorStack(NonTensorData("")).__dict__


def put_texts(tree: Tree, texts: TextRows | SelectedTexts, index: RowNumbers) -> None:
    """Add the text of rows to the nested dict of their leaves."""
    for key, values in texts.gather(index.cpu().numpy()).items():
        put(tree, key, stack_texts(values, texts.shape(key)))


def stack_texts(values: Values, shape: tuple[int, ...]) -> NonTensorStack:
    """Return texts, as lists nested ``[B, *shape]``, as one non-tensor entry."""
    # Every text is a separate object: tensordict assigns to such objects, so rows that shared one
    # would change together.
    entries = [stack_texts(value, shape[1:]) for value in values] if shape else map(_entry, values)
    stack: NonTensorStack = object.__new__(NonTensorStack)
    sizes = torch.Size([len(values), *shape])
    stack.__dict__.update({**_STACK, "tensordicts": list(entries), "_batch_size": sizes})
    return stack


def _entry(value: str) -> NonTensorData:
    """Return ``NonTensorData(value)``."""
    entry: NonTensorData = object.__new__(NonTensorData)
    state: StateDict = entry.__dict__
    state.update(_ENTRY)
    state["_tensordict"] = TensorDict._new_unsafe({}, _NO_SHAPE)
    state["_non_tensordict"] = {**_ENTRY["_non_tensordict"], "data": value}
    return entry


class ValueColumn:
    """A column ``[n, ...]`` of values that are not tensors, with the tensor methods in use."""

    dtype = "values that are not tensors"
    device = torch.device("cpu")

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    @classmethod
    def empty(cls, shape: tuple[int, ...]) -> ValueColumn:
        """Return a column of None."""
        return cls(np.empty(shape, object))

    @classmethod
    def of(cls, entry: NonTensorData | NonTensorStack) -> ValueColumn:
        """Return the values of a non-tensor entry in the shape of its batch size."""
        column = cls.empty(entry.batch_size)
        values = column.values
        nested = None if isinstance(entry, NonTensorData) else entry.tolist()
        for position in np.ndindex(values.shape):  # numpy would split values that are lists
            value = entry.data if nested is None else nested  # NonTensorData has one for all rows
            for number in () if nested is None else position:
                value = value[number]
            values[position] = value
        return column

    @property
    def shape(self) -> torch.Size:
        """The number of rows, then the shape of the values of a row."""
        return torch.Size(self.values.shape)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.values.ndim

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice | RowNumbers) -> ValueColumn:
        return ValueColumn(self.values[_positions(rows)])

    def __setitem__(self, rows: slice | RowNumbers, new: ValueColumn) -> None:
        self.values[_positions(rows)] = new.values

    def index_select(self, dim: int, index: torch.Tensor) -> ValueColumn:
        """Return the values at the positions int64 ``[B]`` of a dimension."""
        return ValueColumn(self.values.take(index.numpy(force=True), dim))

    def transpose(self, first: int, second: int) -> ValueColumn:
        """Return the values with two dimensions swapped."""
        return ValueColumn(self.values.swapaxes(first, second))

    def flatten(self, first: int, last: int) -> ValueColumn:
        """Return the values with the dimensions ``first`` to ``last`` merged."""
        shape = self.values.shape
        size = math.prod(shape[first : last + 1])
        return ValueColumn(self.values.reshape(*shape[:first], size, *shape[last + 1 :]))

    def reshape(self, *shape: int) -> ValueColumn:
        """Return the values in another shape."""
        return ValueColumn(self.values.reshape(shape))

    def clone(self) -> ValueColumn:
        """Return a copy."""
        return ValueColumn(self.values.copy())

    def roll(self, shift: int, dim: int) -> ValueColumn:
        """Return the values shifted along a dimension, around its end."""
        return ValueColumn(np.roll(self.values, shift, dim))

    def as_entry(self) -> NonTensorStack:
        """Return the values as a new non-tensor entry of a TensorDict."""
        return stack_texts(self.values.tolist(), tuple(self.values.shape[1:]))


LeafColumn = torch.Tensor | ValueColumn
"""A column ``[n, ...]`` of rows: a tensor, or values that are not tensors."""


def as_bits(column: LeafColumn) -> LeafColumn:
    """Return a column in a dtype that torch can move; see ``bits_of``."""
    return bits_of(column) if isinstance(column, torch.Tensor) else column


def _positions(rows: slice | RowNumbers) -> slice | np.ndarray:
    return rows if isinstance(rows, slice) else rows.numpy(force=True)
