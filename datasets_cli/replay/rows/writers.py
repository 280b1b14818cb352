"""Writers: they place rows in a storage, one after the other, or refuse them."""

from __future__ import annotations

from abc import abstractmethod
from typing import NoReturn, Protocol

import torch

from datasets_cli.errors import ImmutableError
from datasets_cli.replay.arguments import Numbers, Rows, StateDict, whole_number
from datasets_cli.replay.storages.protocol import Generations, Storage, WritableStorage
from datasets_cli.replay.storages.tensor_rows import TensorRows
from datasets_cli.replay.torchrl_words import COMPILABLE, PROTOCOL, takes

GENERATIONS = "generations"
"""In the state of a writer: how often each row was written."""


def _steps(index: Numbers) -> torch.Tensor:
    """Return numbers of rows, or of steps where they are one tensor a dimension, int64."""
    return torch.as_tensor(index[0] if isinstance(index, tuple) else index, dtype=torch.int64)


@takes(**PROTOCOL)
class Writer(Protocol):
    """Chooses the rows of a storage that data are written to.

    A writer of your own derives from this class and writes ``write``; or it derives from nothing
    and has all members.

    Attributes:
        write_count: rows written so far, those that were replaced since among them.
        tracks_generations: whether ``generations_of`` tells rows that were written again.
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
        """Return what it takes to continue."""
        return {}

    def load_state_dict(self, state: StateDict) -> None:
        """Continue where ``state`` was taken."""
        return


@takes(**PROTOCOL)
class RoundRobinWriter(Writer):
    """Writes row after row, and over the oldest rows once the storage is full.

    Args:
        track_generations: count how often each row is written, so that ``generations_of`` and
            ``index_generation`` of a batch tell whether it still is what was sampled. Only what
            this process writes by ``extend`` and ``add``, or empties, is counted.
    """

    def __init__(self, *, track_generations: bool = False) -> None:
        self.tracks_generations = track_generations
        self._tracked: WritableStorage | None = None
        self._cursor = 0
        self._write_count = 0
        self._followed: TensorRows | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(cursor={self.cursor})"

    def follow(self, storage: TensorRows) -> None:
        """Write from now on where the storage stands, to which other processes write too."""
        self._followed = storage

    def track(self, storage: WritableStorage) -> None:
        """Count from now on how often the rows of a storage are written, if that is asked for."""
        if self.tracks_generations:
            self._tracked = storage
            storage.generations = storage.generations or Generations()

    def generations_of(self, index: Numbers) -> torch.Tensor:
        """Return how often rows were written after the first time, int64; -1 for never.

        Args:
            index: row numbers of any shape; with several dimensions those of time steps, or
                ``[n, ndim]`` as ``extend`` returns them.
        """
        steps, storage = _steps(index), self._tracked
        if storage is None or storage.generations is None:
            return super().generations_of(index)
        if steps.ndim > 1 and steps.shape[-1] == storage.ndim > 1:
            steps = steps[..., 0]
        return storage.generations.of(steps * storage.width)

    @property
    def cursor(self) -> int:
        """The row that is written next."""
        if self._followed is None:
            return self._cursor
        return self._followed.cursor * self._followed.width

    @cursor.setter
    def cursor(self, row: int) -> None:
        self._cursor = row
        if self._followed is not None:
            self._followed.cursor = row // self._followed.width

    @property
    def write_count(self) -> int:
        """Rows that were written since the storage was empty, by all processes that write there."""
        return self._write_count if self._followed is None else self._followed.write_count

    @write_count.setter
    def write_count(self, count: int) -> None:
        self._write_count = count
        if self._followed is not None:
            self._followed.write_count = count

    def write(self, storage: WritableStorage, data: Rows) -> torch.Tensor:
        """Write rows and return their numbers int64 ``[n]``.

        Of more rows than fit, the last ones stay.
        """
        columns = storage.flatten(data)
        count, capacity = len(columns[0]), storage.capacity
        index = torch.arange(self.cursor, self.cursor + count)
        if self.cursor + count > capacity:
            index %= capacity
        done, cursor = 0, self.cursor
        while done < count:
            step = min(count - done, capacity - cursor)
            part = columns if step == count else [c[done : done + step] for c in columns]
            storage.write(slice(cursor, cursor + step), part)
            done, cursor = done + step, (cursor + step) % capacity
        if storage.generations is not None:
            storage.generations.count(index)
        if self._followed is None:
            self.cursor = cursor
            self.write_count += count
        return index

    def on_clear(self) -> None:
        """Begin at row 0."""
        self.cursor = self.write_count = 0

    def state_dict(self) -> StateDict:
        """Return the row that is written next, how many were written, and how often each."""
        state: StateDict = {"cursor": self.cursor, "write_count": self.write_count}
        if self._tracked is not None and self._tracked.generations is not None:
            state[GENERATIONS] = self._tracked.generations.counts.clone()
        return state

    def load_state_dict(self, state: StateDict) -> None:
        """Continue where ``state`` was taken.

        Raises:
            UsageError: a number is out of its range.
        """
        if self._tracked is not None and self._tracked.generations and GENERATIONS in state:
            counts = torch.as_tensor(state[GENERATIONS], dtype=torch.int64).reshape(-1)
            self._tracked.generations.counts = torch.cat([counts, torch.tensor([-1])])
        names = "cursor", "write_count"
        self.cursor, self.write_count = (whole_number(name, state[name], 0) for name in names)


@takes(**PROTOCOL)
class TensorDictRoundRobinWriter(RoundRobinWriter):
    """Writes TensorDicts row after row; batches carry ``index``, the data are not changed."""

    def __init__(self, *, track_generations: bool = False) -> None:
        # so that a wrong argument is reported by this name
        super().__init__(track_generations=track_generations)


@takes(compilable=COMPILABLE)
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
