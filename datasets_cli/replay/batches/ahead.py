"""Reading ahead: a thread prefetches batches, or one gather serves several of them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils import _pytree

from datasets_cli.replay.arguments import Rows, StateDict
from datasets_cli.replay.batches.drawing import DrawGenerator
from datasets_cli.replay.samplers.protocol import (
    AheadSampler,
    Info,
    Sampler,
    check_rows,
    supports_lookahead,
)
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.schema.columns import Key
from datasets_cli.schema.shapes import RowArray, RowNumbers
from datasets_cli.store.layouts.protocol import GatheredRows

STALE = object()
"""Stands for a batch whose rows changed after the draw."""


class Turn:
    """The work of one batch on a side stream of CUDA, beside the work on the caller's stream."""

    # A stream waits for another on the device, by an event; the CPU waits for neither. Memory is
    # reused in the order of one stream: `record_stream` names a second one that reads a tensor.

    def __init__(self, stream: torch.cuda.Stream, draw: DrawnBatch) -> None:
        self._stream = stream
        self._drawn = torch.cuda.current_stream(stream.device).record_event()
        _note_use((draw.index, *draw.info.values()), stream)

    def make(self, make: Callable[[DrawnBatch], Rows], draw: DrawnBatch) -> Rows:
        """Make the batch on the side stream, after the caller's earlier work on its stream."""
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(self._drawn)
            batch = make(draw)
            self._made = self._stream.record_event()
        return batch

    def hand_over(self, batch: Rows) -> None:
        """Make the caller's stream wait for the batch."""
        stream = torch.cuda.current_stream(self._stream.device)
        stream.wait_event(self._made)
        _note_use(batch, stream)


def _note_use(batch: Rows, stream: torch.cuda.Stream) -> None:
    for leaf in _pytree.tree_leaves(batch):
        if isinstance(leaf, torch.Tensor) and not leaf.is_cpu:
            leaf.record_stream(stream)


def side_stream_of(storage: Storage) -> torch.cuda.Stream | None:
    """Return a stream for batches of a storage; None for a CPU, or for rows that can change."""
    # New rows are written on the caller's stream, which does not wait for the side one.
    device = storage.device_options.device
    is_served = device is not None and device.type == "cuda" and not storage.is_writable
    return torch.cuda.Stream(device) if is_served else None


@dataclass(frozen=True)
class DrawnBatch:
    """The rows of one batch, and the state before they were drawn."""

    index: RowNumbers
    info: Info
    is_last: bool
    revision: int
    state_before: StateDict
    rows: Rows | None = None


class Prefetch:
    """A queue of batches that a thread prefetches."""

    # Rows are drawn in the calling thread, in order, so batches equal those without a thread. One
    # thread gathers, decodes, moves and transforms them in the same order, so a transform never
    # runs twice at the same time. An epoch starts only after the last batch of the previous one
    # was taken.

    def __init__(
        self,
        depth: int,
        size: int,
        draw: Callable[[int], DrawnBatch],
        make: Callable[[DrawnBatch], Rows],
        undo: Callable[[DrawnBatch], None],
        lock: threading.RLock,
        stream: torch.cuda.Stream | None = None,
    ) -> None:
        self.size = size
        self._stream = stream
        self._depth = depth
        self._draw = draw
        self._make = make
        self._undo = undo
        self._lock = lock
        self._waiting: deque[tuple[DrawnBatch, Turn | None, Future[Rows]]] = deque()
        self._pool: ThreadPoolExecutor | None = None

    def take(self, size: int) -> tuple[DrawnBatch, Rows]:
        """Return the oldest prefetched batch and refill the queue; or draw one of another size."""
        # The caller rewinds the queue before a batch of another size.
        while True:
            with self._lock:
                if size == self.size:
                    self._fill()
                is_next = size == self.size
                draw, turn, made = self._waiting.popleft() if is_next else self._begin(size)
            batch = made.result()
            if batch is not STALE:
                if turn is not None:
                    turn.hand_over(batch)
                return draw, batch
            with self._lock:
                self._undo(draw)

    @property
    def num_waiting(self) -> int:
        """The number of batches in the queue."""
        return len(self._waiting)

    @property
    def oldest(self) -> DrawnBatch | None:
        """The draw of the oldest batch in the queue, or None."""
        with self._lock:
            return self._waiting[0][0] if self._waiting else None

    def drop(self) -> None:
        """Discard the queue."""
        with self._lock:
            for _, _, batch in self._waiting:
                batch.cancel()
            self._waiting.clear()

    def _fill(self) -> None:
        while len(self._waiting) <= self._depth:
            if self._waiting and self._waiting[-1][0].is_last:
                return
            self._waiting.append(self._begin(self.size))

    def _begin(self, size: int) -> tuple[DrawnBatch, Turn | None, Future[Rows]]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
        draw = self._draw(size)
        if self._stream is None:
            return draw, None, self._pool.submit(self._make, draw)
        turn = Turn(self._stream, draw)
        return draw, turn, self._pool.submit(turn.make, self._make, draw)


