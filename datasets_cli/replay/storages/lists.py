"""A storage of anything: rows in a list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from tensordict import (
    LazyStackedTensorDict,
    NonTensorData,
    NonTensorStack,
    TensorDict,
    TensorDictBase,
    is_tensorclass,
)

from datasets_cli.errors import EmptyBuffer, UsageError
from datasets_cli.replay.arguments import Rows, whole_number
from datasets_cli.replay.storages.batch import make_batch
from datasets_cli.replay.storages.protocol import NO_ROWS, WritableStorage
from datasets_cli.replay.torchrl_words import LIST, takes
from datasets_cli.store.schema.bits import stack_tensors
from datasets_cli.store.schema.columns import Key, show_key

NO_LIMIT = 2**63 - 1

Name = TypeVar("Name")


@takes(**LIST)
class ListStorage(WritableStorage):
    """Rows of any kind, one object each.

    Args:
        max_size: most rows; without a limit by default.

    Raises:
        UsageError: ``max_size`` is no whole number from 1 on.
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
        return f"ListStorage(shape=[{len(self)}], device=cpu, max_size={limit})"

    def flatten(self, data: Rows) -> list[list[Rows]]:
        """Return the rows of data: the items of a list, or what a first dimension holds.

        Raises:
            UsageError: data have no rows.
        """
        if isinstance(data, TensorDictBase | torch.Tensor):
            return [list(data.unbind(0))]
        if not isinstance(data, Sequence) or isinstance(data, str):
            raise UsageError(f"A list storage takes a list of rows, not {type(data).__name__}.")
        return [list(data)]

    def write(self, rows: slice | torch.Tensor, columns: list[list[Rows]]) -> None:
        """Put items into rows."""
        numbers = range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist()
        for number, item in zip(numbers, columns[0], strict=True):
            if number == len(self._items):
                self._items.append(item)
            else:
                self._items[number] = item
        first = self._items[0] if self._items else None
        self.row_batch_size = tuple(first.batch_size) if isinstance(first, TensorDictBase) else ()
        if isinstance(rows, slice):
            self.cursor = rows.stop % self.capacity
        self.revision += 1

    def clear(self) -> None:
        """Forget every row."""
        self._items.clear()
        self.cursor = 0
        self.revision += 1

    def gather(self, index: torch.Tensor) -> list[Rows]:
        """Return the items of the rows ``index`` int64 ``[B]``: not copies."""
        if not self._items:
            raise EmptyBuffer(NO_ROWS)
        return [self._items[number] for number in index.tolist()]

    def collate(self, rows: list[Rows]) -> Rows:
        """Return rows as one batch; see ``stack_rows``."""
        return stack_rows(rows)

    def item(self, row: int) -> Rows:
        """Return one row: the object that was written."""
        return self._items[row]

    def contents(self) -> list[Rows]:
        """Return all rows in a list, which ``flatten`` takes."""
        return list(self._items)

    def one_row(self, data: Rows) -> Rows:
        """Return one row as ``flatten`` takes several."""
        return data.unsqueeze(0) if isinstance(data, TensorDictBase) else [data]

    def entry(self, key: Key, rows: torch.Tensor) -> torch.Tensor | None:
        """Return an entry of some rows, or None where they have none."""
        items = [self._items[number] for number in rows.tolist()]
        if not self._has(items, key):
            return None
        return stack_tensors([item[key] for item in items])

    @staticmethod
    def _has(items: list[Rows], key: Key) -> bool:
        """Tell whether items are TensorDicts that all have an entry."""
        return all(isinstance(item, TensorDictBase) and key in item.keys(True) for item in items)

    def has(self, key: Key) -> bool:
        """Tell whether the first row has an entry."""
        return bool(self._items) and self._has(self._items[:1], key)

    def scalar_column(self, key: Key) -> torch.Tensor:
        """Return what every row, a TensorDict, has under a key, one number a row ``[rows, 1]``.

        Raises:
            KeyError: a row has no such entry.
            UsageError: it is more than a number.
        """
        if not self._items:
            raise EmptyBuffer(NO_ROWS)
        if not self._has(self._items, key):
            raise KeyError(
                f"Not every row has {show_key(key)}. Trajectories are told apart by that entry of "
                "rows that are TensorDicts: name another with trajectory_key or end_key."
            )
        numbers = [item[key] for item in self._items]
        if any(number.numel() != 1 for number in numbers):
            raise UsageError(f"{show_key(key)} is not one number a row; trajectories need one.")
        return stack_tensors([number.reshape(1) for number in numbers])


