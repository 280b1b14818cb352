"""The writer of the rows that rank highest."""

from __future__ import annotations

import heapq
import math

import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import REDUCTIONS, Rows, StateDict, whole_number
from datasets_cli.replay.nested_keys import key_of
from datasets_cli.replay.rows.writers import Writer
from datasets_cli.replay.storages.form import outline
from datasets_cli.replay.storages.protocol import WritableStorage
from datasets_cli.replay.torchrl_words import COMPILABLE, takes
from datasets_cli.schema.columns import Key, show_key

RANKS = {"sum": lambda several: several.sum(1), **REDUCTIONS}
"""How several numbers a row become its rank."""


@takes(compilable=COMPILABLE)
class TensorDictMaxValueWriter(Writer):
    """Keeps the rows that rank highest: once the storage is full, one takes the lowest one's place.

    Args:
        rank_key: column to rank by; ``("next", "reward")`` by default.
        reduction: how several numbers a row become one: ``"sum"``, ``"max"``, ``"min"``, ``"mean"``
            or ``"median"``.
    """

    def __init__(self, rank_key: str | Key | None = None, reduction: str = "sum") -> None:
        self.rank_key = ("next", "reward") if rank_key is None else rank_key
        if reduction not in RANKS:
            raise UsageError(
                f"Expected reduction sum, max, min, mean or median, not {reduction!r}."
            )
        self.reduction = reduction
        self._heap: list[tuple[float, int]] = []  # rank and row, the lowest first

    def write(self, storage: WritableStorage, data: Rows) -> torch.Tensor:
        """Write the rows that rank among the highest; return their numbers, -1 for the others.

        One after the other: of equal ranks the row that is there stays, and of several that rank
        lowest the first goes.

        Raises:
            UsageError: rows have nothing to rank by, a rank is NaN, or the storage has several
                dimensions.
        """
        if storage.ndim > 1:
            raise UsageError("Rows are ranked one by one: the storage must have one dimension.")
        ranks = self._ranks(data)  # first, so that rows that are refused leave no trace
        columns = storage.flatten(data)
        last: dict[int, int] = {}  # of those written to the same row, the last one is there
        accepted = 0
        for number, rank in enumerate(ranks.tolist()):
            if len(self._heap) < storage.capacity:
                last[len(self._heap)] = number
                heapq.heappush(self._heap, (rank, len(self._heap)))
            elif rank > self._heap[0][0]:
                row = self._heap[0][1]
                last[row] = number
                heapq.heapreplace(self._heap, (rank, row))
            else:
                continue
            accepted += 1
        index = torch.full((len(ranks),), -1)
        if last:
            rows, taken = torch.tensor(list(last)), torch.tensor(list(last.values()))
            index[taken] = rows
            storage.write(rows, [_rows(column, taken) for column in columns])
            self.write_count += accepted
        return index

    def _ranks(self, data: Rows) -> torch.Tensor:
        """Return the rank of each row float64 ``[n]``."""
        numbers = self._numbers(data)
        several = numbers.double().reshape(len(numbers), math.prod(numbers.shape[1:]))
        ranks: torch.Tensor = RANKS[self.reduction](several).cpu()
        if bool(ranks.isnan().any()):
            raise UsageError(f"{self.rank_key} is NaN in row {int(ranks.isnan().nonzero()[0])}.")
        return ranks

    def _numbers(self, data: Rows) -> torch.Tensor:
        """Return the column to rank by."""
        try:
            numbers: torch.Tensor = data[self.rank_key]
        except (KeyError, IndexError, TypeError) as error:
            raise UsageError(
                f"The rows, {outline(data)}, have no {show_key(key_of(self.rank_key))} to rank "
                "them by. Give TensorDictMaxValueWriter another rank_key."
            ) from error
        return numbers

    def on_clear(self) -> None:
        """Forget every rank."""
        self._heap = []
        self.write_count = 0

    def state_dict(self) -> StateDict:
        """Return the rank of every row, and how many were written."""
        ranks = torch.empty(len(self._heap), dtype=torch.float64)
        for rank, row in self._heap:
            ranks[row] = rank
        return {"ranks": ranks, "write_count": self.write_count}

    def load_state_dict(self, state: StateDict) -> None:
        """Continue where ``state`` was taken."""
        ranks = torch.as_tensor(state["ranks"], dtype=torch.float64)
        if ranks.ndim != 1 or bool(ranks.isnan().any()):
            raise UsageError("ranks must be one number a row, none of them NaN.")
        self.write_count = whole_number("write_count", state.get("write_count", len(ranks)), 0)
        self._heap = [(rank, row) for row, rank in enumerate(ranks.tolist())]
        heapq.heapify(self._heap)


def _rows(column: Rows, numbers: torch.Tensor) -> Rows:
    if isinstance(column, list):
        return [column[number] for number in numbers.tolist()]
    return column[numbers.to(column.device)]
