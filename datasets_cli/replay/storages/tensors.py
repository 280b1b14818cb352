"""Storages of tensors in memory: those that are there already, and those allocated when written."""

from __future__ import annotations

import math

import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import Rows, whole_number
from datasets_cli.replay.encoding.form import check_leading, form_of, inner_shape
from datasets_cli.replay.encoding.row_columns import RowColumns
from datasets_cli.replay.encoding.rows_form import RowsForm, row_types_of
from datasets_cli.replay.encoding.values import ValueColumn, tensors_of
from datasets_cli.replay.storages.tensor_rows import TensorRows
from datasets_cli.replay.torchrl_words import LAZY, STORAGE, takes
from datasets_cli.schema.bits import bits_of


@takes(**STORAGE)
class TensorStorage(TensorRows):
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


@takes(**LAZY)
class LazyTensorStorage(TensorStorage):
    """Tensors in memory, allocated when the first rows are written.

    Rows may have text and other values, too: each row keeps its own. Later rows have the keys,
    shapes and element types of the first ones; ``rb[:] = rows`` may add keys to all rows.

    With ``ndim`` above 1, data come as ``[environments..., time]`` and are kept time first, so that
    each environment's steps are a run of their own; ``max_size`` counts all of them, and is
    rounded up to a whole step, as TorchRL does.

    Args:
        max_size: most rows.
        device: where the tensors live; ``"auto"`` for where the first rows are.
        ndim: leading dimensions of the data that are rows.

    Raises:
        UsageError: a size is no whole number from 1 on.
    """

    def __init__(self, max_size: int, *, device: str | torch.device = "cpu", ndim: int = 1) -> None:
        TensorRows.__init__(self, max_size, device=device, ndim=ndim)  # no tensors are there yet

    def share(self) -> None:
        """Share the rows with other processes; what is there is copied into shared memory.

        Raises:
            UsageError: the rows are on another device or are no tensors, or memory has no room.
        """
        self._owner.share(self._rows, self.device)
