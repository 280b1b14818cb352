"""Telling the form of rows to processes that share them, and making the files of their columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree

from datasets_cli.errors import UsageError
from datasets_cli.replay.encoding.form import Form, Node, PytreeForm, TensorDictForm
from datasets_cli.replay.encoding.rows_form import RowsForm
from datasets_cli.store.schema.bits import torch_dtype, type_name


def describe(rows: RowsForm) -> dict[str, Any] | None:
    """Return a form as JSON; None where that cannot tell it, as of classes of the user's own."""
    known: dict[str, Any] = {
        "grid": rows.grid,
        "row_batch_size": rows.row_batch_size,
        "row_types": [(type_name(dtype), size) for dtype, size in rows.tensor_types],
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
    """Return the form that was described."""
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
