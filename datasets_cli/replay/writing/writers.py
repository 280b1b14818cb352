"""Writers, which choose the rows of a storage that data are written to."""

from __future__ import annotations

import heapq
import math
from abc import abstractmethod
from typing import NoReturn, Protocol

import torch

from datasets_cli.errors import ImmutableError, Unsupported, UsageError, WrongRows, WrongState
from datasets_cli.replay.arguments import REDUCTIONS, Numbers, Rows, StateDict, key_of, whole_number
from datasets_cli.replay.storages.columns import outline
from datasets_cli.replay.storages.protocol import Generations, Position, Storage, WritableStorage
from datasets_cli.replay.storages.shared import SharedPosition
from datasets_cli.replay.trajectories.seams import Seams
from datasets_cli.schema.columns import Key, show_key
from datasets_cli.torchrl.keywords import accepts_keywords

GENERATIONS = "generations"
"""In the state of a writer: how often each row was written."""
SEAMS = "seams"
"""In the state of a writer: the steps at which trajectories were cut by a load."""


def _steps(index: Numbers) -> torch.Tensor:
    """Return numbers of rows, or of steps where they are one tensor a dimension, int64."""
    return torch.as_tensor(index[0] if isinstance(index, tuple) else index, dtype=torch.int64)


@accepts_keywords
class Writer(Protocol):
    """Chooses the rows of a storage that data are written to.

    A writer of your own derives from this class and writes ``write``; or it derives from nothing
    and has all members.

    Attributes:
        write_count: rows written so far, including rows that were replaced since.
        tracks_generations: whether ``generations_of`` distinguishes rows that were written again.
    """

    write_count: int = 0
    tracks_generations: bool = False

    def __init__(self) -> None:
        """Take what TorchRL's class takes."""
        return

    @abstractmethod
    def write(self, storage: WritableStorage, data: Rows) -> torch.Tensor:
        """Write rows and return their numbers int64 ``[n]``; -1 for a row that was refused."""

    def on_clear(self) -> None:
        """Learn that the storage has no rows any more."""
        return

    def generations_of(self, index: Numbers) -> torch.Tensor:
        """Return how often rows were written after the first time; -1 where nobody counts."""
        return torch.full_like(_steps(index), -1)

    def state_dict(self) -> StateDict:
        """Return the state from which ``load_state_dict`` continues."""
        return {}

    def load_state_dict(self, state: StateDict) -> None:
        """Continue where ``state`` was taken."""
        return


