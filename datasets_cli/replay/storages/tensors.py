"""Storages of tensors in memory: rows are written, and gathered as a dataset's are.

A storage keeps plain flat columns beside the form of its rows: a batch is one ``index_select`` a
column, never an indexing of a TensorDict.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from tensordict import TensorDictBase

from datasets_cli.errors import EmptyBuffer, UsageError
from datasets_cli.replay.arguments import Rows, whole_number
from datasets_cli.replay.storages.batch import map_rows
from datasets_cli.replay.storages.form import (
    Form,
    TensorDictForm,
    check_leading,
    form_of,
    inner_shape,
)
from datasets_cli.replay.storages.protocol import NO_ROWS, WritableStorage
from datasets_cli.replay.torchrl_words import LAZY, STORAGE, takes
from datasets_cli.store.schema.bits import MOVABLE, bits_dtype, bits_of, take
from datasets_cli.store.schema.columns import Key, show_key
from datasets_cli.store.schema.device_options import ON_DISK, DeviceOptions


@takes(**LAZY)
class LazyTensorStorage(WritableStorage):
    """Tensors in memory, allocated when the first rows are written.

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
        self.max_size = whole_number("max_size", max_size, 1)
        self.ndim = whole_number("ndim", ndim, 1)
        self._use_device(torch.device("cpu" if device == "auto" else device))
        self._follows_rows = device == "auto"
        self.revision = 0
        self.cursor = 0
        self.is_tensordict = False  # as long as nothing was written
        self._grid: tuple[int, ...] = (self.max_size,)
        self._form: Form | None = None
        # What torch cannot move is kept, and handed from flatten() to write(), as its bits.
        self._columns: list[torch.Tensor] = []
        self._dtypes: list[torch.dtype] = []
        self._has_bits = False
        self._num_rows = 0

    def __len__(self) -> int:
        return self._num_rows

    def __repr__(self) -> str:
        names = ", ".join(self._form.names) if self._form else "nothing yet"
        shape = list(self.grid) if self._form else [self.max_size]
        return (
            f"{type(self).__name__}({names}, shape={shape}, device={self.device}, "
            f"len={len(self)}, max_size={self.max_size})"
        )

    @property
    def grid(self) -> tuple[int, ...]:
        """The rows that fit, as a grid: steps, then the environments side by side."""
        return self._grid

    @property
    def capacity(self) -> int:
        """Rows that fit, more than ``max_size`` where environments do not divide it."""
        return math.prod(self.grid)

    def flatten(self, data: Rows) -> list[torch.Tensor]:
        """Return the columns ``[n, ...]`` of data, time first and flat; allocate with the first.

        Raises:
            UsageError: they have another form than the rows that are there.
        """
        form = self._form or form_of(data)
        columns = form.flatten(data)
        check_leading(form, columns, self.ndim)
        if self._form is None and self._follows_rows:
            self._use_device(columns[0].device)
        side = columns[0].transpose(0, self.ndim - 1).shape[1 : self.ndim]
        if self._form is None:
            width = math.prod(side)
            self._grid = (-(-self.max_size // max(1, width)), *side)
            self._columns = self._allocate(form, columns)
            self._set_form(form, inner_shape(data, self.ndim), columns)
        flat = self._as_kept(form, columns)
        if self.ndim > 1:
            flat = [column.transpose(0, self.ndim - 1).flatten(0, self.ndim - 1) for column in flat]
        if self.grid[1:] != side:
            raise UsageError(
                f"The storage holds steps of {_environments(self.grid[1:])} environments; these "
                f"are of {_environments(side)}."
            )
        for name, rows, own in zip(form.names, flat, self._columns, strict=True):
            if rows.shape[1:] != own.shape[1:]:
                raise UsageError(
                    f"{name} has the shape {list(own.shape[1:])} a row in the storage, and "
                    f"{list(rows.shape[1:])} in these rows."
                )
        return flat

    def _use_device(self, device: torch.device) -> None:
        self.device = device
        self.device_options = ON_DISK if device.type == "cpu" else DeviceOptions(device)

    def _set_form(
        self, form: Form, row_batch_size: tuple[int, ...], columns: list[torch.Tensor]
    ) -> None:
        self._form = form
        self.is_tensordict = isinstance(form, TensorDictForm)
        self.row_batch_size = row_batch_size
        self._dtypes = [column.dtype for column in columns]
        self._has_bits = not MOVABLE.issuperset(self._dtypes)

    def _as_kept(self, form: Form, columns: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return columns as they are written: of types that torch cannot move, the bits.

        Raises:
            UsageError: torch cannot convert them to the type of the rows that are there.
        """
        if not self._has_bits:
            return columns
        kept = []
        for name, column, dtype in zip(form.names, columns, self._dtypes, strict=True):
            try:
                kept.append(column if dtype in MOVABLE else bits_of(column.to(dtype)))
            except NotImplementedError as error:
                raise UsageError(
                    f"{name} is {dtype} in the storage and {column.dtype} in these rows, which "
                    "torch cannot convert to it. Convert them first."
                ) from error
        return kept

    def _as_given(self, columns: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return what is kept as the columns that were written."""
        return [column.view(dtype) for column, dtype in zip(columns, self._dtypes, strict=True)]

    def write(self, rows: slice | torch.Tensor, columns: list[torch.Tensor]) -> None:
        """Put columns ``[n, ...]`` into rows."""
        for own, new in zip(self._columns, columns, strict=True):
            own[rows] = new.detach().to(own.device)
        if isinstance(rows, slice):
            self.cursor = rows.stop // self.width % self.grid[0]
        last = rows.stop if isinstance(rows, slice) else int(rows.max()) + 1
        self._num_rows = max(self._num_rows, last)
        self.revision += 1

    def clear(self) -> None:
        """Forget every row."""
        self._num_rows = self.cursor = 0
        self.revision += 1

    def gather(self, index: torch.Tensor) -> Rows:
        """Return copies ``[B, ...]`` of the rows ``index`` int64 ``[B]``, in the rows' form."""
        if self._form is None:
            raise EmptyBuffer(NO_ROWS)
        if index.device != self.device:
            index = index.to(self.device)
        columns = [column.index_select(0, index) for column in self._columns]
        return self._form.unflatten(self._as_given(columns) if self._has_bits else columns)

    def contents(self) -> Rows:
        """Return copies of all rows, as ``flatten`` takes them: time last."""
        rows = self.run(0, len(self))
        time, side = self.ndim - 1, self.grid[1:]
        if not time:
            return rows
        return map_rows(lambda part: _as_grid(part, side).transpose(0, time), rows)

    def one_row(self, data: Rows) -> Rows:
        """Return one row, or one step of all environments, as ``flatten`` takes several.

        Raises:
            UsageError: it is not made of tensors.
        """
        return map_rows(self._with_time, data)

    def _with_time(self, leaf: Rows) -> torch.Tensor | TensorDictBase:
        if not isinstance(leaf, torch.Tensor | TensorDictBase):
            raise UsageError(
                f"A row of tensors is expected, not {type(leaf).__name__}. Tensor storages take "
                "tensors; ListStorage takes anything."
            )
        return leaf.unsqueeze(self.ndim - 1)

    def _leaf(self, key: Key) -> torch.Tensor:
        """Return a column ``[rows, ...]``: not a copy.

        Raises:
            KeyError: there is none.
        """
        if isinstance(self._form, TensorDictForm) and key in self._form.keys:
            number = self._form.keys.index(key)
            return self._columns[number][: len(self)].view(self._dtypes[number])
        if self._form is None:
            raise EmptyBuffer(NO_ROWS)
        known = ", ".join(self._form.names)
        raise KeyError(f"The storage has no {show_key(key)}. It has: {known}")

    def has(self, key: Key) -> bool:
        """Tell whether rows have a column."""
        return isinstance(self._form, TensorDictForm) and key in self._form.keys

    def entry(self, key: Key, rows: torch.Tensor) -> torch.Tensor | None:
        """Return a column of some rows, or None where there is no such column."""
        if not self.has(key):
            return None
        return take(self._leaf(key), rows.to(self.device))

    def scalar_column(self, key: Key) -> torch.Tensor:
        """Return a column of one number a row, ``[T, W]``: T steps of W environments.

        Raises:
            KeyError: there is none.
            UsageError: it has more numbers a row.
        """
        column = self._leaf(key)
        if column.numel() != len(self):
            raise UsageError(
                f"{show_key(key)} is {tuple(column.shape[1:])} a row; trajectories need one number."
            )
        return column.reshape(-1, self.width)

    def _allocate(self, form: Form, columns: list[torch.Tensor]) -> list[torch.Tensor]:
        return [
            torch.empty(
                (self.capacity, *column.shape[self.ndim :]),
                dtype=bits_dtype(column.dtype),
                device=self.device,
            )
            for column in columns
        ]


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
        form = form_of(storage)
        columns = form.flatten(storage)
        check_leading(form, columns, whole_number("ndim", ndim, 1))
        grid = tuple(columns[0].shape[:ndim])
        device = columns[0].device if device == "auto" else device
        super().__init__(max(1, math.prod(grid)), device=device, ndim=ndim)
        if max_size not in (None, self.max_size):
            raise UsageError(f"max_size={max_size}, but the storage has {self.max_size} rows.")
        self._grid = grid
        self._set_form(form, inner_shape(storage, ndim), columns)
        self._columns = [column.flatten(0, ndim - 1) for column in self._as_kept(form, columns)]
        self._num_rows = math.prod(grid)


def _as_grid(rows: Rows, side: tuple[int, ...]) -> Rows:
    """Return rows ``[N, ...]`` as ``[T, *side, ...]``."""
    return rows.reshape(-1, *side, *rows.shape[1:])


def _environments(side: Sequence[int]) -> str:
    """Return how many environments there are, as data come: the last of a step's sizes first."""
    return " x ".join(map(str, (*side[-1:], *side[:-1])))
