"""Storages of tensors in memory: given, allocated when written, or in memory-mapped files."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Self

import torch
from tensordict import is_tensor_collection

from datasets_cli.errors import EmptyBuffer, UsageError
from datasets_cli.replay.arguments import Rows, StateDict, whole_number
from datasets_cli.replay.sharing.files import Counters, SharedCounters, check_empty
from datasets_cli.replay.sharing.sharing import Sharing
from datasets_cli.replay.sharing.temporary import delete_with, temporary_folder
from datasets_cli.replay.storages.collate import LeafColumn, as_bits, map_rows
from datasets_cli.replay.storages.columns import (
    RowColumns,
    RowsForm,
    RowsSnapshot,
    check_leading,
    form_of,
    row_types_of,
)
from datasets_cli.replay.storages.ownership import Ownership, form_told
from datasets_cli.replay.storages.protocol import NO_ROWS, WritableStorage
from datasets_cli.replay.torchrl_words import LAZY, MAPPED, STORAGE, takes
from datasets_cli.schema.bits import take
from datasets_cli.schema.columns import Key
from datasets_cli.schema.mapping import ON_DISK, DeviceOptions, usable_device
from datasets_cli.schema.tree import Tree


class TensorRows(WritableStorage):
    """Rows of tensors in columns of plain tensors, written and gathered."""

    device: torch.device

    def __init__(self, max_size: int, *, device: str | torch.device = "cpu", ndim: int = 1) -> None:
        self.max_size = whole_number("max_size", max_size, 1)
        self.ndim = whole_number("ndim", ndim, 1)
        self._use_device(usable_device("cpu" if device == "auto" else device))
        self._follows_rows = device == "auto"
        self._owner = Ownership()
        self.is_tensordict = False  # as long as nothing was written
        self._rows: RowColumns | None = None

    def __len__(self) -> int:
        num_rows = self.counters.num_rows
        if num_rows and self.sharing is not None:
            self.find_form()
        return num_rows

    @property
    def sharing(self) -> Sharing | None:  # type: ignore[override]
        """What the processes that share the rows agree by; None where one has them alone."""
        return self._owner.sharing

    @property
    def is_shared(self) -> bool:
        """Whether other processes have the rows, or will have them from the first write on."""
        return self._owner.is_shared

    @property
    def counters(self) -> Counters | SharedCounters:
        """What is counted of the rows."""
        return self._owner.counters

    @property
    def cursor(self) -> int:
        """The time step that is written next."""
        return self.counters.cursor

    @cursor.setter
    def cursor(self, step: int) -> None:
        with self._owner.changing() as counters:
            counters.cursor = step

    @property
    def write_count(self) -> int:
        """Rows that were written one after the other since the storage was empty."""
        return self.counters.write_count

    @write_count.setter
    def write_count(self, count: int) -> None:
        with self._owner.changing() as counters:
            counters.write_count = count

    @property  # set by what is counted, never as such
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
        self.find_form()
        return (self.max_size,) if self._rows is None else self._rows.form.grid

    @property
    def capacity(self) -> int:
        """Rows that fit, more than ``max_size`` where environments do not divide it."""
        return math.prod(self.grid)

    def flatten(self, data: Rows) -> list[LeafColumn]:
        """Return the columns ``[n, ...]`` of data, time first and flat; allocate with the first.

        Raises:
            UsageError: they have another form than the rows that are there.
        """
        self.find_form()
        form = form_of(data, self.ndim) if self._rows is None else self._rows.form.form
        columns = form.flatten(data)
        check_leading(form, columns, self.ndim)
        if self._rows is None:
            if self._follows_rows:
                self._use_device(columns[0].device)
            rows_form = RowsForm.of_first(form, columns, self.ndim, self.max_size)
            self._use_rows(self._owner.allocate(rows_form, self.device))
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
        self._owner.reserve(rows)
        if self.sharing is not None:
            self.sharing.write(rows, columns, self._count)
            return
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
            raise UsageError(
                f"Row {first} cannot be written: rows are written one after the other, and the "
                f"storage has {num_rows}. Load a writer's state with its rows, by load_state_dict "
                "of the buffer."
            )

    def _count(self, rows: slice | torch.Tensor) -> None:
        self._owner.count(rows, self.grid)

    def clear(self) -> None:
        """Forget every row."""
        self._owner.clear()
        if self._rows is not None:
            self._rows.clear_values()

    def find_form(self) -> None:
        """Learn the form of the rows where another process wrote the first ones."""
        rows = self._rows
        if self.sharing is None or (rows is not None and rows.columns):
            return
        if self.sharing.find_form():
            assert self.sharing.form is not None, "it was found"
            form = form_told(self.sharing.form) if rows is None else rows.form
            self._use_rows(RowColumns(form, self.sharing.columns))

    def __getstate__(self) -> StateDict:
        if self.sharing is None:
            return self._snapshot()
        # Shared rows travel as the folder that they are in.
        return vars(self) | {"_rows": self._rows and RowColumns(self._rows.form, [])}

    def _snapshot(self) -> StateDict:
        """Return a state with copies of the rows there are, which is not shared."""
        owner = self._owner.copied()
        rows = self._rows and self._rows.snapshot(owner.counters.num_rows)
        return vars(self) | {"_owner": owner, "_rows": rows}

    def __setstate__(self, state: StateDict) -> None:
        vars(self).update(state)
        rows = state["_rows"]
        if isinstance(rows, RowsSnapshot):
            self._rows = rows.restored(self.device)
        self.find_form()

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        """Return a storage with copies of the rows, which is not shared."""
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        copied.__setstate__(self._snapshot())
        copied.generations = copy.deepcopy(self.generations, memo)
        return copied

    def gather(self, index: torch.Tensor) -> Rows:
        """Return copies ``[B, ...]`` of the rows ``index`` int64 ``[B]``, in the rows' form."""
        rows = self._rows
        if rows is None:
            raise EmptyBuffer(NO_ROWS)
        if rows.form.has_values:
            self._owner.check_values()
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
            raise UsageError(
                f"A row of tensors is expected, not {type(leaf).__name__}. Tensor storages take "
                "tensors; ListStorage takes anything."
            )
        return leaf.unsqueeze(self.ndim - 1)

    def _known(self) -> RowColumns:
        """Return the columns."""
        if self._rows is None:
            raise EmptyBuffer(NO_ROWS)
        return self._rows

    def has(self, key: Key) -> bool:
        """Return whether rows have a column."""
        self.find_form()
        return self._rows is not None and self._rows.has(key)

    def entry(self, key: Key, rows: torch.Tensor) -> torch.Tensor | None:
        """Return a column of some rows, or None where there is no such column."""
        if not self.has(key):
            return None
        return take(self._known().leaf(key, len(self)), rows.to(self.device))

    def scalar_column(self, key: Key) -> torch.Tensor:
        """Return a column of one number a row, ``[T, W]``: T steps of W environments."""
        return self._known().numbers(key, len(self))


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
        # Nothing is copied: these are the tensors that were given.
        flat = [as_bits(column).flatten(0, ndim - 1) for column in columns]
        self._use_rows(RowColumns(RowsForm(form, grid, row_types_of(columns, ndim)), flat))
        self.counters.num_rows = math.prod(grid)


