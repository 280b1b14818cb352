"""The form of rows: which columns they have, and how a batch is put together from them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any

import torch
from tensordict import TensorDictBase, is_non_tensor
from torch.utils import _pytree

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import Rows
from datasets_cli.store.schema.columns import Key, show_key
from datasets_cli.store.schema.tree import TreePlan


class TensorDictForm:
    """The form of a TensorDict.

    Args:
        keys: its leaves.
    """

    def __init__(self, keys: Sequence[Key]) -> None:
        self.keys = tuple(keys)
        self._plan = TreePlan(self.keys)
        self._places = [self._plan.slot(key) for key in self.keys]

    @property
    def names(self) -> list[str]:
        """The columns' names."""
        return [show_key(key) for key in self.keys]

    def flatten(self, rows: Rows) -> list[torch.Tensor]:
        """Return the leaves in the order of the keys."""
        if not isinstance(rows, TensorDictBase):
            raise UsageError(
                f"The buffer holds TensorDicts with {', '.join(self.names)}, not {outline(rows)}."
            )
        found = leaves_of(rows)
        if found.keys() != set(self.keys):
            raise UsageError(
                f"The buffer holds rows with {', '.join(self.names)}; these have "
                f"{', '.join(map(show_key, found)) or 'nothing'}. Rows must have the same keys."
            )
        return [found[key] for key in self.keys]

    def unflatten(self, columns: Sequence[torch.Tensor]) -> Rows:
        """Return the nested dict of the leaves."""
        nodes = self._plan.new()
        for column, (node, name) in zip(columns, self._places, strict=True):
            nodes[node][name] = column
        return nodes[0]


class PytreeForm:
    """The form of a tensor, or of tensors in tuples, lists and dicts.

    Args:
        rows: an example.
    """

    def __init__(self, rows: Rows) -> None:
        leaves, self._structure = _pytree.tree_flatten(rows)
        self._outline = outline(rows)
        self.names = _names(rows, len(leaves))

    def flatten(self, rows: Rows) -> list[torch.Tensor]:
        """Return the tensors."""
        leaves, structure = _pytree.tree_flatten(rows)
        if structure != self._structure:
            raise UsageError(
                f"The buffer holds rows of the form {self._outline}, not {outline(rows)}."
            )
        for name, leaf in zip(self.names, leaves, strict=True):
            if not isinstance(leaf, torch.Tensor):
                raise no_tensor(name, leaf)
        return leaves

    def unflatten(self, columns: Sequence[torch.Tensor]) -> Rows:
        """Return the structure with other tensors."""
        return _pytree.tree_unflatten(list(columns), self._structure)


Form = TensorDictForm | PytreeForm
"""The form of rows: of TensorDicts, or of any other structure of tensors."""


def form_of(rows: Rows) -> Form:
    """Return the form of some rows."""
    if isinstance(rows, TensorDictBase):
        return TensorDictForm(tuple(leaves_of(rows)))
    return PytreeForm(rows)


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


def leaves_of(rows: TensorDictBase, above: Key = ()) -> dict[Key, torch.Tensor]:
    """Return the leaves of a TensorDict.

    Raises:
        UsageError: one is not a tensor.
    """
    found: dict[Key, torch.Tensor] = {}
    for name, item in rows.items():
        key = (*above, name)
        if is_non_tensor(item) or not isinstance(item, TensorDictBase | torch.Tensor):
            raise no_tensor(show_key(key), item)
        found |= {key: item} if isinstance(item, torch.Tensor) else leaves_of(item, key)
    return found


def _names(rows: Rows, count: int) -> list[str]:
    """Return what leads to each tensor: keys, numbers and attributes."""
    try:
        leaves: list[Any] = _pytree.tree_flatten_with_path(rows)[0]
    except NotImplementedError:  # lazy stacks of TensorDicts in a structure have no paths
        return [str(number) for number in range(count)]
    return [".".join(str(astuple(part)[0]) for part in path) or "data" for path, _ in leaves]


def check_leading(form: Form, columns: Sequence[torch.Tensor], ndim: int) -> None:
    """Check that there are columns, and that their first ``ndim`` dimensions are the same.

    Raises:
        UsageError: there are none, or they have fewer dimensions, or are of different lengths.
    """
    if not columns:
        raise UsageError("These rows have no tensor: there is nothing to store.")
    leading = columns[0].shape[:ndim]
    if len(leading) == ndim and all(column.shape[:ndim] == leading for column in columns):
        return
    for name, column in zip(form.names, columns, strict=True):
        if column.ndim < ndim:
            shape = list(column.shape)
            raise UsageError(f"{name} has the shape {shape}; rows need {ndim} or more dimensions.")
        one, other = (
            size[0] if ndim == 1 else list(size) for size in (leading, column.shape[:ndim])
        )
        if one != other:
            raise UsageError(
                f"{form.names[0]} has {one} rows and {name} has {other}: expected the same number."
            )


def inner_shape(data: Rows, ndim: int) -> tuple[int, ...]:
    """Return the batch size that each row has by itself, of a TensorDict."""
    return tuple(data.batch_size[ndim:]) if isinstance(data, TensorDictBase) else ()
