"""Samplers of rows: each drawn item is a row of the batch.

A sampler sees a storage only as a number of rows and a table of trajectories. It draws from the
generator of the buffer: the same generator state gives the same batches.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import torch
from torch.utils.data import get_worker_info

from datasets_cli.core.options import takes_fields
from datasets_cli.errors import OutOfRange, WrongState, wrong_value
from datasets_cli.replay.arguments import StateDict, whole_number
from datasets_cli.replay.samplers.epochs import Epochs
from datasets_cli.replay.samplers.orders import Order, permutation, random_words, storage_order
from datasets_cli.replay.samplers.protocol import AheadSampler, Draw, Info, Uniform, check_kind
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.schema.shapes import ItemArray, RowNumbers


def draw_property(name: str) -> Any:
    """Return a property that reads an attribute of the sampler's draw."""
    return property(lambda sampler: getattr(sampler.draw, name), doc=f"``{name}`` of the draw.")


class DrawSampler(AheadSampler):
    """A sampler that takes items from a ``Draw`` and returns their rows."""

    items: ClassVar[str]  # the noun of the drawn items: "rows" or "slices"
    draw: Draw

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.ran_out = False

    @property
    def kind(self) -> str:
        """The way of drawing and the kind of items; a state of another kind is rejected."""
        return self.draw.kind.format(self.items)

    @property
    def version(self) -> Hashable:
        """The version of the draw."""
        return self.draw.version

    def advance(self, num_rows: int) -> None:
        """Advance by one batch of ``num_rows`` rows, which ``ahead`` returned."""
        if self.draw.version:  # a draw whose version stays 0 has no position
            self.draw.advance(num_rows)
            self.ran_out = self.draw.ran_out

    def on_clear(self) -> None:
        """Restart the draw."""
        self.draw.restart()

    def state_dict(self) -> StateDict:
        """Return the kind, and the state of the draw."""
        return {"kind": self.kind} | self.draw.state_dict()

    def load_state_dict(self, state: StateDict) -> None:
        """Restore a state of the same kind."""
        if not state and not self.draw.state_dict():
            return  # TorchRL's stateless samplers have an empty state
        check_kind(self.kind, state)
        self.draw.load_state_dict(state)
        self.ran_out = self.draw.ran_out


class SingleRows(DrawSampler):
    """Draws rows."""

    items = "rows"

    def __init__(self, draw: Draw) -> None:
        super().__init__(draw)
        self.supports_lookahead = draw.is_independent or type(draw).ahead is not Draw.ahead

    def __repr__(self) -> str:
        return f"SingleRows({self.draw!r})" if type(self) is SingleRows else super().__repr__()

    def sample(
        self, storage: Storage, batch_size: int, generator: torch.Generator
    ) -> tuple[RowNumbers, Info]:
        """Return row numbers, fewer at the end of an epoch, and their info."""
        drawn = self.draw.take(storage, storage, batch_size, generator)
        self.ran_out = self.draw.ran_out
        return drawn

    def ahead(
        self, storage: Storage, batch_size: int, count: int, generator: torch.Generator | None
    ) -> tuple[RowNumbers, Info] | None:
        """Return the row numbers of the next batches; see ``AheadSampler.ahead``."""
        index = self.draw.ahead(storage, batch_size, count, generator)
        return None if index is None else (index, {})


class RandomSampler(SingleRows):
    """Draws rows uniformly, with replacement."""

    def __init__(self) -> None:
        super().__init__(Uniform())


class SamplerWithoutReplacement(SingleRows):
    """Draws every row once an epoch.

    Args:
        drop_last: skip an incomplete last batch; otherwise the last batch of an epoch is shorter
            if ``batch_size`` does not divide the number of rows.
        shuffle: draw in random order; in storage order otherwise.
    """

    drop_last, shuffle = map(draw_property, ("drop_last", "shuffle"))

    def __init__(self, drop_last: bool = False, shuffle: bool = True) -> None:
        super().__init__(Epochs(shuffle, drop_last))


@dataclass(frozen=True, kw_only=True)
class SharedEpochOptions:
    """How epochs are shared among processes.

    Args:
        num_replicas: the number of ranks; by default that of ``torch.distributed``, or 1.
        rank: the rank of this process; by default that of ``torch.distributed``, or 0.
        shuffle: draw in random order; in storage order otherwise.
        seed: the seed of the order of epochs; it must be the same in all processes.
        drop_last: skip the last rows if the number of processes does not divide the rows.
            Otherwise the first rows of the epoch are drawn again, so that every process draws
            equally many.
    """

    num_replicas: int | None = None
    rank: int | None = None
    shuffle: bool = True
    seed: int = 0
    drop_last: bool = False


