"""The form of rows: which columns they have, and how a batch is put together from them again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import TensorDictBase, is_non_tensor
from torch.utils import _pytree

from datasets_cli.errors import UsageError
from datasets_cli.store.columns import Key, show_key
from datasets_cli.store.tree import TreePlan


class TensorDictForm:
    """The form of a TensorDict.

    Args:
        keys: its leaves.
    """

    def __init__(self, keys: Sequence[Key]) -> None:
        self.keys = tuple(keys)
        self._plan = TreePlan(self.keys)
        self._places = [self._plan.place(key) for key in self.keys]

    @property
    def names(self) -> list[str]:
        """The columns' names."""
        return [show_key(key) for key in self.keys]

    def apart(self, rows: Any) -> list[torch.Tensor]:
        """Return the leaves in the order of the keys."""
        found = leaves_of(rows) if isinstance(rows, TensorDictBase) else {}
        if found.keys() != set(self.keys):
            raise UsageError(
                f"The buffer holds rows with {', '.join(self.names)}; these have "
                f"{', '.join(map(show_key, found)) or repr(rows)}. Rows must have the same keys."
            )
        return [found[key] for key in self.keys]

    def together(self, columns: Sequence[torch.Tensor]) -> Any:
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

    def __init__(self, rows: Any) -> None:
        leaves, self._structure = _pytree.tree_flatten(rows)
        self.names = [str(number) for number in range(len(leaves))]

    def apart(self, rows: Any) -> list[torch.Tensor]:
        """Return the tensors."""
        leaves, structure = _pytree.tree_flatten(rows)
        if structure != self._structure or not all(isinstance(x, torch.Tensor) for x in leaves):
            raise UsageError(
                f"The buffer holds tensors in the structure {self._structure}, not {structure}. "
                "Tensor storages take tensors; ListStorage takes anything."
            )
        return leaves

    def together(self, columns: Sequence[torch.Tensor]) -> Any:
        """Return the structure with other tensors."""
        return _pytree.tree_unflatten(list(columns), self._structure)


def form_of(rows: Any) -> TensorDictForm | PytreeForm:
    """Return the form of some rows."""
    if isinstance(rows, TensorDictBase):
        return TensorDictForm(tuple(leaves_of(rows)))
    return PytreeForm(rows)


def leaves_of(rows: TensorDictBase, above: Key = ()) -> dict[Key, torch.Tensor]:
    """Return the leaves of a TensorDict.

    Raises:
        UsageError: one is not a tensor.
    """
    found: dict[Key, torch.Tensor] = {}
    for name, item in rows.items():
        key = (*above, name)
        if is_non_tensor(item) or not isinstance(item, TensorDictBase | torch.Tensor):
            raise UsageError(
                f"{show_key(key)} is no tensor but {type(item).__name__}. Tensor storages take "
                "tensors; ListStorage takes anything."
            )
        found |= {key: item} if isinstance(item, torch.Tensor) else leaves_of(item, key)
    return found
