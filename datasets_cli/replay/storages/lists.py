"""Storages of rows of any kind, in a list."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from tensordict import is_non_tensor, is_tensor_collection

from datasets_cli.errors import (
    EmptyBuffer,
    UnknownKey,
    UsageError,
    WrongRows,
    WrongSize,
    wrong_value,
)
from datasets_cli.replay.arguments import Rows, StateDict, whole_number
from datasets_cli.replay.storages.collate import lazy_stack, map_rows, stack_rows
from datasets_cli.replay.storages.columns import inner_shape
from datasets_cli.replay.storages.description import TensorBytes, describe, restore
from datasets_cli.replay.storages.protocol import NO_ROWS, WritableStorage
from datasets_cli.schema.bits import stack_tensors
from datasets_cli.schema.columns import Key, show_key, wrong_column
from datasets_cli.schema.shapes import RowNumbers
from datasets_cli.torchrl.keywords import accepts_keywords

NO_LIMIT = 2**63 - 1


@accepts_keywords
class ListStorage(WritableStorage):
    """A list of rows of any kind, one object each.

    Args:
        max_size: the largest number of rows; unlimited by default.

    Raises:
        UsageError: ``max_size`` is not a whole number, or is below 1.
    """

    is_tensordict = False
    takes_lists = True

    def __init__(self, max_size: int | None = None) -> None:
        self.max_size = NO_LIMIT if max_size is None else whole_number("max_size", max_size, 1)
        self.cursor = 0
        self._items: list[Rows] = []

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        limit = "none" if self.max_size == NO_LIMIT else self.max_size
        return f"{type(self).__name__}(shape=[{len(self)}], device=cpu, max_size={limit})"

    def flatten(self, data: Rows) -> list[list[Rows]]:
        """Return the rows of data: the items of a list, or the rows of a tensor or TensorDict.

        Raises:
            WrongRows: data are not rows; a tuple is one structure of columns.
        """
        if isinstance(data, tuple):
            raise WrongRows(
                f"A list storage expects a list of rows, not a tuple of {len(data)}: a tuple is "
                "one structure of columns.",
                argument="data",
                expected="list",
                found="tuple",
                advice="Pass [*data] if its items are rows, and [*zip(*data)] if they are columns.",
            )
        if is_tensor_collection(data) or isinstance(data, torch.Tensor):
            return [list(data.unbind(0))]
        if not isinstance(data, Sequence) or isinstance(data, str):
            raise wrong_value("data", "list", type(data), kind=WrongRows)
        return [list(data)]

    def __getstate__(self) -> StateDict:
        # Rows are often views of one tensor; a pickle would contain all of it once a row.
        try:
            description, columns = describe(self._items, only_exact=True)
        except UsageError:  # pickle handles objects of other kinds
            return vars(self) | {"_items": map_rows(_unshared, self._items)}
        packed = [TensorBytes.of(column.clone()) for column in columns]
        return vars(self) | {"_items": (description, packed)}

    def __setstate__(self, state: StateDict) -> None:
        vars(self).update(state)
        if isinstance(items := state["_items"], tuple):
            description, packed = items
            self._items = restore(description, [column.restored() for column in packed])

    def write(self, rows: slice | torch.Tensor, columns: list[list[Rows]]) -> None:
        """Write items to rows."""
        numbers = range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist()
        for number, item in zip(numbers, columns[0], strict=True):
            if number == 0:
                self.row_batch_size = inner_shape(item, 0)
            if number == len(self._items):
                self._items.append(self._pack(item))
            else:
                self._items[number] = self._pack(item)
        if isinstance(rows, slice):
            self.cursor = rows.stop % self.capacity
        self.revision += 1

    def _pack(self, item: Rows) -> Rows:
        """Return a row in the form in which it is stored."""
        return item

    def _rows(self, numbers: Iterable[int]) -> list[Rows]:
        """Return rows from their stored form."""
        return [self._items[number] for number in numbers]

    def clear(self) -> None:
        """Remove all rows."""
        self._items.clear()
        self.cursor = 0
        self.revision += 1

    def gather(self, index: RowNumbers) -> list[Rows]:
        """Return the objects of rows, not copies."""
        if not self._items:
            raise EmptyBuffer(NO_ROWS)
        return self._rows(index.tolist())

    def collate(self, rows: list[Rows]) -> Rows:
        """Return rows as one batch; see ``stack_rows``.

        TensorDicts with different keys, shapes or batch sizes become a lazy stack of copies.
        """
        try:
            return stack_rows(rows)
        except UsageError:
            if not all(map(is_tensor_collection, rows)):
                raise
            return lazy_stack(rows, 0)

    def item(self, row: int) -> Rows:
        """Return the object of one row, not a copy."""
        return self._rows([row])[0]

    def contents(self) -> list[Rows]:
        """Return all rows in a list."""
        return self._rows(range(len(self)))

    def one_row(self, data: Rows) -> Rows:
        """Return one row as a batch of one."""
        return data.unsqueeze(0) if is_tensor_collection(data) else [data]

    def entry(self, key: Key, rows: RowNumbers) -> torch.Tensor | None:
        """Return an entry of rows, or None if some row does not have a tensor of this key."""
        items = self._rows(rows.tolist())
        if not self._has(items, key):
            return None
        entries = [item.get(key) for item in items]
        return None if any(map(is_non_tensor, entries)) else stack_tensors(entries)

    @staticmethod
    def _has(items: list[Rows], key: Key) -> bool:
        """Return whether all items are TensorDicts or tensorclasses with an entry."""
        return all(is_tensor_collection(item) and key in item.keys(True) for item in items)

    def has(self, key: Key) -> bool:
        """Return whether the first row has an entry."""
        return bool(self._items) and self._has(self._rows([0]), key)

    def scalar_column(self, key: Key) -> torch.Tensor:
        """Return an entry of one number per row, ``[rows, 1]``."""
        if not self._items:
            raise EmptyBuffer(NO_ROWS)
        items = self.contents()
        if not self._has(items, key):
            raise UnknownKey(
                f"Some rows are not TensorDicts with {show_key(key)}, which separates "
                "trajectories.",
                key=key,
                advice="Pass another key as trajectory_key or end_key.",
            )
        numbers = [item.get(key) for item in items]
        if any(number.numel() != 1 for number in numbers):
            raise wrong_column(key, "one number per row", "several numbers")
        return stack_tensors([number.reshape(1) for number in numbers])


def _unshared(part: Rows) -> Rows:
    """Return a copy of tensors in separate memory; other values unchanged."""
    is_copied = is_tensor_collection(part) or isinstance(part, torch.Tensor)
    return part.clone() if is_copied and not part.requires_grad else part


@accepts_keywords
class LazyStackStorage(ListStorage):
    """A list of TensorDicts; a batch is a lazy stack of copies.

    Rows may differ in keys, shapes and batch sizes. An entry is stacked when it is read. If its
    shape differs between rows, call ``unbind`` on the batch, or
    ``get(key, as_padded_tensor=True)``.

    Args:
        max_size: the largest number of rows; unlimited by default.
        stack_dim: the dimension of the batch that counts rows.

    Raises:
        UsageError: a number is not a whole number.
    """

    def __init__(self, max_size: int | None = None, *, stack_dim: int = 0) -> None:
        super().__init__(max_size)
        self.stack_dim = whole_number("stack_dim", stack_dim)

    def collate(self, rows: list[Rows]) -> Rows:
        """Return TensorDicts as a lazy stack; other rows as ``stack_rows``.

        Raises:
            WrongRows: TensorDicts have different numbers of batch dimensions.
            WrongSize: ``stack_dim`` is not one of the dimensions.
        """
        if not all(map(is_tensor_collection, rows)):
            return stack_rows(rows)
        ndim = rows[0].ndim + 1
        if not -ndim <= self.stack_dim < ndim:
            raise WrongSize(
                f"Rows [{', '.join(map(str, rows[0].batch_size))}] cannot be stacked along "
                f"dimension {self.stack_dim}: expected {-ndim} to {ndim - 1}.",
                argument="stack_dim",
                expected=f"{-ndim} to {ndim - 1}",
                found=self.stack_dim,
            )
        return lazy_stack(rows, self.stack_dim % ndim)