@accepts_keywords
class RoundRobinWriter(Writer):
    """Writes row after row, and over the oldest rows once the storage is full.

    Args:
        track_generations: count how often each row is written, so that ``generations_of`` and
            ``index_generation`` of a batch show whether its rows were replaced since. Rows count
            that this process writes by ``extend`` and ``add``, or empties.
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
        """The step that was written last; -1 if none was."""
        storage = self._storage
        if storage is None or not len(storage):
            return -1
        return (self.cursor // storage.width - 1) % (storage.capacity // storage.width)

    def continue_trajectories(self) -> None:
        """Let the next rows continue the trajectories of the last ones that were loaded.

        Call it after ``loads`` or ``load_state_dict`` if the environments were restored too.
        Without it, the next rows begin new trajectories.
        """
        if self._storage is not None and self._storage.seams is not None:
            self._storage.seams.join([self._last_step])

    def generations_of(self, index: Numbers) -> torch.Tensor:
        """Return how often rows were written after the first time, int64; -1 for never.

        Args:
            index: row numbers of any shape; with several dimensions numbers of time steps, or
                ``[n, ndim]`` as ``extend`` returns them.
        """
        steps, storage, generations = _steps(index), self._storage, self._generations
        if storage is None or generations is None:
            return super().generations_of(index)
        if steps.ndim > 1 and steps.shape[-1] == storage.ndim > 1:
            steps = steps[..., 0]
        return generations.of(steps * storage.width)

    @property
    def cursor(self) -> int:
        """The row that is written next."""
        return self.position.cursor

    @cursor.setter
    def cursor(self, row: int) -> None:
        self.position.set(row, self.position.write_count)

    @property
    def write_count(self) -> int:
        """Rows written since the storage was empty, by all processes that share it."""
        return self.position.write_count

    @write_count.setter
    def write_count(self, count: int) -> None:
        self.position.set(self.position.cursor, count)

    def write(self, storage: WritableStorage, data: Rows) -> torch.Tensor:
        """Write rows and return their numbers int64 ``[n]``.

        Of more rows than fit, the last ones stay.
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
        """Begin at row 0."""
        self.position.set(0, 0)

    def state_dict(self) -> StateDict:
        """Return the row that is written next, how many were written, and how often each."""
        state: StateDict = {"cursor": self.cursor, "write_count": self.write_count}
        if self._generations is not None:
            state[GENERATIONS] = self._generations.counts.clone()
        # The last step is cut anyway by whoever loads the state.
        if seams := [step for step in self._seams() if step != self._last_step]:
            state[SEAMS] = seams
        return state

    def _seams(self) -> list[int]:
        """Return the steps that end a trajectory because rows were loaded."""
        storage = self._storage
        if storage is None or storage.seams is None or not len(storage):
            return []
        return storage.seams.before(len(storage) // storage.width)

    def load_state_dict(self, state: StateDict) -> None:
        """Continue where ``state`` was taken.

        Raises:
            UsageError: a number is out of its range.
        """
        if self._generations is not None and GENERATIONS in state:
            counts = torch.as_tensor(state[GENERATIONS], dtype=torch.int64).reshape(-1)
            self._generations.counts = torch.cat([counts, torch.tensor([-1])])
        for step in state.get(SEAMS, ()):  # they are the storage's, and put there with its rows
            whole_number(SEAMS, step, 0)
        names = "cursor", "write_count"
        cursor, write_count = (whole_number(name, state[name], 0) for name in names)
        self.position.set(cursor, write_count)


@accepts_keywords
class TensorDictRoundRobinWriter(RoundRobinWriter):
    """Writes TensorDicts row after row; batches carry ``index``, the data are not changed."""

    def __init__(self, *, track_generations: bool = False) -> None:
        # so that a wrong argument is reported by this name
        super().__init__(track_generations=track_generations)


@accepts_keywords
class ImmutableDatasetWriter(Writer):
    """The writer of a dataset: it refuses."""

    def __init__(self) -> None:
        super().__init__()  # so that a wrong argument is reported by this name

    def write(self, storage: Storage, data: Rows) -> NoReturn:
        """Refuse rows."""
        refuse_to_write()

    def on_clear(self) -> NoReturn:
        """Refuse to forget rows."""
        refuse_to_write()

    def __repr__(self) -> str:
        return "ImmutableDatasetWriter()"


IMMUTABLE = ImmutableDatasetWriter()
"""The writer of every dataset: it has no state."""


def refuse_to_write() -> NoReturn:
    """Refuse to change the rows of a dataset."""
    raise ImmutableError(
        "A dataset cannot be written to. Copy rows into a buffer of your own, or make a new "
        "dataset with preprocess()."
    )


RANKS = {"sum": lambda several: several.sum(1), **REDUCTIONS}
"""How several numbers a row become its rank."""


@accepts_keywords
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
                f"Expected reduction sum, max, min, mean or median, not {reduction!r}.",
                argument="reduction",
                expected=[*RANKS],
                found=reduction,
            )
        self.reduction = reduction
        self._heap: list[tuple[float, int]] = []  # rank and row, the lowest first

    def write(self, storage: WritableStorage, data: Rows) -> torch.Tensor:
        """Write the rows that rank among the highest; return their numbers, -1 for every other row.

        Rows are ranked in their order: of equal ranks the stored row stays, and of several lowest
        ranks the first is replaced.

        Raises:
            UsageError: rows have nothing to rank by, a rank is NaN, or the storage has several
                dimensions.
        """
        if storage.ndim > 1:
            raise Unsupported(
                f"Rows are ranked one by one, and the storage has {storage.ndim} dimensions.",
                argument="storage",
                expected=1,
                found=storage.ndim,
            )
        ranks = self._ranks(data)  # first: it may raise, and nothing is written then
        columns = storage.flatten(data)
        last: dict[int, int] = {}  # by the stored row: the row of data that was written to it last
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
            raise WrongRows(f"{self.rank_key} is NaN in row {row}.", key=self.rank_key, row=row)
        return ranks

    def _numbers(self, data: Rows) -> torch.Tensor:
        """Return the column to rank by."""
        try:
            numbers: torch.Tensor = data[self.rank_key]
        except (KeyError, IndexError, TypeError) as error:
            raise WrongRows(
                f"The rows, {outline(data)}, have no {show_key(key_of(self.rank_key))} to rank "
                "them by.",
                key=self.rank_key,
                found=outline(data),
                advice="Give TensorDictMaxValueWriter another rank_key.",
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
            raise WrongState("ranks must be one number a row, none of them NaN.", key="ranks")
        self.write_count = whole_number("write_count", state.get("write_count", len(ranks)), 0)
        self._heap = [(rank, row) for row, rank in enumerate(ranks.tolist())]
        heapq.heapify(self._heap)


def _rows(column: Rows, numbers: torch.Tensor) -> Rows:
    if isinstance(column, list):
        return [column[number] for number in numbers.tolist()]
    return column[numbers.to(column.device)]
