"""Storages of tensors in memory: given, allocated when written, or in memory-mapped files."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import torch
from tensordict import is_tensor_collection

from datasets_cli.errors import EmptyBuffer, NotWritable, Unsupported, WrongRows, WrongSize
from datasets_cli.replay.arguments import Rows, StateDict, whole_number
from datasets_cli.replay.storages.collate import LeafColumn, as_bits, map_rows
from datasets_cli.replay.storages.columns import (
    RowColumns,
    RowsForm,
    RowsSnapshot,
    check_leading,
    form_of,
    new_columns,
    row_types_of,
)
from datasets_cli.replay.storages.mapped_files import ColumnFiles, check_empty
from datasets_cli.replay.storages.processes import call_after_fork
from datasets_cli.replay.storages.protocol import WritableStorage
from datasets_cli.schema.bits import take
from datasets_cli.schema.columns import Key
from datasets_cli.schema.mapping import ON_DISK, DeviceOptions, usable_device
from datasets_cli.schema.tree import Tree
from datasets_cli.sources.temporary_folders import delete_with, temporary_folder
from datasets_cli.torchrl.keywords import accepts_keywords


@dataclass
class Counters:
    """Counters of rows."""

    num_rows: int = 0
    cursor: int = 0  # the time step that is written next
    revision: int = 0  # raised with every change


class TensorRows(WritableStorage):
    """Rows of tensors in columns of plain tensors, written and gathered."""

    device: torch.device

    def __init__(self, max_size: int, *, device: str | torch.device = "cpu", ndim: int = 1) -> None:
        self.max_size = whole_number("max_size", max_size, 1)
        self.ndim = whole_number("ndim", ndim, 1)
        self._use_device(usable_device("cpu" if device == "auto" else device))
        self._follows_rows = device == "auto"
        self.counters = Counters()
        self.is_tensordict = False  # as long as nothing was written
        self._rows: RowColumns | None = None

    def __len__(self) -> int:
        return self.counters.num_rows

    @property
    def rows(self) -> RowColumns | None:
        """The columns; None before the first row."""
        return self._rows

    @property
    def cursor(self) -> int:
        """The time step that is written next."""
        return self.counters.cursor

    @cursor.setter
    def cursor(self, step: int) -> None:
        self.counters.cursor = step

    @property  # the counters change it
    def revision(self) -> int:  # type: ignore[override]
        """A number that changes whenever rows are written or cleared."""
        return self.counters.revision

    def __repr__(self) -> str:
        names = ", ".join(self._rows.form.form.names) if self._rows else "nothing yet"
        return (
            f"{type(self).__name__}({names}, shape={list(self.grid)}, device={self.device}, "
            f"len={len(self)}, max_size={self.max_size})"
        )

    @property
    def grid(self) -> tuple[int, ...]:
        """The rows that fit, as a grid: steps, then the environments side by side."""
        return (self.max_size,) if self._rows is None else self._rows.form.grid

    def flatten(self, data: Rows) -> list[LeafColumn]:
        """Return the columns ``[n, ...]`` of data, time first and flat; allocate with the first.

        Raises:
            UsageError: the data differ from the stored rows in keys, shapes or dtypes.
        """
        form = form_of(data, self.ndim) if self._rows is None else self._rows.form.form
        columns = form.flatten(data)
        if self._rows is None:
            check_leading(form, columns, self.ndim)
            if self._follows_rows:
                self._use_device(columns[0].device)
            rows_form = RowsForm.of_first(form, columns, self.ndim, self.max_size)
            self._use_rows(self._allocate(rows_form))
        else:
            self._rows.form.check(columns)
        return self._known().form.as_kept(columns, self.device)

    def _use_device(self, device: torch.device) -> None:
        self.device = device
        self.device_options = ON_DISK if device.type == "cpu" else DeviceOptions(device)
        self.index_device = self.device_options.device

    def _use_rows(self, rows: RowColumns) -> None:
        self._rows = rows
        self.max_size = math.prod(rows.form.grid)  # rounded up to whole steps, as TorchRL's is
        self.is_tensordict = rows.form.is_tensordict
        self.row_batch_size = rows.form.form.row_batch_size

    def write(self, rows: slice | torch.Tensor, columns: list[LeafColumn]) -> None:
        """Put columns ``[n, ...]`` into rows.

        Raises:
            UsageError: rows before them were never written.
            DiskFull: the rows are in files, and their disk has no room for these.
        """
        self._check_no_gap(rows)
        self._known().write(rows, columns)
        self._count(rows)

    def _check_no_gap(self, rows: slice | torch.Tensor) -> None:
        """Refuse rows beyond the next one: those between would be read, and have no values."""
        num_rows = len(self)
        if isinstance(rows, slice):
            first, new = rows.start, 0
        else:
            beyond = rows[rows >= num_rows].unique()
            first, new = int(beyond[-1]) if len(beyond) else 0, len(beyond) - 1
        if first > num_rows + new:
            raise NotWritable(
                f"Row {first} cannot be written: the storage has {num_rows} rows, and row "
                f"{num_rows} comes next.",
                row=first,
                expected=num_rows,
                advice="Load a writer's state with its rows, by load_state_dict of the buffer.",
            )

    def _count(self, rows: slice | torch.Tensor) -> None:
        counters = self.counters
        if isinstance(rows, slice):
            # The cursor counts time steps, and begins again after the last one that fits.
            form = self._known().form
            counters.cursor = rows.stop // form.width % form.grid[0]
        last = rows.stop if isinstance(rows, slice) else int(rows.max()) + 1
        counters.num_rows = max(counters.num_rows, last)
        counters.revision += 1

    def _allocate(self, form: RowsForm) -> RowColumns:
        """Return columns with room for rows of a form."""
        return new_columns(form, self.device)

    def clear(self) -> None:
        """Forget every row."""
        self.counters = Counters(revision=self.counters.revision + 1)
        if self._rows is not None:
            self._rows.clear_values()

    def copy_rows(self, source: TensorRows) -> None:
        """Copy the rows, counters, generations and seams of another storage."""
        counters = source.counters
        self.counters = Counters(counters.num_rows, counters.cursor, counters.revision)
        if source.rows is not None:
            self._use_rows(source.rows.snapshot(len(source)).restored(self.device))
        self.generations = copy.deepcopy(source.generations)
        self.seams = copy.deepcopy(source.seams)

    def __getstate__(self) -> StateDict:
        rows = self._rows and self._rows.snapshot(len(self))
        return vars(self) | {"_rows": rows, "counters": replace(self.counters)}

    def __setstate__(self, state: StateDict) -> None:
        vars(self).update(state)
        rows = state["_rows"]
        if isinstance(rows, RowsSnapshot):
            self._rows = rows.restored(self.device)

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        """Return a storage with copies of the rows."""
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        copied.__setstate__(self.__getstate__())
        copied.generations = copy.deepcopy(self.generations, memo)
        copied.seams = copy.deepcopy(self.seams, memo)
        return copied

    def gather(self, index: torch.Tensor) -> Rows:
        """Return copies ``[B, ...]`` of the rows ``index`` int64 ``[B]``, in the rows' form."""
        rows = self._rows
        if rows is None:
            raise EmptyBuffer(self.no_rows)
        return rows.gather(index if index.device == self.device else index.to(self.device))

    def as_batch(self, tree: Tree, shape: torch.Size) -> Rows:
        """Return what ``gather`` returned as one batch ``[*shape]``: TensorDicts, or tensorclasses.

        Nested ones have the batch sizes and classes that were written.
        """
        return self._known().form.batch(tree, shape, self.device)

    def contents(self) -> Rows:
        """Return copies of all rows, as ``flatten`` takes them: time last."""
        if self.ndim == 1:
            return self.run(0, len(self))
        rows, shape = self._known().by_environment(len(self))
        return self.as_batch(rows, shape) if self.is_tensordict else rows

    def one_row(self, data: Rows) -> Rows:
        """Return one row, or one step of all environments, as ``flatten`` takes several."""
        return map_rows(self._with_time, data)

    def _with_time(self, leaf: Rows) -> Rows:
        if not isinstance(leaf, torch.Tensor) and not is_tensor_collection(leaf):
            raise WrongRows(
                f"A row of tensors is expected, not {type(leaf).__name__}.",
                expected="Tensor",
                found=type(leaf).__name__,
                advice="Tensor storages take tensors; ListStorage takes anything.",
            )
        return leaf.unsqueeze(self.ndim - 1)

    def _known(self) -> RowColumns:
        """Return the columns."""
        if self._rows is None:
            raise EmptyBuffer(self.no_rows)
        return self._rows

    def has(self, key: Key) -> bool:
        """Return whether rows have a column."""
        return self._rows is not None and self._rows.has(key)

    def entry(self, key: Key, rows: torch.Tensor) -> torch.Tensor | None:
        """Return a column of some rows; None if the rows have no such column."""
        if not self.has(key):
            return None
        return take(self._known().leaf(key, len(self)), rows.to(self.device))

    def scalar_column(self, key: Key) -> torch.Tensor:
        """Return a column of one number a row, ``[T, W]``: T steps of W environments."""
        return self._known().numbers(key, len(self))


