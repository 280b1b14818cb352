"""What rows are, all together: their form, the grid that they fill, and the type of each column.

Columns are given as users have them, ``[environments..., time, ...]``, and kept flat, time first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from tensordict import TensorDictBase, is_tensor_collection

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import Rows
from datasets_cli.replay.encoding.batches import make_batch
from datasets_cli.replay.encoding.form import (
    Form,
    TensorDictForm,
    check_leading,
    form_of,
    inner_shape,
    leaves_of,
)
from datasets_cli.replay.encoding.values import Column, ValueColumn
from datasets_cli.schema.bits import MOVABLE, bits_of
from datasets_cli.schema.columns import Key
from datasets_cli.schema.tree import Tree

RowType = tuple[Any, torch.Size]
"""What a row of a column is: its element type, where it is a tensor, and its shape."""


@dataclass(frozen=True)
class RowsForm:
    """What it takes to keep rows as flat columns, and to read these as rows."""

    form: Form
    grid: tuple[int, ...]
    row_batch_size: tuple[int, ...]
    row_types: list[RowType]

    @property
    def is_tensordict(self) -> bool:
        """Whether rows are TensorDicts or tensorclasses."""
        return isinstance(self.form, TensorDictForm)

    @property
    def leaves(self) -> tuple[Key, ...]:
        """The keys of all columns; none where rows are not TensorDicts."""
        return self.form.leaves if isinstance(self.form, TensorDictForm) else ()

    @property
    def tensor_types(self) -> list[tuple[torch.dtype, torch.Size]]:
        """What a row of each column is, of those that are tensors."""
        return [(dtype, size) for dtype, size in self.row_types if isinstance(dtype, torch.dtype)]

    @cached_property
    def has_bits(self) -> bool:
        """Whether torch cannot move some types, so that their columns are kept as bits."""
        return not MOVABLE.issuperset(dtype for dtype, _ in self.tensor_types)

    @property
    def width(self) -> int:
        """Rows of one time step."""
        return math.prod(self.grid[1:])

    @property
    def capacity(self) -> int:
        """Rows that fit."""
        return math.prod(self.grid)

    def check(self, columns: Sequence[Column]) -> None:
        """Check that columns ``[environments..., time, ...]`` are as those of these rows."""
        ndim = len(self.grid)
        if (found := side_of(columns[0], ndim)) != self.grid[1:]:
            raise UsageError(
                f"The storage holds steps of {_environments(self.grid[1:])} environments; these "
                f"are of {_environments(found)}."
            )
        for name, column, own in zip(self.form.names, columns, self.row_types, strict=True):
            if (column.dtype, column.shape[ndim:]) != own:
                raise _other_type(name, own, column.dtype, column.shape[ndim:])

    def is_of(self, data: Rows) -> bool:
        """Tell whether data are TensorDicts with the keys of these rows."""
        return is_tensor_collection(data) and leaves_of(data).keys() == set(self.leaves)

    def extended(self, data: Rows) -> RowsForm | None:
        """Return the form of these rows with the keys that others have beside theirs."""
        # None where the others have no other keys, or not all of these.
        ndim = len(self.grid)
        if not isinstance(self.form, TensorDictForm) or not isinstance(data, TensorDictBase):
            return None
        found = form_of(data, ndim)
        assert isinstance(found, TensorDictForm)
        if not set(found.leaves) > set(self.leaves):
            return None
        whole = self.form.extended(found)
        columns = whole.flatten(data)
        check_leading(whole, columns, ndim)
        return replace(self, form=whole, row_types=row_types_of(columns, ndim))

    def as_kept(self, columns: list[Column], device: torch.device) -> list[Column]:
        """Return columns as they are written: flat, time first, on the storage's device."""
        # Of types that torch cannot move, they are the bits.
        if self.has_bits:
            columns = [
                bits_of(column) if isinstance(column, torch.Tensor) else column
                for column in columns
            ]
        if time := len(self.grid) - 1:
            columns = [column.transpose(0, time).flatten(0, time) for column in columns]
        # A copy to another device may fail: it must not when half of the leaves are written.
        return [
            column.detach().to(device) if isinstance(column, torch.Tensor) else column
            for column in columns
        ]

    def unflatten(self, tensors: list[torch.Tensor], values: list[ValueColumn]) -> Rows:
        """Return kept columns ``[n, ...]`` as rows; of TensorDicts the nested dict."""
        if self.has_bits:
            pairs = zip(tensors, self.row_types, strict=False)  # those of values come last
            tensors = [column.view(dtype) for column, (dtype, _) in pairs]
        return self.form.unflatten([*tensors, *(column.as_entry() for column in values)])

    def batch(self, tree: Tree, shape: torch.Size, device: torch.device) -> Rows:
        """Return the nested dict of rows ``[*shape]`` as TensorDicts or tensorclasses."""
        # Nested ones have the batch sizes and classes that were written.
        form = self.form
        assert isinstance(form, TensorDictForm)
        if form.is_plain:
            return make_batch(tree, shape, device)
        return form.batch(tree, shape, device)


def row_types_of(columns: Sequence[Column], ndim: int) -> list[RowType]:
    """Return what a row of each column is."""
    return [(column.dtype, torch.Size(column.shape[ndim:])) for column in columns]


def rows_form(
    form: Form, data: Rows, columns: Sequence[Column], ndim: int, max_size: int
) -> RowsForm:
    """Return what the rows of a storage are, of which these are the first."""
    # data: the first rows, `[environments..., time, ...]`.
    side = side_of(columns[0], ndim)
    grid = (-(-max_size // max(1, math.prod(side))), *side)
    return RowsForm(form, grid, inner_shape(data, ndim), row_types_of(columns, ndim))


def side_of(column: Column, ndim: int) -> tuple[int, ...]:
    """Return the environments of a column ``[environments..., time, ...]``, as in a grid."""
    return tuple(column.transpose(0, ndim - 1).shape[1:ndim])


def with_time(leaf: Rows, ndim: int) -> Rows:
    """Return a tensor or TensorDict of one row, or one step of all environments, as of several."""
    if not isinstance(leaf, torch.Tensor) and not is_tensor_collection(leaf):
        raise UsageError(
            f"A row of tensors is expected, not {type(leaf).__name__}. Tensor storages take "
            "tensors; ListStorage takes anything."
        )
    return leaf.unsqueeze(ndim - 1)


def _other_type(
    name: str,
    own: RowType,
    dtype: Any,
    shape: torch.Size,
) -> UsageError:
    """Return the error of a column that is not as that of the storage."""
    if dtype != own[0]:
        return UsageError(
            f"{name} is {own[0]} in the storage and {dtype} in these rows. Nothing is converted "
            f"when it is written: pass {name} as {own[0]}, such as by .to({own[0]})."
        )
    return UsageError(
        f"{name} has the shape {list(own[1])} a row in the storage, and {list(shape)} in these "
        "rows. Reshape them, or write them to another storage."
    )


def _environments(side: Sequence[int]) -> str:
    """Return how many environments there are, as data come: the last of a step's sizes first."""
    return " x ".join(map(str, (*side[-1:], *side[:-1])))
