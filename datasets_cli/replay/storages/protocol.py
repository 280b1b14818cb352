"""The protocols of storages: ``Storage``, whose rows are read, and ``WritableStorage``."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeGuard

import torch

from datasets_cli.errors import Unsupported
from datasets_cli.replay.arguments import Rows, StateDict
from datasets_cli.replay.storages.collate import make_batch, map_rows
from datasets_cli.replay.trajectories.bounds import (
    TrajectoryIndex,
    TrajectoryKeys,
    find_trajectories,
)
from datasets_cli.replay.trajectories.seams import Seams
from datasets_cli.schema.columns import Key
from datasets_cli.schema.mapping import ON_DISK, DeviceOptions
from datasets_cli.schema.shapes import RowNumbers, check_run
from datasets_cli.schema.tree import Tree
from datasets_cli.store.layouts.protocol import GatheredRows
from datasets_cli.torchrl.keywords import accepts_keywords

NO_ROWS = "Cannot sample from an empty storage. Write rows with extend() first."


class Generations:
    """Counts how often each row was rewritten: 0 after the first write, -1 before it."""

    def __init__(self) -> None:
        self.counts = torch.full((1,), -1)  # int64, for rows up to the highest one written

    def count(self, rows: RowNumbers) -> None:
        """Count written rows; a repeated row counts several times."""
        num_rows = int(rows.max()) + 1 if len(rows) else 0
        if num_rows > len(self.counts):
            counts = torch.full((max(num_rows, 2 * len(self.counts)),), -1)
            counts[: len(self.counts)] = self.counts
            self.counts = counts
        self.counts.index_add_(0, rows, torch.ones_like(rows))

    def advance(self) -> None:
        """Count every known row once, because the storage was cleared."""
        self.counts[self.counts >= 0] += 1

    def of(self, rows: RowNumbers) -> torch.Tensor:
        """Return the counts of rows, int64 in their shape; -1 for rows that were never written."""
        number = rows.cpu()
        is_known = (number >= 0) & (number < len(self.counts))
        return torch.where(is_known, self.counts[number * is_known], -1).to(rows.device)


@dataclass
class Position:
    """The next row to write, and the number of rows written so far."""

    cursor: int = 0
    write_count: int = 0

    def advance(self, cursor: int, count: int) -> None:
        """Move to ``cursor`` after ``count`` rows were written."""
        self.cursor = cursor
        self.write_count += count

    def set(self, cursor: int, write_count: int) -> None:
        """Continue at row ``cursor``."""
        self.cursor, self.write_count = cursor, write_count


def _reject_checkpointer(storage: object, checkpointer: object) -> None:
    if checkpointer is not None:
        raise Unsupported(
            f"{type(storage).__name__} does not support a checkpointer; found {checkpointer!r}.",
            argument="checkpointer",
            found=checkpointer,
            advice="Save and restore the buffer with dumps() and loads().",
        )


CHECKPOINTER: Any = property(lambda storage: None, _reject_checkpointer)
"""TorchRL's attribute of storages, which is always None."""


