"""Writers: they choose the rows of a storage to which data are written."""

from __future__ import annotations

import heapq
import math
from abc import abstractmethod
from typing import NoReturn, Protocol

import torch

from datasets_cli.core.options import check_choice
from datasets_cli.errors import ImmutableError, Unsupported, WrongRows, WrongState
from datasets_cli.replay.arguments import REDUCTIONS, Numbers, Rows, StateDict, key_of, whole_number
from datasets_cli.replay.storages.columns import outline
from datasets_cli.replay.storages.protocol import Generations, Position, Storage, WritableStorage
from datasets_cli.replay.storages.shared import SharedPosition
from datasets_cli.replay.trajectories.seams import Seams
from datasets_cli.schema.columns import Key, show_key
from datasets_cli.schema.shapes import RowNumbers
from datasets_cli.torchrl.keywords import accepts_keywords

GENERATIONS = "generations"
"""In the state of a writer: how often each row was written."""
SEAMS = "seams"
"""In the state of a writer: the steps at which trajectories were cut by a load."""


def _steps(index: Numbers) -> torch.Tensor:
    """Return row numbers int64, or the steps if there is one tensor a dimension."""
    return torch.as_tensor(index[0] if isinstance(index, tuple) else index, dtype=torch.int64)


@accepts_keywords
class Writer(Protocol):
    """Chooses the rows of a storage to which data are written.

    A custom writer derives from this class and implements ``write``, or implements all members
    without deriving.

    Attributes:
        write_count: rows written so far, including rows that were replaced since.
        tracks_generations: whether ``generations_of`` counts how often a row was written.
    """

    write_count: int = 0
    tracks_generations: bool = False

    def __init__(self) -> None:
        """Accept the arguments of TorchRL's class."""
        return

    @abstractmethod
    def write(self, storage: WritableStorage, data: Rows) -> RowNumbers:
        """Write rows and return their numbers int64 ``[n]``; -1 for a rejected row."""

    def on_clear(self) -> None:
        """Handle that the storage was cleared."""
        return

    def generations_of(self, index: Numbers) -> torch.Tensor:
        """Return how often rows were rewritten, int64; -1 if this is not counted."""
        return torch.full_like(_steps(index), -1)

    def state_dict(self) -> StateDict:
        """Return the state; a writer that loads it continues at the same row."""
        return {}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore a state."""
        return


@accepts_keywords
class RoundRobinWriter(Writer):
    """Writes rows in order; in a full storage it overwrites the oldest rows.

    Args:
        track_generations: count how often each row is written by ``extend`` and ``add`` of this
            process, or emptied. ``generations_of``, and ``index_generation`` of a batch, then show
            whether rows were replaced since.
    """

    def __init__(self, *, track_generations: bool = False) -> None:
        self.tracks_generations = track_generations
        self._storage: WritableStorage | None = None
        self.position: Position | SharedPosition = Position()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(cursor={self.cursor})"

    def track(self, storage: WritableStorage) -> None:
        """Track the seams of a storage, and its generations with ``track_generations``."""
        self._storage = storage
        storage.seams = Seams() if storage.seams is None else storage.seams
        if self.tracks_generations:
            storage.generations = storage.generations or Generations()

    @property
    def _generations(self) -> Generations | None:
        if self._storage is None or not self.tracks_generations:
            return None
        return self._storage.generations

    @property
    def _last_step(self) -> int:
        """The last written step, or -1 before the first."""
        storage = self._storage
        if storage is None or not len(storage):
            return -1
        return (self.cursor // storage.width - 1) % (storage.capacity // storage.width)

    def continue_trajectories(self) -> None:
        """Continue the trajectories of loaded rows with the next rows.

        Call it after ``loads`` or ``load_state_dict`` if the environments were restored too.
        Without it, the next rows start new trajectories.
        """
        if self._storage is not None and self._storage.seams is not None:
            self._storage.seams.join([self._last_step])

    def generations_of(self, index: Numbers) -> torch.Tensor:
        """Return how often rows were rewritten, int64; -1 for a row that was never written.

        Args:
            index: row numbers of any shape; with several dimensions the numbers of time steps, or
                row numbers ``[n, ndim]`` that ``extend`` returned.
        """
        steps, storage, generations = _steps(index), self._storage, self._generations
        if storage is None or generations is None:
            return super().generations_of(index)
        if steps.ndim > 1 and steps.shape[-1] == storage.ndim > 1:
            steps = steps[..., 0]
        return generations.of(steps * storage.width)

    @property
    def cursor(self) -> int:
        """The next row to write."""
        return self.position.cursor

    @cursor.setter
    def cursor(self, row: int) -> None:
        self.position.set(row, self.position.write_count)

    @property
    def write_count(self) -> int:
        """The number of rows that all processes wrote since the storage was empty."""
        return self.position.write_count

    @write_count.setter
    def write_count(self, count: int) -> None:
        self.position.set(self.position.cursor, count)

    def write(self, storage: WritableStorage, data: Rows) -> RowNumbers:
        """Write rows and return their numbers int64 ``[n]``.

        If there are more rows than fit, the last ones remain.
        """
        columns = storage.flatten(data)
        count, capacity = len(columns[0]), storage.capacity
        done, cursor = 0, self.position.cursor
        index = torch.arange(cursor, cursor + count)
        if cursor + count > capacity:
            index %= capacity
        while done < count:
            step = min(count - done, capacity - cursor)
            part = columns if step == count else [c[done : done + step] for c in columns]
            storage.write(slice(cursor, cursor + step), part)
            done, cursor = done + step, (cursor + step) % capacity
        if storage.generations is not None:
            storage.generations.count(index)
        if storage.seams is not None and len(storage.seams):
            storage.seams.join((index[:: storage.width] // storage.width).tolist())
        self.position.advance(cursor, count)
        return index

    def on_clear(self) -> None:
        """Return to row 0."""
        self.position.set(0, 0)

    def state_dict(self) -> StateDict:
        """Return the cursor, the number of written rows, and how often each was written."""
        state: StateDict = {"cursor": self.cursor, "write_count": self.write_count}
        if self._generations is not None:
            state[GENERATIONS] = self._generations.counts.clone()
        # Loading a state cuts after the last step.
        if seams := [step for step in self._seams() if step != self._last_step]:
            state[SEAMS] = seams
        return state

    def _seams(self) -> list[int]:
        """Return the steps at which loaded rows end a trajectory."""
        storage = self._storage
        if storage is None or storage.seams is None or not len(storage):
            return []
        return storage.seams.before(len(storage) // storage.width)

    def load_state_dict(self, state: StateDict) -> None:
        """Restore a state.

        Raises:
            UsageError: a number is out of range.
        """
        if self._generations is not None and GENERATIONS in state:
            counts = torch.as_tensor(state[GENERATIONS], dtype=torch.int64).reshape(-1)
            self._generations.counts = torch.cat([counts, torch.tensor([-1])])
        for step in state.get(SEAMS, ()):  # restored with the rows, by the storage
            whole_number(SEAMS, step, 0)
        names = "cursor", "write_count"
        cursor, write_count = (whole_number(name, state[name], 0) for name in names)
        self.position.set(cursor, write_count)


@accepts_keywords
class TensorDictRoundRobinWriter(RoundRobinWriter):
    """Writes TensorDicts in order; batches have ``index``, and the data are not changed."""

    def __init__(self, *, track_generations: bool = False) -> None:
        # so that errors about arguments name this class
        super().__init__(track_generations=track_generations)


@accepts_keywords
class ImmutableDatasetWriter(Writer):
    """The writer of a dataset, which raises ``ImmutableError``."""

    def __init__(self) -> None:
        super().__init__()  # so that errors about arguments name this class

    def write(self, storage: Storage, data: Rows) -> NoReturn:
        """Raise ``ImmutableError``."""
        raise read_only()

    def on_clear(self) -> NoReturn:
        """Raise ``ImmutableError``."""
        raise read_only()

    def __repr__(self) -> str:
        return "ImmutableDatasetWriter()"


IMMUTABLE = ImmutableDatasetWriter()
"""The writer of every dataset; it has no state."""


def read_only() -> ImmutableError:
    """Return the error of a write to a dataset."""
    return ImmutableError(
        "A dataset is read-only.",
        advice="Copy rows into a new ReplayBuffer, or write a new dataset with preprocess().",
    )


RANKS = {"sum": lambda several: several.sum(1), **REDUCTIONS}
"""Functions by name that reduce numbers ``[n, k]`` to ranks ``[n]``."""


@accepts_keywords
class TensorDictMaxValueWriter(Writer):
    """Keeps the rows of highest rank: in a full storage, a new row replaces the lowest.

    Args:
        rank_key: the column of the ranks; ``("next", "reward")`` by default.
        reduction: how several numbers per row are reduced to one: ``"sum"``, ``"max"``, ``"min"``,
            ``"mean"`` or ``"median"``.

    Raises:
        UsageError: ``reduction`` is another name.
    """

    def __init__(self, rank_key: str | Key | None = None, reduction: str = "sum") -> None:
        self.rank_key = ("next", "reward") if rank_key is None else rank_key
        check_choice("reduction", reduction, RANKS)
        self.reduction = reduction
        self._heap: list[tuple[float, int]] = []  # rank and row, the lowest first

    def write(self, storage: WritableStorage, data: Rows) -> RowNumbers:
        """Write the rows of highest rank; return their numbers, and -1 for a rejected row.

        Rows are ranked in order. A row does not replace a stored row of equal rank; if several
        stored rows have the lowest rank, the first is replaced.

        Raises:
            WrongRows: the rows lack the column of ranks, or a rank is NaN.
            Unsupported: the storage has several dimensions.
        """
        if storage.ndim > 1:
            raise Unsupported(
                f"{type(self).__name__} needs a storage with ndim=1, not {storage.ndim}.",
                argument="storage",
                expected=1,
                found=storage.ndim,
            )
        ranks = self._ranks(data)  # first, because it may raise
        columns = storage.flatten(data)
        last: dict[int, int] = {}  # by row of the storage, the last row of data placed there
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
            row = int(ranks.isnan().nonzero()[0])
            raise WrongRows(
                f"{show_key(key_of(self.rank_key))}, the rank of the rows, is NaN in row {row}.",
                key=self.rank_key,
                row=row,
            )
        return ranks

    def _numbers(self, data: Rows) -> torch.Tensor:
        """Return the column of ranks."""
        try:
            numbers: torch.Tensor = data[self.rank_key]
        except (KeyError, IndexError, TypeError) as error:
            raise WrongRows(
                f"The rows, {outline(data)}, have no {show_key(key_of(self.rank_key))} as rank.",
                key=self.rank_key,
                found=outline(data),
                advice="Pass another rank_key to TensorDictMaxValueWriter.",
            ) from error
        return numbers

    def on_clear(self) -> None:
        """Remove all ranks."""
        self._heap = []
        self.write_count = 0

    def state_dict(self) -> StateDict:
        """Return the rank of each row, and the number of written rows."""
        ranks = torch.empty(len(self._heap), dtype=torch.float64)
        for rank, row in self._heap:
            ranks[row] = rank
        return {"ranks": ranks, "write_count": self.write_count}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore a state."""
        ranks = torch.as_tensor(state["ranks"], dtype=torch.float64)
        if ranks.ndim != 1 or bool(ranks.isnan().any()):
            raise WrongState(
                "The ranks of the state must be one number per row, and not NaN.",
                key="ranks",
                expected="[rows]",
                found=list(ranks.shape),
            )
        self.write_count = whole_number("write_count", state.get("write_count", len(ranks)), 0)
        self._heap = [(rank, row) for row, rank in enumerate(ranks.tolist())]
        heapq.heapify(self._heap)


def _rows(column: Rows, numbers: RowNumbers) -> Rows:
    if isinstance(column, list):
        return [column[number] for number in numbers.tolist()]
    return column[numbers.to(column.device)]
