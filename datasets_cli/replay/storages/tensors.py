"""Storages of tensors: existing tensors, memory allocated at the first write, or mapped files."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import torch
from tensordict import is_tensor_collection

from datasets_cli.errors import (
    EmptyBuffer,
    NotWritable,
    Unsupported,
    WrongRows,
    WrongSize,
    wrong_value,
)
from datasets_cli.replay.arguments import Rows, StateDict, whole_number
from datasets_cli.replay.storages.collate import LeafColumn, as_bits, map_rows
from datasets_cli.replay.storages.columns import (
    RowColumns,
    RowSchema,
    RowsSnapshot,
    Structure,
    check_leading,
    new_columns,
    row_types_of,
    structure_of,
)
from datasets_cli.replay.storages.mapped_files import ColumnFiles, check_empty
from datasets_cli.replay.storages.process_lock import call_after_fork
from datasets_cli.replay.storages.protocol import WritableStorage
from datasets_cli.schema.bits import take
from datasets_cli.schema.columns import Key
from datasets_cli.schema.mapping import ON_DISK, DeviceOptions, usable_device
from datasets_cli.schema.shapes import RowNumbers
from datasets_cli.schema.tree import Tree
from datasets_cli.sources.temporary_folders import delete_with, temporary_folder
from datasets_cli.torchrl.keywords import accepts_keywords


@dataclass
class Counters:
    """The number of rows, the next time step to write, and the number of changes so far."""

    num_rows: int = 0
    cursor: int = 0
    revision: int = 0


class TensorRows(WritableStorage):
    """A storage whose rows are flat columns of tensors."""

    device: torch.device

    def __init__(self, max_size: int, *, device: str | torch.device = "cpu", ndim: int = 1) -> None:
        self.max_size = whole_number("max_size", max_size, 1)
        self.ndim = whole_number("ndim", ndim, 1)
        self._use_device(usable_device("cpu" if device == "auto" else device))
        self._follows_rows = device == "auto"
        self.counters = Counters()
        self.is_tensordict = False  # until the first write
        self._rows: RowColumns | None = None

    def __len__(self) -> int:
        return self.counters.num_rows

    @property
    def rows(self) -> RowColumns | None:
        """The columns, or None before the first write."""
        return self._rows

    @property
    def cursor(self) -> int:
        """The next time step to write."""
        return self.counters.cursor

    @cursor.setter
    def cursor(self, step: int) -> None:
        self.counters.cursor = step

    @property  # the counters change it
    def revision(self) -> int:  # type: ignore[override]
        """A number that changes whenever rows are written or cleared."""
        return self.counters.revision

    def __repr__(self) -> str:
        names = ", ".join(self._rows.schema.structure.names) if self._rows else "empty"
        return (
            f"{type(self).__name__}({names}, shape={list(self.grid)}, device={self.device}, "
            f"len={len(self)}, max_size={self.max_size})"
        )

    @property
    def grid(self) -> tuple[int, ...]:
        """The shape of the rows that fit: steps, then the environments side by side."""
        return (self.max_size,) if self._rows is None else self._rows.schema.grid

    def flatten(self, data: Rows) -> list[LeafColumn]:
        """Return the columns ``[n, ...]`` of data, time first; the first data allocate memory.

        Raises:
            WrongRows: keys, shapes or dtypes differ from those of the stored rows.
        """
        if self._rows is None:
            structure = structure_of(data, self.ndim)
            columns = structure.flatten(data)
            rows = self._start(structure, columns)
        else:
            rows = self._rows
            columns = rows.schema.structure.flatten(data)
        return rows.schema.flatten(columns, self.device)

    def _start(self, structure: Structure, columns: list[LeafColumn]) -> RowColumns:
        """Allocate memory for rows like the first ones."""
        check_leading(structure, columns, self.ndim)
        if self._follows_rows:
            self._use_device(columns[0].device)
        rows = self._allocate(RowSchema.of_first(structure, columns, self.ndim, self.max_size))
        self._use_rows(rows)
        return rows

    def _use_device(self, device: torch.device) -> None:
        self.device = device
        self.device_options = ON_DISK if device.type == "cpu" else DeviceOptions(device)
        self.index_device = self.device_options.device

    def _use_rows(self, rows: RowColumns) -> None:
        self._rows = rows
        self.max_size = rows.schema.capacity  # rounded up to whole steps, as in TorchRL
        self.is_tensordict = rows.schema.is_tensordict
        self.row_batch_size = rows.schema.structure.row_batch_size

    def write(self, rows: slice | RowNumbers, columns: list[LeafColumn]) -> None:
        """Write columns ``[n, ...]`` to rows.

        Raises:
            NotWritable: rows before them were never written.
            DiskFull: the rows are in files, and the disk does not have enough space.
        """
        self._check_no_gap(rows)
        self._stored().write(rows, columns)
        self._count(rows)

    def _check_no_gap(self, rows: slice | RowNumbers) -> None:
        """Reject writes that would leave uninitialised rows."""
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
                advice="Load the state of a writer with its rows: buffer.load_state_dict().",
            )

    def _count(self, rows: slice | RowNumbers) -> None:
        counters = self.counters
        if isinstance(rows, slice):
            # The cursor counts time steps, and returns to 0 after the last one that fits.
            schema = self._stored().schema
            counters.cursor = rows.stop // schema.width % schema.grid[0]
        last = rows.stop if isinstance(rows, slice) else int(rows.max()) + 1
        counters.num_rows = max(counters.num_rows, last)
        counters.revision += 1

    def _allocate(self, schema: RowSchema) -> RowColumns:
        """Return empty columns of a schema."""
        return new_columns(schema, self.device)

    def clear(self) -> None:
        """Remove all rows."""
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

    def gather(self, index: RowNumbers) -> Rows:
        """Return copies of rows in their structure; TensorDicts as their nested dict."""
        rows = self._rows
        if rows is None:
            raise EmptyBuffer(self.no_rows)
        return rows.gather(index if index.device == self.device else index.to(self.device))

    def as_batch(self, tree: Tree, shape: torch.Size) -> Rows:
        """Return the nested dict of gathered rows as a batch ``[*shape]``, of the written classes.

        Nested ones have the batch sizes and classes that were written.
        """
        return self._stored().schema.batch(tree, shape, self.device)

    def contents(self) -> Rows:
        """Return copies of all rows in the layout of ``extend``: time last."""
        if self.ndim == 1:
            return self.run(0, len(self))
        rows, shape = self._stored().by_environment(len(self))
        return self.as_batch(rows, shape) if self.is_tensordict else rows

    def one_row(self, data: Rows) -> Rows:
        """Return one row, or one step of all environments, as a batch of one."""
        return map_rows(self._with_time, data)

    def _with_time(self, leaf: Rows) -> Rows:
        if not isinstance(leaf, torch.Tensor) and not is_tensor_collection(leaf):
            raise WrongRows(
                f"A row must be tensors, not {type(leaf).__name__}.",
                expected="Tensor",
                found=type(leaf).__name__,
                advice="Tensor storages take tensors; ListStorage takes anything.",
            )
        return leaf.unsqueeze(self.ndim - 1)

    def _stored(self) -> RowColumns:
        """Return the columns; raise ``EmptyBuffer`` before the first write."""
        if self._rows is None:
            raise EmptyBuffer(self.no_rows)
        return self._rows

    def has(self, key: Key) -> bool:
        """Return whether rows have a column of tensors."""
        return self._rows is not None and self._rows.has(key)

    def entry(self, key: Key, rows: RowNumbers) -> torch.Tensor | None:
        """Return copies of a column of some rows, or None if the column does not exist."""
        if not self.has(key):
            return None
        return take(self._stored().leaf(key, len(self)), rows.to(self.device))

    def scalar_column(self, key: Key) -> torch.Tensor:
        """Return a column of one number per row, ``[T, W]``: T steps of W environments."""
        return self._stored().numbers(key, len(self))


@accepts_keywords
class TensorStorage(TensorRows):
    """A storage of existing tensors, which are not copied.

    Args:
        storage: a TensorDict, a tensor, or a structure of tensors.
        max_size: the number of rows, as in TorchRL.
        device: the device of the tensors; ``"auto"`` reads it from them.
        ndim: leading dimensions that are rows, time first.

    Raises:
        WrongRows: the structure has no tensor, or tensors differ in length.
        WrongSize: their length is not ``max_size``.
    """

    def __init__(
        self,
        storage: Rows,
        max_size: int | None = None,
        *,
        device: str | torch.device = "cpu",
        ndim: int = 1,
    ) -> None:
        structure = structure_of(storage, whole_number("ndim", ndim, 1))
        columns = structure.flatten(storage)
        check_leading(structure, columns, ndim)
        grid = tuple(columns[0].shape[:ndim])
        device = columns[0].device if device == "auto" else device
        super().__init__(max(1, math.prod(grid)), device=device, ndim=ndim)
        if max_size not in (None, self.max_size):
            raise wrong_value(
                "max_size", f"{self.max_size}, the rows of the storage", max_size, kind=WrongSize
            )
        flat = [as_bits(column).flatten(0, ndim - 1) for column in columns]  # views, not copies
        schema = RowSchema(structure, grid, row_types_of(columns, ndim))
        self._use_rows(RowColumns(schema, flat))
        self.counters.num_rows = math.prod(grid)


@accepts_keywords
class LazyTensorStorage(TensorStorage):
    """A storage of tensors in memory, allocated when the first rows are written.

    Later rows must have the keys, shapes and dtypes of the first ones. Rows may also have text and
    other values, one per row.

    With ``ndim`` above 1, data have the shape ``[environments..., time]`` and are stored time
    first. ``max_size`` counts the rows of all environments and is rounded up to a whole step, as
    in TorchRL.

    Args:
        max_size: the largest number of rows.
        device: the device of the tensors; ``"auto"`` is the device of the first rows.
        ndim: leading dimensions of the data that are rows.

    Raises:
        UsageError: a size is not a whole number, or is below 1.
    """

    def __init__(self, max_size: int, *, device: str | torch.device = "cpu", ndim: int = 1) -> None:
        TensorRows.__init__(self, max_size, device=device, ndim=ndim)


@accepts_keywords
class LazyMemmapStorage(LazyTensorStorage):
    """A storage of tensors in memory-mapped files, created when the first rows are written.

    Its buffer shares the rows with every process to which it is passed, by fork or by pickle; see
    ``ReplayBuffer.share``. Text and other values stay in memory; rows with such values cannot be
    shared.

    Args:
        max_size: the largest number of rows.
        scratch_dir: the folder of the files; by default a temporary one, deleted with the storage.
        device: the CPU, or ``"auto"``, which is the same.
        ndim: see ``LazyTensorStorage``.
        existsok: overwrite existing files in ``scratch_dir``, which are rejected otherwise.
        auto_cleanup: for compatibility; must be None, or agree with ``scratch_dir``: True without
            one.

    Raises:
        NotWritable: ``scratch_dir`` is not empty.
        Unsupported: ``device`` is not the CPU, or ``auto_cleanup`` contradicts ``scratch_dir``.
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
            raise wrong_value(
                "auto_cleanup",
                f"{scratch_dir is None}, because only a temporary folder is deleted",
                auto_cleanup,
                kind=Unsupported,
            )
        if self.device.type != "cpu":
            raise wrong_value(
                "device",
                "cpu for mapped files",
                str(self.device),
                "Pass a device to the buffer, which moves batches.",
                kind=Unsupported,
            )
        self.existsok = existsok
        self.files: ColumnFiles | None = None  # created by the first write
        self.is_copy = False  # a copy is in memory: the files belong to the other storage
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
        """Whether a buffer shares these rows with the processes to which it is passed."""
        return self._rows is None or not self._rows.schema.has_values

    def write(self, rows: slice | RowNumbers, columns: list[LeafColumn]) -> None:
        """Write columns ``[n, ...]`` to rows; see ``TensorRows.write``."""
        self._check_no_gap(rows)
        if self.files is not None:
            self.files.reserve(rows)
        self._stored().write(rows, columns)
        self._count(rows)

    def after_fork(self) -> None:
        """Drop rows with values, which a forked process cannot share."""
        self._rows, self.counters = None, Counters()
        self.no_rows = str(values_cannot_be_shared())

    def _allocate(self, schema: RowSchema) -> RowColumns:
        if self.is_copy:
            return super()._allocate(schema)
        if not self.existsok:
            check_empty(self.scratch_dir)
        self.files = ColumnFiles.create(self.scratch_dir, schema)
        return new_columns(schema, self.device, self.files.columns())

    def __getstate__(self) -> StateDict:
        # The files belong to this storage: the rows of a copy are in memory.
        return super().__getstate__() | {"files": None, "is_copy": True}


def values_cannot_be_shared() -> Unsupported:
    """Return the error of text and other values in rows that processes share."""
    return Unsupported(
        "Processes cannot share rows with text or other values that are not tensors.",
        advice="Leave them out of the rows, or write numbers that stand for them.",
    )
