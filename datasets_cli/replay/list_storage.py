"""A storage of anything: rows in a list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from tensordict import TensorDictBase

from datasets_cli.errors import UsageError
from datasets_cli.replay.epoch import NO_ROWS
from datasets_cli.replay.runs import Runs, runs_of
from datasets_cli.store.columns import Key
from datasets_cli.store.placement import ON_DISK

NO_LIMIT = 2**63 - 1


class ListStorage:
    """Rows of any kind, one object each.

    Args:
        max_size: most rows; without a limit by default.
    """

    ndim = 1
    inner: tuple[int, ...] = ()
    is_tensordict = False

    def __init__(self, max_size: int | None = None) -> None:
        self.max_size = NO_LIMIT if max_size is None else max_size
        self.capacity = self.max_size
        self.placement = ON_DISK
        self.revision = 0
        self.cursor = 0
        self._items: list[Any] = []

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"ListStorage({len(self)} of {self.max_size} rows)"

    def apart(self, data: Any) -> list[list[Any]]:
        """Return the rows of data: the items of a list, or what a first dimension holds.

        Raises:
            UsageError: data have no rows.
        """
        if isinstance(data, TensorDictBase | torch.Tensor):
            return [list(data.unbind(0))]
        if not isinstance(data, Sequence) or isinstance(data, str):
            raise UsageError(f"A list storage takes a list of rows, not {type(data).__name__}.")
        return [list(data)]

    def write(self, rows: slice | torch.Tensor, columns: list[list[Any]]) -> None:
        """Put items into rows."""
        numbers = range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist()
        for number, item in zip(numbers, columns[0], strict=True):
            if number == len(self._items):
                self._items.append(item)
            else:
                self._items[number] = item
        if isinstance(rows, slice):
            self.cursor = rows.stop % self.capacity
        self.revision += 1

    def empty(self) -> None:
        """Forget every row."""
        self._items.clear()
        self.cursor = 0
        self.revision += 1

    def tree(self, index: torch.Tensor) -> list[Any]:
        """Return the items of the rows ``index`` int64 ``[B]``: not copies."""
        if not self._items:
            raise UsageError(NO_ROWS)
        return [self._items[number] for number in index.tolist()]

    def get(self, index: torch.Tensor) -> Any:
        """Return the rows ``index`` int64 ``[B]`` as one batch."""
        return stack_rows(self.tree(index))

    def run(self, start: int, stop: int) -> Any:
        """Return the rows ``start`` to ``stop - 1`` as one batch."""
        return self.get(torch.arange(start, stop))

    def column(self, key: Key) -> Any:
        """Return an entry of all rows."""
        return self.run(0, len(self))[key]

    def _leaf(self, key: Key) -> torch.Tensor:
        """Return what every item, a TensorDict, has under a key, stacked ``[rows, ...]``."""
        return torch.stack([item[key] for item in self._items])

    def entry(self, key: Key, rows: torch.Tensor) -> torch.Tensor | None:
        """Return an entry of some rows, or None where they have none."""
        items = [self._items[number] for number in rows.tolist()]
        if not all(isinstance(item, TensorDictBase) and key in item.keys(True) for item in items):
            return None
        return torch.stack([item[key] for item in items])

    def runs(self, trajectory_key: Key | None = None, end_key: Key | None = None) -> Runs:
        """Return the trajectories; see ``LazyTensorStorage.runs``."""
        if trajectory_key is not None:
            number = self._leaf(trajectory_key).reshape(-1)
            is_end = number != number.roll(-1)
        else:
            is_end = self._leaf(end_key or ("next", "done")).reshape(-1).bool()
        full = len(self) == self.capacity
        return runs_of(is_end.unsqueeze(1), self.cursor if full else 0)


def stack_rows(items: list[Any]) -> Any:
    """Return rows of tensors, or of tensors in tuples and dicts, as one batch.

    Raises:
        UsageError: they hold anything else.
    """
    for kind, stack in _STACKS.items():
        if all(isinstance(item, kind) for item in items):
            return stack(items)
    kinds = ", ".join(sorted({type(item).__name__ for item in items}))
    raise UsageError(
        f"Rows of {kinds} do not make a batch by themselves. Give the buffer a collate_fn that "
        "takes a list of them."
    )


def _stack_dicts(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: stack_rows([item[name] for item in items]) for name in items[0]}


def _stack_tuples(items: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(stack_rows(list(column)) for column in zip(*items, strict=True))


_STACKS: dict[Any, Callable[[list[Any]], Any]] = {
    TensorDictBase: torch.stack,
    torch.Tensor: torch.stack,
    tuple: _stack_tuples,
    dict: _stack_dicts,
    (bool, int, float): torch.tensor,
}
