"""Batches: made of leaves, mapped part by part, or joined of rows that stand by themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

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

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import Rows
from datasets_cli.schema.bits import stack_tensors
from datasets_cli.schema.tree import Tree


def make_batch(
    tree: Tree, batch_size: torch.Size, device: torch.device | None = None
) -> TensorDict:
    """Return the TensorDict ``[*batch_size]`` of a nested dict of leaves that are ours."""
    # The leaves are known to have this leading shape and device, so none of tensordict's
    # constructors is called: its unchecked one takes three times as long, and the public one thirty
    # times, where half of a small batch's time is wrappers. The dict itself becomes the
    # TensorDict's.
    batch: TensorDict = TensorDict.__new__(TensorDict)
    batch._tensordict, batch._batch_size = tree, batch_size
    batch._device, batch._td_dim_names = device, None
    for name, entry in tree.items():
        if type(entry) is dict:
            tree[name] = make_batch(entry, batch_size, device)
    return batch


def map_rows(function: Callable[[Any], Any], batch: Rows) -> Rows:
    """Return a function of a TensorDict, or of each tensor and TensorDict in a structure."""
    # A tensorclass is like a TensorDict.
    return _pytree.tree_map(function, batch, is_leaf=_is_part)


def _is_part(part: Rows) -> bool:
    found: bool = is_tensor_collection(part)
    return found


Name = TypeVar("Name")


def lazy_stack(rows: list[Any], dim: int) -> LazyStackedTensorDict:
    """Return copies of rows of one batch size as a lazy stack."""
    copies = [row.clone() for row in rows]
    found: LazyStackedTensorDict = LazyStackedTensorDict.lazy_stack(copies, dim)
    return found


def batch_size_of(row: Rows) -> tuple[int, ...] | None:
    """Return the batch size of a TensorDict or tensorclass; None for what is neither."""
    return tuple(row.batch_size) if is_tensor_collection(row) else None


def as_one(items: list[Rows]) -> Rows:
    """Return rows that are TensorDicts or tensorclasses as one TensorDict; others as they are."""
    # Unlike in a batch, rows that differ make a lazy stack, and equal values that are no tensors
    # stay one value a row.
    if not items or not all(isinstance(i, TensorDictBase) or is_tensorclass(i) for i in items):
        return items
    rows = [item._tensordict if is_tensorclass(item) else item for item in items]
    if len(shapes := {tuple(row.batch_size) for row in rows}) > 1:
        raise UsageError(
            f"Rows have the batch sizes {', '.join(map(str, sorted(shapes)))}, so that they do not "
            "make one TensorDict. Give them the same."
        )
    joined = _joined(rows)
    return LazyStackedTensorDict(*rows) if joined is None else joined


def _joined(rows: list[Rows]) -> TensorDict | None:
    """Return TensorDicts of the same form as one; None for others."""
    if any(type(row) is not TensorDict for row in rows):
        return None
    if len({(row.batch_size, tuple(sorted(row.keys()))) for row in rows}) > 1:
        return None
    entries: dict[str, Rows] = {}
    for name in rows[0].keys():  # noqa: SIM118
        column = [row._get_str(name, None) for row in rows]
        entry = _joined_entry(column)
        if entry is None:
            return None
        entries[name] = entry
    return TensorDict(entries, (len(rows), *rows[0].batch_size))


def _joined_entry(column: list[Rows]) -> Rows | None:
    if all(isinstance(item, torch.Tensor) for item in column):
        forms = {(item.dtype, item.shape, item.device) for item in column}
        return torch.stack(column) if len(forms) == 1 else None
    if all(isinstance(item, NonTensorData | NonTensorStack) for item in column):
        return NonTensorStack(*column)
    return _joined(column)


def stack_rows(items: list[Rows]) -> Rows:
    """Return rows of tensors, or of tensors in tuples and dicts, as one batch."""
    # Rows that are TensorDicts keep the shape they have by themselves, and what is no tensor.
    if all(is_tensorclass(item) for item in items):
        return _stack_tensors(items)
    for kind, stack in _STACKS.items():
        if all(isinstance(item, kind) for item in items):
            return stack(items)
    kinds = ", ".join(sorted({type(item).__name__ for item in items}))
    raise UsageError(
        f"Rows of {kinds} do not make a batch by themselves. Give the buffer a collate_fn that "
        "takes a list of them."
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
        return torch.stack(items)
    except RuntimeError as error:
        # torch has types of which it stacks no empty tensors, or does not on every device.
        if isinstance(error, NotImplementedError) and type(items[0]) is torch.Tensor:
            return stack_tensors(items)
        raise UsageError(f"Rows differ, so that they do not make a batch: {error}") from error


def _stack_dicts(items: list[dict[str, Rows]]) -> dict[str, Rows]:
    return {name: stack_rows(column) for name, column in _columns(items).items()}


def _stack_tuples(items: list[tuple[Rows, ...]]) -> tuple[Rows, ...]:
    columns = _columns([dict(enumerate(item)) for item in items])
    return tuple(stack_rows(column) for column in columns.values())


def _columns(trees: list[dict[Name, Rows]]) -> dict[Name, list[Rows]]:
    """Return what rows have under each of their keys, which must be the same."""
    names = trees[0].keys()
    for tree in trees:
        if odd := names ^ tree.keys():
            raise UsageError(f"Rows differ in {odd}, so that they do not make a batch.")
    return {name: [tree[name] for tree in trees] for name in names}


_STACKS: dict[type | tuple[type, ...], Callable[[list[Rows]], Rows]] = {
    TensorDictBase: _stack_tensordicts,
    torch.Tensor: _stack_tensors,
    tuple: _stack_tuples,
    dict: _stack_dicts,
    (bool, int, float): torch.tensor,
}