class SharedEpochs(Epochs):
    """Epochs that several processes share; one seed gives all of them the same order.

        order of the epoch       7 2 9 4 0 8 3 ...      the same in all processes
        process 0 of 2           7   9   0   3
        process 1 of 2             2   4   8

    ``take`` counts the items of all processes; the items of one are ``processes`` positions apart.
    """

    kind = "shared epochs of {}"

    def __init__(self, shared: SharedEpochOptions, fills_up: bool = True) -> None:
        super().__init__(shared.shuffle, seed=whole_number("seed", shared.seed))
        rank, replicas = process_rank()
        replicas = replicas if shared.num_replicas is None else shared.num_replicas
        self.num_replicas = whole_number("num_replicas", replicas, 1)
        self.rank = whole_number("rank", rank if shared.rank is None else shared.rank)
        if not 0 <= self.rank < self.num_replicas:
            raise wrong_value("rank", f"0 to {self.num_replicas - 1}", self.rank, kind=OutOfRange)
        self.drop_last = shared.drop_last
        self._fills_up = fills_up

    def set_epoch(self, epoch: int) -> None:
        """Start the epoch of this number; without a call, each epoch follows the one before."""
        self.epoch = whole_number("epoch", epoch, 0)
        self.restart()

    def _begin(self, generator: torch.Generator) -> None:
        self.epoch += self.ran_out
        self.restart()

    def _process(self) -> tuple[int, int]:
        return worker_rank(self.rank, self.num_replicas)

    def _share_size(self, remaining: int, process: int, processes: int) -> int:
        # A round gives each process one item. The remaining items are some whole rounds, and a
        # part of one, which only the first processes get an item of.
        if self.drop_last:
            return remaining // processes
        if self._fills_up:
            # `Share` fills the last round up from the start of the order; with few rows it repeats
            # the order several times.
            return -(-remaining // processes)
        return -(-max(0, remaining - process) // processes)

    def _max_position(self, num_items: int) -> int:
        return 2**62  # it counts the rounds that were filled up, too


class SharedSampler(SingleRows):
    """Draws rows in epochs that several processes share."""

    draw: SharedEpochs
    num_replicas, rank, seed = map(draw_property, ("num_replicas", "rank", "seed"))
    shuffle, drop_last = map(draw_property, ("shuffle", "drop_last"))

    @property
    def epoch(self) -> int:
        """The number of the epoch."""
        return self.draw.epoch

    def set_epoch(self, epoch: int) -> None:
        """Start the epoch of this number; without a call, each epoch follows the one before."""
        self.draw.set_epoch(epoch)


@dataclass(frozen=True)
class RankOptions(SharedEpochOptions):
    """The arguments of ``DistributedSampler``."""

    num_replicas: int | None = None
    rank: int | None = None


class DistributedSampler(SharedSampler):
    """Draws every row once an epoch, shared among processes.

    Some rows are drawn twice if the processes do not divide them: all draw equally many.

        order of the epoch       7 2 9 4 0 8 3 ...      the same in all processes
        process 0 of 2           7   9   0   3
        process 1 of 2             2   4   8

    Rows are shared by the conventions of ``torch.utils.data.DistributedSampler``. With a
    ``DataLoader``, each worker of each rank of ``torch.distributed`` is a process.

    Raises:
        OutOfRange: the rank is not below the number of replicas.
    """

    @takes_fields(RankOptions)
    def __init__(self, options: RankOptions) -> None:
        super().__init__(SharedEpochs(options))


def worker_rank(rank: int, num_replicas: int) -> tuple[int, int]:
    """Return the number of this process among all reading processes, and their number."""
    worker = get_worker_info()
    if worker is None:
        return rank, num_replicas
    # Rank by rank, worker by worker; every rank has equally many workers.
    return rank * worker.num_workers + worker.id, num_replicas * worker.num_workers


def process_rank() -> tuple[int, int]:
    """Return the rank of this process in ``torch.distributed``, and the number of ranks."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


MAX_PARTS = 2**20
"""The largest number of processes that share an epoch; a state with more is rejected."""


@dataclass(frozen=True)
class BlockOptions(SharedEpochOptions):
    """The arguments of ``BlockShuffleSampler``.

    Args:
        block_len: consecutive rows in a block.
        window: blocks in a window.
        shuffle: draw in random order; otherwise each process draws a run of rows in storage order.
    """

    block_len: int = 1024
    window: int = 64


class BlockEpochs(SharedEpochs):
    """Epochs of rows in blocks; each process reads its own blocks."""

    kind = "shared epochs of blocks"

    def __init__(self, options: BlockOptions) -> None:
        super().__init__(options)
        self.block_len = whole_number("block_len", options.block_len, 1)
        self.window = whole_number("window", options.window, 1)
        self._parts: int | None = None  # the number of processes at the start of the epoch

    def restart(self) -> None:
        """Start the epoch again."""
        super().restart()
        self._parts = None

    def state_dict(self) -> StateDict:
        """Return the epoch, and the sizes and the number of parts of its order."""
        sizes = {"block_len": self.block_len, "window": self.window, "parts": self._parts}
        return super().state_dict() | sizes

    def load_state_dict(self, state: StateDict) -> None:
        """Continue in the middle of the epoch of a state."""
        block_len, window = state["block_len"], state["window"]
        if (block_len, window) != (self.block_len, self.window):
            raise WrongState(
                f"The state has block_len={block_len!r} and window={window!r}; this sampler has "
                f"block_len={self.block_len} and window={self.window}.",
                expected=(self.block_len, self.window),
                found=(block_len, window),
                advice="Load it into a sampler of the same sizes.",
            )
        parts = state["parts"]
        parts = None if parts is None else whole_number("parts", parts, 1)
        if parts is not None and parts > MAX_PARTS:
            raise WrongState(
                f"The state has an epoch of {parts} processes; expected at most {MAX_PARTS}.",
                key="parts",
                expected=f"at most {MAX_PARTS}",
                found=parts,
            )
        super().load_state_dict(state)
        self._parts = parts

    def _order(self, num_items: int, processes: int) -> Order:
        self._parts = parts = self._parts or processes
        num_each = num_items // parts if self.drop_last else -(-num_items // parts)
        if not self.shuffle:
            return shared_parts(storage_order(num_items), [storage_order(num_each)] * parts)
        blocks, *keys = random_words(self.seed + self.epoch, 1 + parts).tolist()
        window_len = self.window * self.block_len
        within = [window_order(num_each, window_len, key) for key in keys]
        return shared_parts(block_order(num_items, self.block_len, blocks), within)


class BlockShuffleSampler(SharedSampler):
    """Draws every row once an epoch, from a few blocks of consecutive rows at a time.

    Blocks are in random order, and rows are shuffled within a window of several blocks. The disk is
    read in long runs, while ``SamplerWithoutReplacement`` reads scattered rows. The rows of a batch
    come from few blocks, so that neighbouring rows correlate.

    The epoch is shared among ranks and loader workers as by ``DistributedSampler``, except that
    each reads its own blocks.

    Raises:
        OutOfRange: the rank is not below the number of replicas.
        UsageError: a block or a window is empty.
    """

    draw: BlockEpochs
    block_len, window = map(draw_property, ("block_len", "window"))

    @takes_fields(BlockOptions)
    def __init__(self, options: BlockOptions) -> None:
        super().__init__(BlockEpochs(options))

    def __repr__(self) -> str:
        return f"BlockShuffleSampler(block_len={self.block_len}, window={self.window})"


def block_order(num_items: int, block_len: int, key: int) -> Order:
    """Return an order of blocks of items in random order.

    8 items, blocks of 3      0 1 2   3 4 5   6 7      the last block is short
    an order of them          3 4 5   6 7   0 1 2      positions 3 and 4 belong to the short one
    """
    block_len = min(block_len, num_items)
    num_blocks, num_short = divmod(num_items, block_len)
    block_key, short_key = random_words(key, 2).tolist()
    blocks = permutation(num_blocks, block_key)
    # The short block stands before one of the whole blocks, or after all of them.
    short_begin = short_key % (num_blocks + 1) * block_len

    def at(positions: ItemArray) -> ItemArray:
        after_short = positions >= short_begin + num_short
        is_short = (positions >= short_begin) & ~after_short
        # The position among the whole blocks; 0 for items of the short block, replaced at the end.
        among_whole = np.where(is_short, 0, positions - num_short * after_short)
        block, offset = np.divmod(among_whole, block_len)
        items = blocks.at(block) * block_len + offset
        # The items of the short block are the last ones, counted from the end.
        from_end = short_begin + num_short - positions
        return np.where(is_short, num_items - from_end, items)

    return Order(num_items, at)


def window_order(num_items: int, window_len: int, key: int) -> Order:
    """Return an order of items that is shuffled within windows: each item stays in its window."""
    window_len = min(window_len, max(1, num_items))  # numpy counts to 2**63

    @lru_cache(1)
    def order_in(window: int) -> Order:
        remaining = num_items - window * window_len
        return permutation(min(remaining, window_len), key + window)

    def at(positions: ItemArray) -> ItemArray:
        windows = positions // window_len
        items = np.empty_like(positions)
        for window in np.unique(windows).tolist():
            here = windows == window
            begin = window * window_len
            items[here] = begin + order_in(window).at(positions[here] - begin)
        return items

    return Order(num_items, at)


def shared_parts(whole: Order, parts: Sequence[Order]) -> Order:
    """Return an order of one equal part for each process, whose items are taken in turn."""

    def at(positions: ItemArray) -> ItemArray:
        # Position n is turn n // P of part n % P: `Share` gives process p the positions p, p + P...
        turns, numbers = np.divmod(positions, len(parts))
        of_whole = np.empty_like(positions)
        for number in np.unique(numbers).tolist():
            here, order = numbers == number, parts[number]
            of_whole[here] = number * len(order) + order.at(turns[here])
        return whole.at(of_whole % len(whole))  # parts that are filled up start again

    return Order(len(parts) * len(parts[0]), at)
