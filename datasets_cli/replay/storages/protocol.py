"""What a storage is to the rest of the library: one that is read, and one that is written too."""

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
from datasets_cli.schema.shapes import check_run
from datasets_cli.schema.tree import Tree
from datasets_cli.store.layouts.protocol import GatheredRows
from datasets_cli.torchrl.keywords import accepts_keywords

NO_ROWS = "Cannot sample from an empty storage. Write rows with extend() first."


class Generations:
    """How often each row was written after its first time; -1 for one that never was."""

    def __init__(self) -> None:
        self.counts = torch.full((1,), -1)  # int64, of the first rows

    def count(self, rows: torch.Tensor) -> None:
        """Count rows int64 ``[n]`` that were written, each as often as it is there."""
        num_rows = int(rows.max()) + 1 if len(rows) else 0
        if num_rows > len(self.counts):
            counts = torch.full((max(num_rows, 2 * len(self.counts)),), -1)
            counts[: len(self.counts)] = self.counts
            self.counts = counts
        self.counts.index_add_(0, rows, torch.ones_like(rows))

    def advance(self) -> None:
        """Count all rows as written: what they had is gone."""
        self.counts[self.counts >= 0] += 1

    def of(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the generations of rows, int64 in their shape; -1 where there is no such row."""
        number = rows.cpu()
        is_known = (number >= 0) & (number < len(self.counts))
        return torch.where(is_known, self.counts[number * is_known], -1).to(rows.device)


@dataclass
class Position:
    """Where the next row is written, and how many were."""

    cursor: int = 0
    write_count: int = 0

    def advance(self, cursor: int, count: int) -> None:
        """Count rows that a writer wrote, up to a cursor."""
        self.cursor = cursor
        self.write_count += count

    def set(self, cursor: int, write_count: int) -> None:
        """Continue at another row."""
        self.cursor, self.write_count = cursor, write_count


def _reject_checkpointer(storage: object, checkpointer: object) -> None:
    if checkpointer is not None:
        raise Unsupported(
            f"{type(storage).__name__} has no checkpointer; found {checkpointer!r}.",
            argument="checkpointer",
            found=checkpointer,
            advice="dumps() and loads() of its buffer write and read one kind of files.",
        )


CHECKPOINTER: Any = property(lambda storage: None, _reject_checkpointer)
"""TorchRL's attribute of storages, which is always None."""


@accepts_keywords
class Storage(Protocol):
    """Rows that can be read.

    A storage of your own derives from this class and writes the four methods without a default; or
    it derives from nothing and has all of them. Rows are numbered from 0 on. With several
    dimensions the rows of one time step stand side by side: row ``t * width + w``.

    Attributes:
        ndim: leading dimensions of what is written that are rows; time is the last of them.
        row_batch_size: batch size of each row, where rows are TensorDicts with one.
        is_tensordict: whether rows are TensorDicts; ``gather`` then returns their nested dict.
        is_writable: whether this is a ``WritableStorage``.
        takes_lists: whether that takes a list of rows of any kind, and not only rows as one batch.
        revision: a number that changes whenever rows are written or cleared.
        device: the device of batches that are TensorDicts; None where it is not known.
        device_options: where batches go.
        index_device: where ``gather`` is best given row numbers; None for the CPU.
        row_bytes: bytes of a row that ``read`` returns, at most; 0 where it returns None.
        no_rows: what is said where there are no rows to draw.
        generations: how often rows were written; None where no writer tracks it.
        checkpointer: None; another one is refused.
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
        """Take what TorchRL's class takes."""
        return

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of rows."""

    @abstractmethod
    def gather(self, index: torch.Tensor) -> Rows:
        """Return copies ``[B, ...]`` of the rows ``index`` int64 ``[B]``.

        A nested dict of tensors where rows are TensorDicts; else what ``collate`` takes.
        """

    @abstractmethod
    def has(self, key: Key) -> bool:
        """Return whether rows have an entry."""

    @abstractmethod
    def scalar_column(self, key: Key) -> torch.Tensor:
        """Return an entry with one number a row, ``[T, W]``: T steps of W environments.

        Raises:
            KeyError: there is no such entry.
            UsageError: it has more than one number a row.
        """

    def read(self, index: torch.Tensor) -> GatheredRows | None:
        """Return copies of the rows ``index`` int64 ``[B]`` in numpy's memory.

        None where the storage has no faster way to arrays than by the tensors of ``gather``.
        """
        return None

    @property
    def grid(self) -> tuple[int, ...]:
        """The rows as a grid: steps, then the environments side by side."""
        return (len(self),)

    @property
    def width(self) -> int:
        """Rows of one time step."""
        return math.prod(self.grid[1:])

    def reference(self) -> StateDict | None:
        """Return id, content and number of rows of the dataset that a state names for the rows.

        None where they are the storage's own, so that a state has copies of them.
        """
        return None

    def collate(self, rows: Rows) -> Rows:
        """Return what ``gather`` returned as one batch, where rows are not TensorDicts."""
        return rows

    def as_batch(self, tree: Tree, shape: torch.Size) -> Rows:
        """Return what ``gather`` returned as one batch ``[*shape]``, where rows are TensorDicts.

        Args:
            tree: the nested dict of leaves; others may have been put into it.
            shape: that of the rows' numbers.
        """
        return make_batch(tree, shape + self.row_batch_size, self.device)

    def get(self, index: torch.Tensor) -> Rows:
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
            KeyError: there is no such entry.
        """
        return self.run(0, len(self))[key]

    def entry(self, key: Key, rows: torch.Tensor) -> torch.Tensor | None:
        """Return an entry of the rows int64 ``[B]``, or None where there is no such entry."""
        return self.get(rows)[key] if self.has(key) else None

    def trajectories(self, keys: TrajectoryKeys) -> TrajectoryIndex:
        """Return the trajectories, as the storage knows them or as columns tell.

        Raises:
            UsageError: no column tells them apart.
        """
        return find_trajectories(self, keys, 0)


class WritableStorage(Storage, Protocol):
    """Rows that can also be written.

    Attributes:
        max_size: the most rows that were asked for.
        cursor: the time step that is written next.
        seams: steps that end a trajectory whatever their rows say; None where none are tracked.
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

        What may be refused is refused here, before anything is written. Each column can be sliced,
        and indexed by a tensor or be a list.

        Raises:
            UsageError: the data differ from the stored rows in keys, shapes or dtypes.
        """

    @abstractmethod
    def write(self, rows: slice | torch.Tensor, columns: list[Rows]) -> None:
        """Put columns ``[n, ...]`` into the n rows; raises ``revision``, moves ``cursor``."""

    @abstractmethod
    def clear(self) -> None:
        """Forget every row."""

    def contents(self) -> Rows:
        """Return copies of all rows, as ``flatten`` takes them."""
        return self.run(0, len(self))

    def one_row(self, data: Rows) -> Rows:
        """Return one row, or one step of all environments, as ``flatten`` takes several.

        Raises:
            UsageError: the row has values that are not tensors.
        """
        raise Unsupported(
            f"{type(self).__name__} takes several rows at once.", advice="Use extend()."
        )

    def trajectories(self, keys: TrajectoryKeys) -> TrajectoryIndex:
        """Return the trajectories; in a full ring they continue at row 0, up to the cursor."""
        cursor = self.cursor if len(self) == self.capacity else 0
        seams = () if self.seams is None else self.seams.before(len(self) // self.width)
        return find_trajectories(self, keys, cursor, seams)


def is_writable(storage: Storage) -> TypeGuard[WritableStorage]:
    """Return whether a storage takes rows."""
    return storage.is_writable