@accepts_keywords
class TensorStorage(TensorRows):
    """Existing tensors, all of them rows: nothing is copied.

    Args:
        storage: a TensorDict, a tensor, or a structure of tensors.
        max_size: the number of rows, as in TorchRL's class.
        device: where batches are gathered; the tensors must be on it. ``"auto"`` for
            theirs.
        ndim: leading dimensions that are rows, time first.

    Raises:
        UsageError: the structure has no tensor, tensors differ in length, or their length is not
            ``max_size``.
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
            raise WrongSize(
                f"max_size={max_size}, but the storage has {self.max_size} rows.",
                argument="max_size",
                expected=self.max_size,
                found=max_size,
            )
        # Nothing is copied: these are the tensors that were given.
        flat = [as_bits(column).flatten(0, ndim - 1) for column in columns]
        self._use_rows(RowColumns(RowsForm(form, grid, row_types_of(columns, ndim)), flat))
        self.counters.num_rows = math.prod(grid)


@accepts_keywords
class LazyTensorStorage(TensorStorage):
    """Tensors in memory, allocated when the first rows are written.

    Rows may have text and other values, too: each row keeps its own. Later rows have the keys,
    shapes and dtypes of the first ones.

    With ``ndim`` above 1, data come as ``[environments..., time]`` and are kept time first, so that
    each environment's steps are one run; ``max_size`` counts all of them, and is rounded up to
    a whole step, as TorchRL does.

    Args:
        max_size: most rows.
        device: of the tensors; ``"auto"`` for that of the first rows.
        ndim: leading dimensions of the data that are rows.

    Raises:
        UsageError: a size is not a whole number, or is below 1.
    """

    def __init__(self, max_size: int, *, device: str | torch.device = "cpu", ndim: int = 1) -> None:
        TensorRows.__init__(self, max_size, device=device, ndim=ndim)  # no tensors are there yet


@accepts_keywords
class LazyMemmapStorage(LazyTensorStorage):
    """Tensors in memory-mapped files, created when the first rows are written.

    A buffer of such rows shares them with every process that it is passed to, forked or by a
    pickle; see ``ReplayBuffer.share``. Text and other values that are not tensors stay in memory,
    and rows with such values in this process.

    Args:
        max_size: most rows.
        scratch_dir: the folder of the files; a temporary one, deleted with the storage, by default.
        device: the CPU; ``"auto"`` is the same.
        ndim: see ``LazyTensorStorage``.
        existsok: write over files that are in ``scratch_dir``; refused otherwise.
        auto_cleanup: None, or whether the files are deleted with the storage: True without a
            ``scratch_dir``.
    """

    def __init__(
        self,
        max_size: int,
        *,
        scratch_dir: str | Path | None = None,
        device: str | torch.device = "cpu",
        ndim: int = 1,
        existsok: bool = False,
        auto_cleanup: bool | None = None,
    ) -> None:
        super().__init__(max_size, device="cpu" if device == "auto" else device, ndim=ndim)
        if auto_cleanup not in (None, scratch_dir is None):
            raise Unsupported(
                "A temporary folder is deleted with its storage, and a scratch_dir stays: "
                f"auto_cleanup={auto_cleanup} is not possible here.",
                argument="auto_cleanup",
                expected=scratch_dir is None,
                found=auto_cleanup,
            )
        if self.device.type != "cpu":
            raise Unsupported(
                f"Mapped files are in the CPU's memory, not on {self.device}.",
                argument="device",
                expected="cpu",
                found=str(self.device),
                advice="Give the buffer a device.",
            )
        self.existsok = existsok
        self.files: ColumnFiles | None = None  # from the first row on
        self.is_copy = False  # in memory: the files are another storage's
        if scratch_dir is None:
            self.scratch_dir = temporary_folder(in_memory=False)
            delete_with(self, self.scratch_dir)
            self.existsok = True  # no other storage uses this folder
        else:
            self.scratch_dir = Path(scratch_dir)
            if not existsok:
                check_empty(self.scratch_dir)
        call_after_fork(self)

    @property
    def is_shared(self) -> bool:
        """Whether a buffer of these rows shares them with the processes that it is passed to."""
        return self._rows is None or not self._rows.form.has_values

    def write(self, rows: slice | torch.Tensor, columns: list[LeafColumn]) -> None:
        """Write columns ``[n, ...]`` to rows; see ``TensorRows.write``."""
        self._check_no_gap(rows)
        if self.files is not None:
            self.files.reserve(rows)
        self._known().write(rows, columns)
        self._count(rows)

    def after_fork(self) -> None:
        """Forget the rows in a new process: only some of their values are in files."""
        self._rows, self.counters = None, Counters()
        self.no_rows = str(values_cannot_be_shared())

    def _allocate(self, form: RowsForm) -> RowColumns:
        if self.is_copy:
            return super()._allocate(form)
        if not self.existsok:
            check_empty(self.scratch_dir)
        self.files = ColumnFiles.create(self.scratch_dir, form)
        return new_columns(form, self.device, self.files.columns())

    def __getstate__(self) -> StateDict:
        # The files belong to this storage: the rows of a copy are in memory.
        return super().__getstate__() | {"files": None, "is_copy": True}


def values_cannot_be_shared() -> Unsupported:
    """Return the error of text and other values in rows that processes share."""
    return Unsupported(
        "Text and other values that are not tensors stay in one process.",
        advice="Keep them out of the rows, or write them as tensors, such as numbers of a list of "
        "texts.",
    )