@accepts_keywords
class Storage(Protocol):
    """Holds rows that can be read.

    A custom storage derives from this class and implements the four methods without a default, or
    implements all members without deriving. Rows are numbered from 0. With several dimensions the
    rows of one time step are adjacent: row ``t * width + w``.

    Attributes:
        ndim: leading dimensions of written data that are rows; time is the last of them.
        row_batch_size: the batch size of each row, if rows are TensorDicts with one.
        is_tensordict: whether rows are TensorDicts; ``gather`` then returns their nested dict.
        is_writable: whether this is a ``WritableStorage``.
        takes_lists: whether a list of rows of any kind can be written, not only one batch of rows.
        revision: a number that changes whenever rows are written or cleared.
        device: the device of batches that are TensorDicts; None if unknown.
        device_options: the device and memory of batches.
        index_device: the device on which ``gather`` reads row numbers; None for the CPU.
        row_bytes: the most bytes of a row that ``read`` returns; 0 if it returns None.
        no_rows: the message of the error if there are no rows to draw.
        generations: counts how often rows were rewritten; None if no writer tracks it.
        checkpointer: always None.
    """

    ndim: int = 1
    row_batch_size: tuple[int, ...] = ()
    is_tensordict: bool = True
    is_writable: ClassVar[bool] = False
    takes_lists: ClassVar[bool] = False
    revision: int = 0
    device: torch.device | None = None
    device_options: DeviceOptions = ON_DISK
    index_device: torch.device | None = None
    row_bytes: int = 0
    no_rows: str = NO_ROWS
    generations: Generations | None = None
    checkpointer: object = CHECKPOINTER

    def __init__(self) -> None:
        """Accept the arguments of TorchRL's class."""
        return

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of rows."""

    @abstractmethod
    def gather(self, index: RowNumbers) -> Rows:
        """Return copies ``[B, ...]`` of the rows ``index`` int64 ``[B]``.

        They are a nested dict of tensors if rows are TensorDicts, else the argument of ``collate``.
        """

    @abstractmethod
    def has(self, key: Key) -> bool:
        """Return whether rows have an entry."""

    @abstractmethod
    def scalar_column(self, key: Key) -> torch.Tensor:
        """Return an entry with one number per row, ``[T, W]``: T steps of W environments.

        Raises:
            UnknownKey: the rows do not have the entry.
            WrongRows: the entry has more than one number per row.
        """

    def read(self, index: RowNumbers) -> GatheredRows | None:
        """Return copies of the rows ``index`` int64 ``[B]`` in numpy's memory.

        None if ``gather`` is the fastest way to read them.
        """
        return None

    @property
    def grid(self) -> tuple[int, ...]:
        """The shape of the rows: steps, then the environments side by side."""
        return (len(self),)

    @property
    def width(self) -> int:
        """Rows of one time step."""
        return math.prod(self.grid[1:])

    def reference(self) -> StateDict | None:
        """Return the id, content and number of rows of the dataset, for a state.

        None if the rows are not a dataset; a state then has copies of them.
        """
        return None

    def collate(self, rows: Rows) -> Rows:
        """Return gathered rows as one batch, if rows are not TensorDicts."""
        return rows

    def as_batch(self, tree: Tree, shape: torch.Size) -> Rows:
        """Return gathered rows as one batch ``[*shape]``, if rows are TensorDicts.

        Args:
            tree: the nested dict of leaves; entries may have been added to it.
            shape: the shape of the row numbers.
        """
        return make_batch(tree, shape + self.row_batch_size, self.device)

    def get(self, index: RowNumbers) -> Rows:
        """Return copies of the rows ``index`` int64 ``[B]`` as one batch."""
        rows = self.gather(index)
        if not self.is_tensordict:
            return self.collate(rows)
        return self.as_batch(rows, index.shape)

    def item(self, row: int) -> Rows:
        """Return a copy of one row."""
        return map_rows(lambda part: part[0], self.get(torch.tensor([row])))

    def run(self, start: int, stop: int) -> Rows:
        """Return copies of the rows ``start`` to ``stop - 1`` as one batch."""
        check_run(start, stop, len(self))
        return self.get(torch.arange(start, stop))

    def column(self, key: Key) -> Rows:
        """Return a copy of one entry of all rows: a leaf ``[N, ...]``, or a group of leaves.

        Raises:
            KeyError: the rows do not have the entry.
        """
        return self.run(0, len(self))[key]

    def entry(self, key: Key, rows: RowNumbers) -> torch.Tensor | None:
        """Return copies of an entry of rows, or None if the entry does not exist."""
        return self.get(rows)[key] if self.has(key) else None

    def trajectories(self, keys: TrajectoryKeys) -> TrajectoryIndex:
        """Return the trajectories by the storage's own table, or by columns.

        Raises:
            UnknownKey: no column separates them.
        """
        return find_trajectories(self, keys, 0)


class WritableStorage(Storage, Protocol):
    """Holds rows that can also be written.

    Attributes:
        max_size: the largest number of rows.
        cursor: the next time step to write.
        seams: the steps at which trajectories end by a load; None if no writer tracks them.
    """

    is_writable: ClassVar[bool] = True
    max_size: int
    cursor: int
    seams: Seams | None = None

    @property
    def capacity(self) -> int:
        """Rows that fit: ``max_size``, rounded up to whole time steps."""
        return self.max_size

    @abstractmethod
    def flatten(self, data: Rows) -> list[Rows]:
        """Return the columns of data, each ``[n, ...]``, time first and environments flat.

        All checks are here, before anything is written. A column can be sliced, and is indexed by a
        tensor or is a list.

        Raises:
            WrongRows: keys, shapes or dtypes differ from those of the stored rows.
        """

    @abstractmethod
    def write(self, rows: slice | RowNumbers, columns: list[Rows]) -> None:
        """Write columns ``[n, ...]`` to n rows; increases ``revision`` and moves ``cursor``."""

    @abstractmethod
    def clear(self) -> None:
        """Remove all rows."""

    def contents(self) -> Rows:
        """Return copies of all rows in the layout of ``extend``."""
        return self.run(0, len(self))

    def one_row(self, data: Rows) -> Rows:
        """Return one row, or one step of all environments, as a batch of one.

        Raises:
            UsageError: the row has values that are not tensors.
        """
        raise Unsupported(f"{type(self).__name__} does not support add().", advice="Use extend().")

    def trajectories(self, keys: TrajectoryKeys) -> TrajectoryIndex:
        """Return the trajectories; in a full ring they continue from the last row to row 0."""
        cursor = self.cursor if len(self) == self.capacity else 0
        seams = () if self.seams is None else self.seams.before(len(self) // self.width)
        return find_trajectories(self, keys, cursor, seams)


def is_writable(storage: Storage) -> TypeGuard[WritableStorage]:
    """Return whether rows of a storage can be written."""
    return storage.is_writable