def as_one(items: list[Rows]) -> Rows:
    """Return rows that are TensorDicts or tensorclasses as one TensorDict; others as they are.

    Unlike in a batch, rows that differ make a lazy stack, and equal values that are no tensors stay
    one value a row.

    Raises:
        UsageError: rows have different batch sizes.
    """
    if not items or not all(isinstance(i, TensorDictBase) or is_tensorclass(i) for i in items):
        return items
    rows = [item._tensordict if is_tensorclass(item) else item for item in items]
    if len(shapes := {tuple(row.batch_size) for row in rows}) > 1:
        raise UsageError(
            f"Rows have the batch sizes {', '.join(map(str, sorted(shapes)))}, so that they do not "
            "make one TensorDict. Give them the same."
        )
    joined = _joined(rows)
    return LazyStackedTensorDict(*rows) if joined is None else joined


def _joined(rows: list[Rows]) -> TensorDict | None:
    """Return TensorDicts of the same form as one; None for others."""
    if any(type(row) is not TensorDict for row in rows):
        return None
    if len({(row.batch_size, tuple(sorted(row.keys()))) for row in rows}) > 1:
        return None
    entries: dict[str, Rows] = {}
    for name in rows[0].keys():  # noqa: SIM118
        column = [row._get_str(name, None) for row in rows]
        entry = _joined_entry(column)
        if entry is None:
            return None
        entries[name] = entry
    return TensorDict(entries, (len(rows), *rows[0].batch_size))


def _joined_entry(column: list[Rows]) -> Rows | None:
    if all(isinstance(item, torch.Tensor) for item in column):
        forms = {(item.dtype, item.shape, item.device) for item in column}
        return torch.stack(column) if len(forms) == 1 else None
    if all(isinstance(item, NonTensorData | NonTensorStack) for item in column):
        return NonTensorStack(*column)
    return _joined(column)


def stack_rows(items: list[Rows]) -> Rows:
    """Return rows of tensors, or of tensors in tuples and dicts, as one batch.

    Rows that are TensorDicts keep the shape they have by themselves, and what is no tensor.

    Raises:
        UsageError: they hold anything else, or differ in their keys or shapes.
    """
    for kind, stack in _STACKS.items():
        if all(isinstance(item, kind) for item in items):
            return stack(items)
    kinds = ", ".join(sorted({type(item).__name__ for item in items}))
    raise UsageError(
        f"Rows of {kinds} do not make a batch by themselves. Give the buffer a collate_fn that "
        "takes a list of them."
    )


def _stack_tensordicts(items: list[TensorDictBase]) -> TensorDictBase:
    shape = items[0].batch_size
    if any(type(item) is not TensorDict or item.batch_size != shape for item in items):
        return _stack_tensors(items)
    trees = [dict(item.items()) for item in items]  # four times as fast as stacking TensorDicts
    return make_batch(
        {name: _stack_entries(column) for name, column in _columns(trees).items()},
        torch.Size((len(items), *shape)),
    )


def _stack_entries(column: list[Rows]) -> Rows:
    plain = all(type(item) is TensorDict for item in column)
    return _stack_tensordicts(column) if plain else _stack_tensors(column)


def _stack_tensors(items: list[Rows]) -> Rows:
    try:
        return torch.stack(items)
    except RuntimeError as error:
        # torch has types of which it stacks no empty tensors, or does not on every device.
        if isinstance(error, NotImplementedError) and type(items[0]) is torch.Tensor:
            return stack_tensors(items)
        raise UsageError(f"Rows differ, so that they do not make a batch: {error}") from error


def _stack_dicts(items: list[dict[str, Rows]]) -> dict[str, Rows]:
    return {name: stack_rows(column) for name, column in _columns(items).items()}


def _stack_tuples(items: list[tuple[Rows, ...]]) -> tuple[Rows, ...]:
    columns = _columns([dict(enumerate(item)) for item in items])
    return tuple(stack_rows(column) for column in columns.values())


def _columns(trees: list[dict[Name, Rows]]) -> dict[Name, list[Rows]]:
    """Return what rows have under each of their keys, which must be the same."""
    names = trees[0].keys()
    for tree in trees:
        if odd := names ^ tree.keys():
            raise UsageError(f"Rows differ in {odd}, so that they do not make a batch.")
    return {name: [tree[name] for tree in trees] for name in names}


_STACKS: dict[type | tuple[type, ...], Callable[[list[Rows]], Rows]] = {
    TensorDictBase: _stack_tensordicts,
    torch.Tensor: _stack_tensors,
    tuple: _stack_tuples,
    dict: _stack_dicts,
    (bool, int, float): torch.tensor,
}
