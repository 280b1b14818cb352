"""A storage of tensors that are there already."""

from __future__ import annotations

import math

import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import Rows, whole_number
from datasets_cli.replay.encoding.form import check_leading, form_of, inner_shape
from datasets_cli.replay.encoding.row_columns import RowColumns
from datasets_cli.replay.encoding.rows_form import RowsForm, row_types_of
from datasets_cli.replay.encoding.values import ValueColumn, tensors_of
from datasets_cli.replay.storages.protocol import WritableStorage
from datasets_cli.replay.storages.tensors import LazyTensorStorage
from datasets_cli.replay.torchrl_words import STORAGE, takes
from datasets_cli.store.schema.bits import bits_of


@takes(**STORAGE)
class TensorStorage(LazyTensorStorage):
    """Tensors that are there already, all of them rows: nothing is copied.

    Args:
        storage: a TensorDict, a tensor, or a structure of tensors.
        max_size: their number; given for compatibility.
        device: where batches are gathered; the tensors must be there. ``"auto"`` for where they
            are.
        ndim: leading dimensions that are rows, time first.

    Raises:
        UsageError: there are no tensors, or of different lengths, or not ``max_size`` rows.
    """

    def __init__(
        self,
        storage: Rows,
        max_size: int | None = None,
        *,
        device: str | torch.device = "cpu",
        ndim: int = 1,
    ) -> None:
        form = form_of(storage, whole_number("ndim", ndim, 1))
        columns = form.flatten(storage)
        check_leading(form, columns, ndim)
        grid = tuple(columns[0].shape[:ndim])
        device = columns[0].device if device == "auto" else device
        super().__init__(max(1, math.prod(grid)), device=device, ndim=ndim)
        if max_size not in (None, self.max_size):
            raise UsageError(f"max_size={max_size}, but the storage has {self.max_size} rows.")
        known = RowsForm(form, grid, inner_shape(storage, ndim), row_types_of(columns, ndim))
        # Nothing is copied: these are the tensors that were given.
        tensors = [bits_of(column).flatten(0, ndim - 1) for column in tensors_of(columns)]
        values = [
            column.flatten(0, ndim - 1) for column in columns if isinstance(column, ValueColumn)
        ]
        self._use_rows(RowColumns(known, tensors, values))
        self.counters.num_rows = math.prod(grid)

    def share(self) -> None:
        """Refuse: these are tensors of the user's, in the memory of this process."""
        WritableStorage.share(self)
