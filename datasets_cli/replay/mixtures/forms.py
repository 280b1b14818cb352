"""The columns of a storage, each by its element type and the shape of a row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.schema.bits import TYPE_NAMES
from datasets_cli.schema.columns import Key
from datasets_cli.schema.texts import TEXT
from datasets_cli.schema.tree import Tree


class ColumnForm(NamedTuple):
    """What each row has under a key."""

    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


def forms_of(storage: Storage, name: str) -> dict[Key, ColumnForm]:
    """Return the form of every column."""
    if not storage.is_tensordict or storage.row_batch_size:
        have = "no TensorDicts" if not storage.is_tensordict else "a batch size of their own"
        raise UsageError(
            f"{name}: a mixture takes rows that are TensorDicts of plain columns, and rows of this "
            f"{type(storage).__name__} have {have}. Give it a dataset, or a buffer that such rows "
            "were written to."
        )
    row = storage.gather(torch.arange(min(1, len(storage))))
    return {key: _form(leaf) for key, leaf in flat(row)}


def _form(leaf: Any) -> ColumnForm:
    if isinstance(leaf, torch.Tensor):
        return ColumnForm(TYPE_NAMES.get(leaf.dtype, str(leaf.dtype)), tuple(leaf.shape[1:]))
    return ColumnForm(TEXT, tuple(leaf.batch_size[1:]))


def flat(tree: Tree, above: Key = ()) -> Iterator[tuple[Key, Any]]:
    """Yield the leaves of a nested dict with their keys."""
    for name, leaf in tree.items():
        if isinstance(leaf, dict):
            yield from flat(leaf, (*above, name))
        else:
            yield (*above, name), leaf