BLOCK_BYTES = 1 << 20  # a larger block does not fit the cache of the processor
MOST_BATCHES = 32
LEAST_BATCHES = 3  # reading two batches ahead saves less than a seventh


@dataclass(eq=False)
class DrawnBlock:
    """Several batches that were drawn and gathered together.

    rows         | batch 0 | batch 1 | batch 2 | batch 3 |
    num_returned 2                     ^ the next batch
    """

    sampler: AheadSampler
    generator: torch.Generator | None
    state_before: torch.Tensor | None
    size: int
    index: RowArray
    info: dict[Key, np.ndarray]
    rows: GatheredRows
    version: Hashable
    num_returned: int = 0


class ReadAhead:
    """Draws and gathers several batches of immutable rows together, and returns them in order.

    batch        1   2 3   4 5 6 7   8 9 ...       a block has 1, 2, 4, 8 ... batches
    """

    # A batch is a view of a separate part of the gathered memory. The states of generator and
    # sampler are as if batches were drawn one by one: the generator is private and `rewind` resets
    # it; the sampler advances when a batch is returned. Blocks start small, so that a caller of few
    # batches does not wait for many.

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._block: DrawnBlock | None = None
        self._count = 1  # batches of the next block

    def take(
        self, sampler: Sampler, size: int, source: DrawGenerator
    ) -> tuple[RowNumbers, Info, GatheredRows, int] | None:
        """Return the row numbers, info, block and first row in the block of the next batch.

        None if the batch is drawn without a block.
        """
        block = self._block
        if block is None or block.size != size or block.version != block.sampler.version:
            if block is not None:
                self.rewind()
            if (block := self._read(sampler, size, source)) is None:
                return None
        start = block.num_returned * size
        stop = start + size
        block.num_returned += 1
        block.sampler.advance(size)
        block.version = block.sampler.version
        if stop == len(block.index):
            self._block = None
        # From numpy: a pickle of the batch contains its memory, not that of the whole block.
        info = {key: torch.from_numpy(column[start:stop]) for key, column in block.info.items()}
        return torch.from_numpy(block.index[start:stop]), info, block.rows, start

    def rewind(self) -> None:
        """Restore the generator to its state after the last returned batch."""
        block, self._block = self._block, None
        self._count = 1
        if block is None or block.generator is None or block.state_before is None:
            return
        block.generator.set_state(block.state_before)
        block.sampler.ahead(self._storage, block.size, block.num_returned, block.generator)

    def drop(self) -> None:
        """Discard the block; the caller restores generator and sampler."""
        self._block, self._count = None, 1

    def _read(self, sampler: Sampler, size: int, source: DrawGenerator) -> DrawnBlock | None:
        """Return a new block, or None if the next batch is drawn without one."""
        if not supports_lookahead(sampler):
            return None
        count, most = self._count, BLOCK_BYTES // (self._storage.row_bytes * size)
        self._count = min(2 * count, most, MOST_BATCHES) if most >= LEAST_BATCHES else 1
        if count == 1:
            return None
        version = sampler.version
        if not (source.is_private or version):  # the next rows depend on the generator alone
            return None
        generator = source.get(is_writable=False) if source.is_private else None
        state_before = None if generator is None else generator.get_state()
        try:
            drawn = sampler.ahead(self._storage, size, count, generator)
            if drawn is not None:
                check_rows(sampler, self._storage, drawn[0])
            rows = self._storage.read(drawn[0]) if drawn is not None else None
        except BaseException:  # an error loses no batch
            if generator is not None and state_before is not None:
                generator.set_state(state_before)
            raise
        if drawn is None or rows is None:
            return None
        index, info = drawn
        columns = {key: column.numpy() for key, column in info.items()}
        self._block = DrawnBlock(
            sampler, generator, state_before, size, index.numpy(), columns, rows, version
        )
        return self._block
