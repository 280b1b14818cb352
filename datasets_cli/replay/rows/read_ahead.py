"""Reading ahead of a dataset: one draw and one gather for several batches."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import torch

from datasets_cli.replay.draws.protocol import AheadSampler, Info, Sampler, tells_ahead
from datasets_cli.replay.rows.draw_generator import DrawGenerator
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.schema.columns import Key
from datasets_cli.store.rows.protocol import GatheredRows

BLOCK_BYTES = 1 << 20  # beyond it, batches come from the processor's cache no longer
MOST_BATCHES = 32


@dataclass(eq=False)
class DrawnBlock:
    """Batches that were drawn and gathered at once, and which of them were handed out.

    rows         | batch 0 | batch 1 | batch 2 | batch 3 |
    num_handed 2                     ^ the next one
    """

    sampler: AheadSampler
    generator: torch.Generator | None
    state_before: torch.Tensor | None
    size: int
    index: np.ndarray
    info: dict[Key, np.ndarray]
    rows: GatheredRows
    place: Hashable
    num_handed: int = 0


class ReadAhead:
    """Hands out batches of rows that never change, several of which are drawn and gathered at
    once.
    """

    # A batch is a view of its own part of the memory that they were gathered into. Whoever asks
    # where the draws stand is told as if batches were made one by one: the generator is private,
    # and `give_back` turns it back; the sampler stays where it is until a batch is handed out.
    # After that the first batch is drawn alone, and blocks are of 2, 4, 8 ... batches, so that who
    # wants few of them does not wait for many.

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._block: DrawnBlock | None = None
        self._count = 1  # batches of the next block

    def take(
        self, sampler: Sampler, size: int, source: DrawGenerator
    ) -> tuple[torch.Tensor, Info, GatheredRows, int] | None:
        """Return the next batch: its rows' numbers, what is said of them, and where they are."""
        # the numbers int64 `[B]`, info, the block and the batch's first row in it; None where
        block = self._block
        if block is None or block.size != size or block.place != block.sampler.place:
            if block is not None:
                self.give_back()
            if (block := self._read(sampler, size, source)) is None:
                return None
        start = block.num_handed * size
        stop = start + size
        block.num_handed += 1
        block.sampler.advance(size)
        block.place = block.sampler.place
        if stop == len(block.index):
            self._block = None
        # From numpy: what is pickled with a batch is its own memory, not that of the block.
        info = {key: torch.from_numpy(mark[start:stop]) for key, mark in block.info.items()}
        return torch.from_numpy(block.index[start:stop]), info, block.rows, start

    def give_back(self) -> None:
        """Let the generator stand where the last batch that was handed out left it."""
        block, self._block = self._block, None
        self._count = 1
        if block is None or block.generator is None or block.state_before is None:
            return
        block.generator.set_state(block.state_before)
        block.sampler.ahead(self._storage, block.size, block.num_handed, block.generator)

    def drop(self) -> None:
        """Forget what was drawn ahead; where the draws stand is set otherwise."""
        self._block, self._count = None, 1

    def _read(self, sampler: Sampler, size: int, source: DrawGenerator) -> DrawnBlock | None:
        """Return a new block, or None where the next batch is to be drawn by itself."""
        if not tells_ahead(sampler):
            return None
        count, most = self._count, BLOCK_BYTES // (self._storage.row_bytes * size)
        self._count = max(1, min(2 * count, most, MOST_BATCHES))
        if count == 1:
            return None
        generator = source.get(is_writable=False) if source.is_private else None
        state_before = None if generator is None else generator.get_state()
        place = sampler.place
        try:
            drawn = sampler.ahead(self._storage, size, count, generator)
            rows = self._storage.read(drawn[0]) if drawn is not None else None
        except BaseException:  # no batch is lost by it
            if generator is not None and state_before is not None:
                generator.set_state(state_before)
            raise
        if drawn is None or rows is None:
            return None
        index, info = drawn
        marks = {key: mark.numpy() for key, mark in info.items()}
        self._block = DrawnBlock(
            sampler, generator, state_before, size, index.numpy(), marks, rows, place
        )
        return self._block
