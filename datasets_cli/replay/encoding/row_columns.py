"""Columns of rows: what a storage of tensors keeps, and how it is read and written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import Rows
from datasets_cli.replay.encoding.form import TensorDictForm
from datasets_cli.replay.encoding.rows_form import RowsForm
from datasets_cli.replay.encoding.values import Column, ValueColumn
from datasets_cli.schema.bits import bits_dtype
from datasets_cli.schema.columns import Key, show_key


class RowColumns:
    """Rows as flat columns ``[capacity, ...]``: a batch is one ``index_select`` a column."""

    def __init__(
        self, form: RowsForm, tensors: list[torch.Tensor], values: list[ValueColumn]
    ) -> None:
        self.form = form
        self.tensors = tensors
        self.values = values

    def gather(self, index: torch.Tensor) -> Rows:
        """Return copies ``[B, ...]`` of the rows ``index`` int64 ``[B]``, which is on their
        device.
        """
        # A nested dict where rows are TensorDicts.
        form = self.form
        columns = [column.index_select(0, index) for column in self.tensors]
        if not self.values and not form.has_bits:
            return form.form.unflatten(columns)
        return form.unflatten(columns, [each.index_select(0, index) for each in self.values])

    def write(self, rows: slice | torch.Tensor, columns: Sequence[Column]) -> None:
        """Put columns ``[n, ...]``, as the form keeps them, into rows."""
        kept: list[Any] = [*self.tensors, *self.values]
        for own, new in zip(kept, columns, strict=True):
            own[rows] = new

    def clear_values(self) -> None:
        """Let go of all values."""
        self.values = [ValueColumn.empty(tuple(column.shape)) for column in self.values]

    def by_environment(self, num_rows: int) -> tuple[Rows, torch.Size]:
        """Return copies of the first rows ``[environments..., time, ...]``, and their shape."""
        # A nested dict where rows are TensorDicts.
        # By column: reshaped in a TensorDict, values that are no tensors get lost.
        side = self.form.grid[1:]
        time, steps = len(side), num_rows // self.form.width
        columns = [
            column[:num_rows].reshape(steps, *side, *column.shape[1:]).transpose(0, time).clone()
            for column in self.tensors
        ]
        values = [
            column[:num_rows].reshape(steps, *side, *column.shape[1:]).transpose(0, time)
            for column in self.values
        ]
        shape = torch.empty(steps, *side, device="meta").transpose(0, time).shape
        return self.form.unflatten(columns, values), shape

    def extended(self, form: RowsForm, device: torch.device) -> RowColumns:
        """Return columns of these rows with more leaves, of which nothing is known yet."""
        num_tensors = len(self.tensors)
        types = form.tensor_types[num_tensors:]
        tensors = [*self.tensors, *empty_tensors(types, form.capacity, device)]
        return RowColumns(form, tensors, [*self.values, *empty_values(form)[len(self.values) :]])

    def shortened(self, form: RowsForm) -> RowColumns:
        """Return columns of these rows without the last leaves, which a form does not have."""
        tensors, values = len(form.tensor_types), len(form.row_types) - len(form.tensor_types)
        return RowColumns(form, self.tensors[:tensors], self.values[:values])

    def has(self, key: Key) -> bool:
        """Tell whether there is a tensor of this key."""
        return isinstance(self.form.form, TensorDictForm) and key in self.form.form.keys

    def leaf(self, key: Key, num_rows: int) -> torch.Tensor:
        """Return the first rows of a column ``[num_rows, ...]``: not a copy."""
        form = self.form.form
        if isinstance(form, TensorDictForm) and key in form.keys:
            number = form.keys.index(key)
            return self.tensors[number][:num_rows].view(self.form.row_types[number][0])
        raise KeyError(f"The storage has no {show_key(key)}. It has: {', '.join(form.names)}")

    def numbers(self, key: Key, num_rows: int) -> torch.Tensor:
        """Return a column of one number a row, ``[T, W]``: T steps of W environments."""
        column = self.leaf(key, num_rows)
        if column.numel() != num_rows:
            raise UsageError(
                f"{show_key(key)} is {tuple(column.shape[1:])} a row; trajectories need one number."
            )
        return column.reshape(-1, self.form.width)

    def snapshot(self, num_rows: int) -> RowsSnapshot:
        """Return the first rows as what can be pickled."""
        columns = [bytes_of(column[:num_rows].cpu()) for column in self.tensors]
        values = [ValueColumn(column.values.copy()) for column in self.values]
        return RowsSnapshot(self.form, columns, values, num_rows)


def empty_columns(form: RowsForm, device: torch.device) -> RowColumns:
    """Return columns with room for the rows of a form, on a device."""
    tensors = empty_tensors(form.tensor_types, form.capacity, device)
    return RowColumns(form, tensors, empty_values(form))


def empty_tensors(
    types: Sequence[tuple[torch.dtype, torch.Size]], capacity: int, device: torch.device
) -> list[torch.Tensor]:
    """Return columns of some element types and shapes a row, with nothing in them."""
    return [
        torch.empty((capacity, *size), dtype=bits_dtype(dtype), device=device)
        for dtype, size in types
    ]


def empty_values(form: RowsForm) -> list[ValueColumn]:
    """Return the columns of a form that are no tensors, with nothing in them."""
    value_types = form.row_types[len(form.tensor_types) :]
    return [ValueColumn.empty((form.capacity, *size)) for _, size in value_types]


def bytes_of(column: torch.Tensor) -> np.ndarray:
    """Return the bytes of a column on the CPU, uint8 ``[n]``, in one piece."""
    return column.resolve_conj().resolve_neg().reshape(-1).view(torch.uint8).numpy()


@dataclass(frozen=True)
class RowsSnapshot:
    """Rows on their way to a copy, perhaps in another process."""

    # columns: the bytes of each tensor, uint8 `[n]`: multiprocessing would share the memory of
    # tensors instead of copying it.

    form: RowsForm
    columns: list[np.ndarray]
    values: list[ValueColumn]
    num_rows: int

    def restored(self, device: torch.device) -> RowColumns:
        """Return columns of their own with these rows."""
        tensors = empty_tensors(self.form.tensor_types, self.form.capacity, device)
        for column, found in zip(tensors, self.columns, strict=True):
            rows = torch.from_numpy(found).view(column.dtype)
            column[: self.num_rows] = rows.view(self.num_rows, *column.shape[1:])
        return RowColumns(self.form, tensors, self.values)
