"""Drawing rows: what they are drawn from, and what other processes that write them change."""

from __future__ import annotations

import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import (
    NestedKey,
    Rows,
    StateDict,
    choose_generator,
    key_of,
    pickled_generator,
    seeded,
    unpickled_generator,
)
from datasets_cli.replay.samplers.protocol import Info, Sampler, draw_rows, has_priorities
from datasets_cli.replay.sharing.process import this_process
from datasets_cli.replay.storages.protocol import Storage, WritableStorage, is_writable


class DrawGenerator:
    """The generator of a buffer."""

    # With neither argument, rows that never change are drawn from a generator of the buffer's own,
    # which torch's global one seeds at the first draw, as `torch.utils.data.DataLoader` does; rows
    # that can be written are drawn from the global one. A copy in another process is then seeded
    # there, so that processes do not draw the same.

    def __init__(self, generator: torch.Generator | None, seed: int | None) -> None:
        self._seed = seed
        self._is_seeded_here = generator is None and seed is None
        self._generator = None if self._is_seeded_here else choose_generator(generator, seed)
        self.is_private = generator is None

    def get(self, *, is_writable: bool) -> torch.Generator:
        """Return the generator, for rows that can be written or for others."""
        if self._is_seeded_here and is_writable:
            return torch.default_generator
        if self._generator is None:
            self._generator = seeded(int(torch.randint(2**62, ())))
        return self._generator

    def again(self) -> DrawGenerator:
        """Return what another buffer draws from: a seed begins again, a given generator is
        shared.
        """
        # With neither, it has its own generator too.
        if self._is_seeded_here or self._seed is not None:
            return DrawGenerator(None, self._seed)
        return DrawGenerator(self._generator, None)

    def after_copy(self) -> None:
        """Begin in a new process."""
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
    # Rows are drawn on the CPU; chances of priorities are drawn where the generator is.
    if generator is None or sampler.has_priorities or generator.device.type == "cpu":
        return
    raise UsageError(
        f"generator is on {generator.device}, and {sampler!r} draws on the CPU. Give a "
        "torch.Generator() of the CPU, or a seed; device= says where batches go."
    )


class SharedDraw:
    """One draw of rows that other processes may write meanwhile."""

    def __init__(
        self, storage: Storage, sampler: Sampler, size: int, generator: torch.Generator
    ) -> None:
        self._storage = storage
        self._sampler = sampler
        self._size = size
        self._generator = generator
        self._drawn: tuple[torch.Tensor, Info] | None = None
        self._num_rows = 0
        # What is drawn follows from rows: where trajectories end, which goals were reached.
        self._reads_rows = sampler.has_slices or type(sampler).relabel is not Sampler.relabel
        # Items of an epoch are drawn once more, and must not be lost.
        is_epoch = self._reads_rows and not sampler.has_priorities
        self._state = sampler.state_dict() if is_epoch else None

    def attempt(self) -> tuple[torch.Tensor, Info, Rows]:
        """Return row numbers, what is said of them, and the rows."""
        if self._drawn is None or len(self._storage) < self._num_rows:
            self._num_rows = len(self._storage)
            self._drawn = draw_rows(self._sampler, self._storage, self._size, self._generator)
        index, info = self._drawn
        return index, info, self._storage.gather(index)

    def take_back(self) -> None:
        """Draw once more where what was drawn may not hold: slices may cross trajectories now."""
        if self._reads_rows:
            self._drawn = None
            if self._state is not None:
                self._sampler.load_state_dict(self._state)


class OtherWriters:
    """What other processes did with shared rows since this one last looked."""

    # Priorities are not shared: a tree of sums that several processes change would need the lock
    # for every draw. They belong to the process that made the buffer, which draws and updates. The
    # others write rows, and these get their priorities there before the next draw, as its own rows
    # do: those that they come with, or the default.

    def __init__(self) -> None:
        self.maker = this_process()
        self._seen = 0, 0  # clears and rows written

    def note(self, storage: Storage) -> None:
        """Take all that was done so far for known."""
        if storage.sharing is not None:
            counters = storage.sharing.counters
            self._seen = counters.clears, counters.write_count

    def tell(self, storage: Storage, sampler: Sampler, priority_key: NestedKey | None) -> bool:
        """Tell a sampler what is new; return whether all rows from before are gone."""
        # priority_key: where rows have the priorities that they come with.
        if storage.sharing is None:
            return False
        counters = storage.sharing.counters
        known, now = self._seen, (counters.clears, counters.write_count)
        if now == known:
            return False
        if now[0] == known[0] and type(sampler).on_write is Sampler.on_write:
            self._seen = now
            return False
        with storage.sharing:
            self.note(storage)
            is_cleared = self._seen[0] != known[0]
            if is_cleared:
                sampler.on_clear()
            written = self._seen[1] - (0 if is_cleared else known[1])
            if written > 0 and is_writable(storage):
                self._tell_rows(storage, sampler, min(written, len(storage)), priority_key)
        return is_cleared

    def _tell_rows(
        self, storage: WritableStorage, sampler: Sampler, count: int, priority_key: NestedKey | None
    ) -> None:
        """Tell of the rows that were written last; in a ring these may go over its end."""
        last = storage.cursor * storage.width
        rows = (last - count + torch.arange(count)) % storage.capacity
        sampler.on_write(rows)
        if has_priorities(sampler) and priority_key is not None:
            priority = storage.entry(key_of(priority_key), rows)
            if priority is not None:
                sampler.update_priority(rows, priority)

    def check_draws(self, storage: Storage, sampler: Sampler) -> None:
        """Check that this process may draw by a sampler, and change its priorities."""
        is_shared = storage.sharing is not None and has_priorities(sampler)
        if is_shared and self.maker != this_process():
            raise UsageError(
                f"The priorities of {type(sampler).__name__} are in the process that made the "
                "buffer, which samples and updates them; this one can write rows. To sample here, "
                "give the buffer another sampler: set_sampler(RandomSampler())."
            )

    def check_writes(self, storage: Storage, *, writer: str | None) -> None:
        """Check that this process may write rows."""
        if self.maker == this_process():
            return
        if storage.sharing is None:
            raise UsageError(
                "This buffer is a copy of one in another process, and is not shared: rows written "
                "here would reach no other. Make it with shared=True, or over a LazyMemmapStorage; "
                "or load its state_dict() into a new buffer, which has its own rows."
            )
        if writer is not None:
            raise UsageError(
                f"{writer} keeps what it knows of the rows in the process that made the buffer, "
                "which alone can write with it. Use a RoundRobinWriter, which is shared."
            )
