"""Drawing rows: the generator, and the access of a reader to rows that may be written."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import torch

from datasets_cli.errors import Unsupported
from datasets_cli.replay.arguments import (
    Rows,
    StateDict,
    choose_generator,
    pickled_generator,
    seeded,
    unpickled_generator,
)
from datasets_cli.replay.samplers.protocol import Info, Sampler, draw_rows, has_priorities
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.storages.shared import SharedStorage
from datasets_cli.schema.columns import Key
from datasets_cli.schema.mapping import sent
from datasets_cli.schema.shapes import RowNumbers
from datasets_cli.sources.temporary_folders import this_process


class Reader(Protocol):
    """The members of a ``BatchReader`` that drawing uses."""

    threads: threading.RLock
    storage: Storage
    sampler: Sampler
    priority_key: Key | None

    @property
    def generator(self) -> torch.Generator:
        """The generator of the draws."""

    def drop(self) -> None:
        """Discard the batches that were drawn ahead."""


class DrawGenerator:
    """The generator of a buffer."""

    # Without generator and seed, immutable rows are drawn from a private generator, which torch's
    # global one seeds at the first draw, as in `torch.utils.data.DataLoader`; rows that can be
    # written are drawn from the global one. A copy in another process is seeded there, so that
    # processes draw different rows.

    def __init__(self, generator: torch.Generator | None, seed: int | None) -> None:
        self._seed = seed
        self._is_seeded_here = generator is None and seed is None
        self._generator = None if self._is_seeded_here else choose_generator(generator, seed)
        self.is_private = generator is None

    def get(self, *, is_writable: bool) -> torch.Generator:
        """Return the generator for writable or immutable rows."""
        if self._is_seeded_here and is_writable:
            return torch.default_generator
        if self._generator is None:
            self._generator = seeded(int(torch.randint(2**62, ())))
        return self._generator

    def again(self) -> DrawGenerator:
        """Return the generator of another buffer: a seed starts again, a generator is shared."""
        if self._is_seeded_here or self._seed is not None:
            return DrawGenerator(None, self._seed)
        return DrawGenerator(self._generator, None)

    def after_copy(self) -> None:
        """Drop the private generator in a new process, which seeds another one."""
        if self._is_seeded_here:
            self._generator = None

    def __getstate__(self) -> StateDict:
        if self._is_seeded_here or self._generator is None:
            return {**self.__dict__, "_generator": None}
        return {**self.__dict__, "_generator": pickled_generator(self._generator)}

    def __setstate__(self, state: StateDict) -> None:
        self.__dict__.update(state)
        if not self._is_seeded_here:
            self._generator = unpickled_generator(state["_generator"])


def check_generator(generator: torch.Generator | None, sampler: Sampler) -> None:
    """Check that a sampler can draw from a generator."""
    # Rows are drawn on the CPU; only priorities can be drawn on another device.
    if generator is None or sampler.has_priorities or generator.device.type == "cpu":
        return
    raise Unsupported(
        f"generator is on {generator.device}, and {sampler!r} draws on the CPU.",
        argument="generator",
        expected="cpu",
        found=str(generator.device),
        advice="Pass a CPU generator, torch.Generator(), or a seed. Use device= to move batches.",
    )


class RowAccess:
    """The access of a reader to rows of one process: one thread at a time."""

    def lock(self, reader: Reader) -> AbstractContextManager[object]:
        """Return the lock that is held while rows are written."""
        return reader.threads

    def take(self, reader: Reader, size: int) -> tuple[RowNumbers, Info, Rows]:
        """Draw and gather rows that can be written."""
        storage = reader.storage
        index, info = draw_rows(reader.sampler, storage, size, reader.generator)
        index = sent(index, storage.index_device)
        return index, info, storage.gather(index)

    def draw(self, reader: Reader, size: int) -> tuple[RowNumbers, Info, Rows | None]:
        """Draw rows that are gathered later: the third item is None."""
        return *draw_rows(reader.sampler, reader.storage, size, reader.generator), None

    def check_priorities(self, reader: Reader) -> None:
        """Check that this process has the priorities of the sampler."""

    def after_fork(self) -> None:
        """Prepare for use in a new process."""


ONE_PROCESS = RowAccess()


def access_to(storage: Storage) -> RowAccess:
    """Return the access of a reader to the rows of a storage."""
    return SharedAccess(storage) if isinstance(storage, SharedStorage) else ONE_PROCESS


class SharedAccess(RowAccess):
    """The access of a reader to rows that other processes write."""

    # Priorities are not shared: processes that change one sum tree would need the lock for every
    # draw. The process that created the buffer has them, and draws and updates. Before its next
    # draw, it sets the priorities of rows that others wrote: from their entry, or the default.

    def __init__(self, storage: SharedStorage) -> None:
        self.maker = this_process()
        self._storage = storage
        self._depth = 0  # of nested locks
        self._note()

    def lock(self, reader: Reader) -> AbstractContextManager[object]:
        """Return the lock between the threads of all processes."""
        return self._locked(reader)

    @contextmanager
    def _locked(self, reader: Reader) -> Iterator[None]:
        with reader.threads, self._storage.turn():
            is_first = not self._depth
            if is_first:
                self._update(reader)
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if is_first:
                    self._note()

    def take(self, reader: Reader, size: int) -> tuple[RowNumbers, Info, Rows]:
        """Draw and gather rows; repeat it if another process wrote rows in between."""
        self.check_priorities(reader)
        self._update(reader)
        draw = SharedDraw(self._storage, reader.sampler, size, reader.generator)
        return self._storage.read_whole(draw.attempt, draw.retry)

    def draw(self, reader: Reader, size: int) -> tuple[RowNumbers, Info, Rows | None]:
        """Draw and gather rows: another process may write before the thread would gather them."""
        return self.take(reader, size)

    def check_priorities(self, reader: Reader) -> None:
        """Check that this process has the priorities of the sampler."""
        if has_priorities(reader.sampler) and self.maker != this_process():
            raise Unsupported(
                f"The priorities of {type(reader.sampler).__name__} are in the process that "
                "created the buffer. This process can write rows, but not sample by priority.",
                argument="sampler",
                found=type(reader.sampler).__name__,
                advice="To sample here, call set_sampler(RandomSampler()).",
            )

    def after_fork(self) -> None:
        """Prepare for use in a new process: the thread that held the lock does not exist there."""
        self._depth = 0

    def __getstate__(self) -> StateDict:
        return vars(self) | {"_depth": 0}

    def _note(self) -> None:
        counters = self._storage.counters
        self._seen = counters.clears, counters.write_count

    def _update(self, reader: Reader) -> None:
        """Notify the sampler of the rows that other processes wrote or cleared."""
        storage, sampler, before = self._storage, reader.sampler, self._seen
        now = storage.counters.clears, storage.counters.write_count
        if now == before:
            return
        if now[0] == before[0] and type(sampler).on_write is Sampler.on_write:
            self._seen = now
            return
        with storage.turn():
            self._note()
            is_cleared = self._seen[0] != before[0]
            if is_cleared:
                sampler.on_clear()
            written = self._seen[1] - (0 if is_cleared else before[1])
            if written > 0:
                self._on_write(reader, min(written, len(storage)))
        if is_cleared:
            reader.drop()

    def _on_write(self, reader: Reader, count: int) -> None:
        """Notify the sampler of the rows that were written last."""
        storage, sampler = self._storage, reader.sampler
        # They end before the cursor; in a full ring they may start after it.
        end = storage.cursor * storage.width
        rows = (end - count + torch.arange(count)) % storage.capacity
        sampler.on_write(rows)
        if has_priorities(sampler) and reader.priority_key is not None:
            priority = storage.entry(reader.priority_key, rows)
            if priority is not None:
                sampler.update_priority(rows, priority)


class SharedDraw:
    """A draw of rows that other processes may write at the same time."""

    def __init__(
        self, storage: Storage, sampler: Sampler, size: int, generator: torch.Generator
    ) -> None:
        self._storage = storage
        self._sampler = sampler
        self._size = size
        self._generator = generator
        self._drawn: tuple[RowNumbers, Info] | None = None
        self._num_rows = 0
        # Slices depend on the ends of trajectories, and goals on the rows that reached them.
        self._reads_rows = sampler.has_slices or type(sampler).relabel is not Sampler.relabel
        # An epoch must not lose the items of a repeated draw.
        is_epoch = self._reads_rows and not sampler.has_priorities
        self._state = sampler.state_dict() if is_epoch else None

    def attempt(self) -> tuple[RowNumbers, Info, Rows]:
        """Return row numbers, their info, and the rows."""
        if self._drawn is None or len(self._storage) < self._num_rows:
            self._num_rows = len(self._storage)
            self._drawn = draw_rows(self._sampler, self._storage, self._size, self._generator)
        index, info = self._drawn
        return index, info, self._storage.gather(index)

    def retry(self) -> None:
        """Repeat a draw that depends on rows: its slices may cross trajectories now."""
        if self._reads_rows:
            self._drawn = None
            if self._state is not None:
                self._sampler.load_state_dict(self._state)
