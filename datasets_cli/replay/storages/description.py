"""Telling the form of rows as JSON, to processes that share them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree

from datasets_cli.errors import UsageError
from datasets_cli.replay.storages.form import Form, Node, PytreeForm, TensorDictForm
from datasets_cli.store.schema.bits import torch_dtype, type_name

RowType = tuple[Any, torch.Size]
"""What a row of a column is: its element type, where it is a tensor, and its shape."""


@dataclass(frozen=True)
class RowsForm:
    """What it takes to read columns as rows.

    Args:
        form: how a row is put together.
        grid: the rows that fit, as a grid: steps, then the environments side by side.
        row_batch_size: batch size of each row by itself.
        row_types: the element type of each column as it was written, and its shape a row.
    """

    form: Form
    grid: tuple[int, ...]
    row_batch_size: tuple[int, ...]
    row_types: list[RowType]


def describe(rows: RowsForm) -> dict[str, Any] | None:
    """Return a form as JSON; None where that cannot tell it, as of classes of the user's own."""
    known: dict[str, Any] = {
        "grid": rows.grid,
        "row_batch_size": rows.row_batch_size,
        "row_types": [(type_name(dtype), size) for dtype, size in rows.row_types],
    }
    if isinstance(rows.form, TensorDictForm):
        nodes = [(key, node.inner) for key, node in rows.form.nodes.items()]
        told = known | {"keys": rows.form.keys, "nodes": nodes}
        return told if _content(from_description(told).form) == _content(rows.form) else None
    try:
        return known | {"structure": _pytree.treespec_dumps(rows.form.structure)}
    except NotImplementedError:
        return None


def _content(form: Form) -> dict[str, Any]:
    """Return what a form knows, but for what it works out of that."""
    return {name: value for name, value in vars(form).items() if name != "_plan"}


def from_description(known: dict[str, Any] | None) -> RowsForm:
    """Return the form that was described.

    Raises:
        UsageError: it could not be.
    """
    if known is None:
        raise UsageError(
            "Another process wrote the first rows of this storage, and they are of classes that "
            "this one cannot know of. Write the first rows before the buffer reaches other "
            "processes."
        )
    form: Form
    if "keys" in known:
        nodes = {tuple(key): Node(tuple(inner)) for key, inner in known["nodes"]}
        form = TensorDictForm([tuple(key) for key in known["keys"]], nodes=nodes)
    else:
        form = _pytree_form(known["structure"], len(known["row_types"]))
    grid, inner = tuple(known["grid"]), tuple(known["row_batch_size"])
    types = [(torch_dtype(dtype), torch.Size(size)) for dtype, size in known["row_types"]]
    return RowsForm(form, grid, inner, types)


def _pytree_form(structure: str, num_leaves: int) -> PytreeForm:
    leaves: Sequence[torch.Tensor] = [torch.empty(0)] * num_leaves
    return PytreeForm(_pytree.tree_unflatten(leaves, _pytree.treespec_loads(structure)))
