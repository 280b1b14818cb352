"""Other processes: what they write is told to the sampler of this one, and what only one may do."""

from __future__ import annotations

import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.draws.protocol import Sampler, has_priorities
from datasets_cli.replay.sharing.process import this_process
from datasets_cli.replay.storages.protocol import Storage, WritableStorage, is_writable
from datasets_cli.schema.columns import Key


class OtherWriters:
    """What other processes did with shared rows since this one last looked."""

    # Priorities are not shared: a tree of sums that several processes change would need the lock
    # for every draw. They belong to the process that made the buffer, which draws and updates. The
    # others write rows, and these get their priorities there before the next draw, as its own rows
    # do: those that they come with, or the default.

    def __init__(self) -> None:
        self.maker = this_process()
        self.priority_key: Key | None = None
        self._seen = 0, 0  # clears and rows written

    def note(self, storage: Storage) -> None:
        """Take all that was done so far for known."""
        if storage.sharing is not None:
            counters = storage.sharing.counters
            self._seen = counters.clears, counters.write_count

    def tell(self, storage: Storage, sampler: Sampler) -> bool:
        """Tell a sampler what is new; return whether all rows from before are gone."""
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
                self._tell_rows(storage, sampler, min(written, len(storage)))
        return is_cleared

    def _tell_rows(self, storage: WritableStorage, sampler: Sampler, count: int) -> None:
        """Tell of the rows that were written last; in a ring these may go over its end."""
        last = storage.cursor * storage.width
        rows = (last - count + torch.arange(count)) % storage.capacity
        sampler.on_write(rows)
        if has_priorities(sampler) and self.priority_key is not None:
            priority = storage.entry(self.priority_key, rows)
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
                "or load its state_dict() into a new buffer, which has rows of its own."
            )
        if writer is not None:
            raise UsageError(
                f"{writer} keeps what it knows of the rows in the process that made the buffer, "
                "which alone can write with it. Use a RoundRobinWriter, which is shared."
            )