@takes(**LAZY)
class LazyTensorStorage(TensorStorage):
    """Tensors in memory, allocated when the first rows are written.

    Rows may have text and other values, too: each row keeps its own. Later rows have the keys,
    shapes and dtypes of the first ones.

    With ``ndim`` above 1, data come as ``[environments..., time]`` and are kept time first, so that
    each environment's steps are one run; ``max_size`` counts all of them, and is rounded up to
    a whole step, as TorchRL does.

    Args:
        max_size: most rows.
        device: where the tensors live; ``"auto"`` for where the first rows are.
        ndim: leading dimensions of the data that are rows.

    Raises:
        UsageError: a size is not a whole number from 1 on.
    """

    def __init__(self, max_size: int, *, device: str | torch.device = "cpu", ndim: int = 1) -> None:
        TensorRows.__init__(self, max_size, device=device, ndim=ndim)  # no tensors are there yet

    def share(self) -> None:
        """Share the rows with other processes; what is there is copied into shared memory.

        Raises:
            UsageError: the rows are on another device or are not tensors, or memory has no room.
        """
        self._owner.share(self._rows, self.device)


@takes(**MAPPED)
class LazyMemmapStorage(LazyTensorStorage):
    """Tensors in memory-mapped files, made when the first rows are written.

    Every process that the storage reaches, forked or by a pickle, reads and writes the same rows. A
    pickle has the folder, and no rows. Text and other values that are not tensors stay in memory,
    and rows that have some in this process.

    Args:
        max_size: most rows.
        scratch_dir: the folder of the files; a temporary one, deleted with the storage, by default.
        device: the CPU; ``"auto"`` is the same.
        ndim: see ``LazyTensorStorage``.
        existsok: write over files that are in ``scratch_dir``; refused otherwise.
        auto_cleanup: whether the files are deleted; None, or what is so anyway.
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
            raise UsageError(
                "A temporary folder is deleted with its storage, and a scratch_dir stays: "
                f"auto_cleanup={auto_cleanup} is not possible here."
            )
        if self.device.type != "cpu":
            raise UsageError("Mapped files are in the CPU's memory. Give the buffer a device.")
        self.existsok = existsok
        if scratch_dir is None:
            self.scratch_dir = temporary_folder(in_memory=False)
            delete_with(self._owner, self.scratch_dir)
            existsok = True  # nobody else knows of it
        else:
            self.scratch_dir = Path(scratch_dir)
            if not existsok:
                check_empty(self.scratch_dir)
        self._owner.share_later(self.scratch_dir, existsok=existsok)

    def begin(self) -> None:
        """Make the files in which the rows are shared, unless they are there."""
        self._owner.begin()

    def __getstate__(self) -> StateDict:
        self.begin()
        return super().__getstate__()
