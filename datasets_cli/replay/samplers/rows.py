"""Samplers of rows: a draw, of which each item is a row of the batch.

A sampler sees a storage only as a number of rows and a table of trajectories, and draws from the
generator that the buffer hands it: the same generator state gives the same batches.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import torch
from torch.utils.data import get_worker_info

from datasets_cli.errors import UsageError
from datasets_cli.options import takes_fields
from datasets_cli.replay.arguments import StateDict, whole_number
from datasets_cli.replay.samplers.epochs import Epochs
from datasets_cli.replay.samplers.orders import Order, permutation, random_words, storage_order
from datasets_cli.replay.samplers.protocol import AheadSampler, Draw, Info, Uniform, check_kind
from datasets_cli.replay.storages.protocol import Storage


def draw_property(name: str) -> Any:
    """Return a property of a sampler that is an attribute of its draw."""
    return property(lambda sampler: getattr(sampler.draw, name), doc=f"``{name}`` of the draw.")


class DrawSampler(AheadSampler):
    """A draw under a cut: the one says what comes next, the other makes rows of it."""

    items: ClassVar[str]  # what is drawn
    draw: Draw

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.ran_out = False

    @property
    def kind(self) -> str:
        """The way of drawing, and what is drawn; a state of another kind is refused."""
        return self.draw.kind.format(self.items)

    @property
    def version(self) -> Hashable:
        """Where the draws stand, but for the generator."""
        return self.draw.version

    def advance(self, num_rows: int) -> None:
        """Learn that the next rows of ``ahead`` were handed out, a batch of ``num_rows``."""
        if self.draw.version:  # otherwise it does not count what it gave
            self.draw.advance(num_rows)
            self.ran_out = self.draw.ran_out

    def on_clear(self) -> None:
        """Begin again."""
        self.draw.restart()

    def state_dict(self) -> StateDict:
        """Return the kind, and where the draw stands but for the generator."""
        return {"kind": self.kind} | self.draw.state_dict()

    def load_state_dict(self, state: StateDict) -> None:
        """Continue where ``state`` was taken."""
        if not state and not self.draw.state_dict():
            return  # TorchRL's samplers without a state have an empty one
        check_kind(self.kind, state)
        self.draw.load_state_dict(state)
        self.ran_out = self.draw.ran_out


class SingleRows(DrawSampler):
    """Draws rows."""

    items = "rows"

    def __init__(self, draw: Draw) -> None:
        super().__init__(draw)
        self.supports_lookahead = type(draw).ahead is not Draw.ahead

    def __repr__(self) -> str:
        return f"SingleRows({self.draw!r})" if type(self) is SingleRows else super().__repr__()

    def sample(
        self, storage: Storage, batch_size: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return rows int64 ``[B]``, fewer at the end of an epoch, and what is said of them."""
        drawn = self.draw.take(storage, storage, batch_size, generator)
        self.ran_out = self.draw.ran_out
        return drawn

    def ahead(
        self, storage: Storage, batch_size: int, count: int, generator: torch.Generator | None
    ) -> tuple[torch.Tensor, Info] | None:
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
        drop_last: leave out a last batch that would be short; otherwise the last batch of an epoch
            is shorter where ``batch_size`` does not divide the rows.
        shuffle: draw in random order; in storage order otherwise.
    """

    drop_last, shuffle = map(draw_property, ("drop_last", "shuffle"))

    def __init__(self, drop_last: bool = False, shuffle: bool = True) -> None:
        super().__init__(Epochs(shuffle, drop_last))


@dataclass(frozen=True, kw_only=True)
class SharedEpochOptions:
    """How epochs are shared among processes.

    Args:
        num_replicas: ranks; those of ``torch.distributed`` by default, or 1.
        rank: which one this is; that of ``torch.distributed`` by default, or 0.
        shuffle: draw in random order; in storage order otherwise.
        seed: orders the epochs; it must be the same in all processes.
        drop_last: leave out the last rows where the processes do not divide them; otherwise the
            first rows of the epoch fill them up, so that every process draws equally many.
    """

    num_replicas: int | None = None
    rank: int | None = None
    shuffle: bool = True
    seed: int = 0
    drop_last: bool = False


class SharedEpochs(Epochs):
    """Epochs that several processes share, in orders that one seed gives all of them.

        order of the epoch       7 2 9 4 0 8 3 ...      the same in all processes
        process 0 of 2           7   9   0   3
        process 1 of 2             2   4   8

    ``take`` counts what all have drawn: each process's items are ``processes`` places apart.
    """

    kind = "shared epochs of {}"

    def __init__(self, shared: SharedEpochOptions, fills_up: bool = True) -> None:
        super().__init__(shared.shuffle, seed=whole_number("seed", shared.seed))
        rank, replicas = process_rank()
        replicas = replicas if shared.num_replicas is None else shared.num_replicas
        self.num_replicas = whole_number("num_replicas", replicas, 1)
        self.rank = whole_number("rank", rank if shared.rank is None else shared.rank)
        if not 0 <= self.rank < self.num_replicas:
            raise UsageError(f"There is no rank {self.rank} of {self.num_replicas}.")
        self.drop_last = shared.drop_last
        self._fills_up = fills_up

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch; otherwise one follows another."""
        self.epoch = whole_number("epoch", epoch, 0)
        self.restart()

    def _begin(self, generator: torch.Generator) -> None:
        self.epoch += self.ran_out
        self.restart()

    def _process(self) -> tuple[int, int]:
        return share(self.rank, self.num_replicas)

    def _num_mine(self, left: int, process: int, processes: int) -> int:
        # A round gives each process one item; the items left are some whole rounds and a part of
        # one, of which the first processes have a place.
        if self.drop_last:
            return left // processes
        if self._fills_up:
            # The last round is filled up from the beginning of the order, which `Share` repeats;
            # with few rows more than once.
            return -(-left // processes)
        return -(-max(0, left - process) // processes)

    def _most_drawn(self, num_items: int) -> int:
        return 2**62  # rounds that were filled up count, too


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
        """Begin an epoch; otherwise one follows another."""
        self.draw.set_epoch(epoch)


@dataclass(frozen=True)
class RankOptions(SharedEpochOptions):
    """What ``DistributedSampler`` takes."""

    num_replicas: int | None = None
    rank: int | None = None


class DistributedSampler(SharedSampler):
    """Draws every row once an epoch, shared by processes; some twice, so that all draw as many.

        order of the epoch       7 2 9 4 0 8 3 ...      the same in all processes
        process 0 of 2           7   9   0   3
        process 1 of 2             2   4   8

    Rows are shared by the conventions of ``torch.utils.data.DistributedSampler``. A process here is
    a worker of a ``DataLoader`` on a rank of ``torch.distributed``, where there are such.

    Raises:
        UsageError: the rank is not below the number of replicas.
    """

    @takes_fields(RankOptions)
    def __init__(self, options: RankOptions) -> None:
        super().__init__(SharedEpochs(options))


def share(rank: int, num_replicas: int) -> tuple[int, int]:
    """Return the number of this process among all that read, and how many they are."""
    worker = get_worker_info()
    if worker is None:
        return rank, num_replicas
    # Workers of a rank stand one after the other; every rank has as many.
    return rank * worker.num_workers + worker.id, num_replicas * worker.num_workers


def process_rank() -> tuple[int, int]:
    """Return the rank of this process in ``torch.distributed``, and the number of ranks."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


MOST_PARTS = 2**20
"""Processes that share an epoch; a state that says more is not a state of ours."""


@dataclass(frozen=True)
class BlockOptions(SharedEpochOptions):
    """What ``BlockShuffleSampler`` takes.

    Args:
        block_len: consecutive rows in a block.
        window: blocks in a window.
        shuffle: draw in random order; otherwise each process draws a run of rows in storage order.
    """

    block_len: int = 1024
    window: int = 64


class BlockEpochs(SharedEpochs):
    """Epochs of rows in blocks, of which each process reads other blocks."""

    kind = "shared epochs of blocks"

    def __init__(self, options: BlockOptions) -> None:
        super().__init__(options)
        self.block_len = whole_number("block_len", options.block_len, 1)
        self.window = whole_number("window", options.window, 1)
        self._parts: int | None = None  # processes that the epoch began with

    def restart(self) -> None:
        """Begin the epoch again."""
        super().restart()
        self._parts = None

    def state_dict(self) -> StateDict:
        """Return the epoch, and the sizes and the parts of its order."""
        sizes = {"block_len": self.block_len, "window": self.window, "parts": self._parts}
        return super().state_dict() | sizes

    def load_state_dict(self, state: StateDict) -> None:
        """Continue in the middle of the epoch that ``state`` names."""
        theirs = state["block_len"], state["window"]
        if theirs != (self.block_len, self.window):
            raise UsageError(
                f"The state is of windows of {theirs[1]} blocks of {theirs[0]} rows, not of "
                f"{self.window} of {self.block_len}. Make a sampler of these sizes for it."
            )
        parts = state["parts"]
        parts = None if parts is None else whole_number("parts", parts, 1)
        if parts is not None and parts > MOST_PARTS:
            raise UsageError(f"An epoch has at most {MOST_PARTS} processes, not {parts}.")
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
    """Draws every row once an epoch, from some blocks of consecutive rows at a time.

    The blocks come in random order, and rows are shuffled within a window of some blocks. So the
    disk is read in long runs where ``SamplerWithoutReplacement`` reads scattered rows, and the
    rows of a batch are of few blocks, and related as neighbours are.

    The epoch is shared among ranks and loader workers as by ``DistributedSampler``, some twice,
    except that each reads other blocks.

    Raises:
        UsageError: the rank is not below the number of replicas, or a block or a window is empty.
    """

    draw: BlockEpochs
    block_len, window = map(draw_property, ("block_len", "window"))

    @takes_fields(BlockOptions)
    def __init__(self, options: BlockOptions) -> None:
        super().__init__(BlockEpochs(options))

    def __repr__(self) -> str:
        return f"BlockShuffleSampler(block_len={self.block_len}, window={self.window})"


def block_order(num_items: int, block_len: int, key: int) -> Order:
    """Return blocks of items in random order; the last, which may be shorter, among them."""
    block_len = min(block_len, num_items)
    num_blocks, num_short = divmod(num_items, block_len)
    block_key, place_key = random_words(key, 2).tolist()
    blocks = permutation(num_blocks, block_key)
    # The short block is put before any of the whole ones, or after them all.
    short_begin = place_key % (num_blocks + 1) * block_len

    def at(places: np.ndarray) -> np.ndarray:
        after_short = places >= short_begin + num_short
        is_short = (places >= short_begin) & ~after_short
        # Without the short block, whose places get any of the whole ones' until the last line.
        among_whole = np.where(is_short, 0, places - num_short * after_short)
        block, offset = np.divmod(among_whole, block_len)
        items = blocks.at(block) * block_len + offset
        from_end = short_begin + num_short - places  # the short block's items are the last ones
        return np.where(is_short, num_items - from_end, items)

    return Order(num_items, at)


def window_order(num_items: int, window_len: int, key: int) -> Order:
    """Return items shuffled within windows: each stays among some that follow one another."""
    window_len = min(window_len, max(1, num_items))  # numpy counts to 2**63

    @lru_cache(1)
    def order_in(window: int) -> Order:
        left = num_items - window * window_len
        return permutation(min(left, window_len), key + window)

    def at(places: np.ndarray) -> np.ndarray:
        windows = places // window_len
        items = np.empty_like(places)
        for window in np.unique(windows).tolist():
            here = windows == window
            begin = window * window_len
            items[here] = begin + order_in(window).at(places[here] - begin)
        return items

    return Order(num_items, at)


def shared_parts(whole: Order, parts: Sequence[Order]) -> Order:
    """Return an order cut into equal parts, from which items are taken in turn: one a process."""

    def at(places: np.ndarray) -> np.ndarray:
        # Place n is turn n // P of part n % P, as `Share` gives process p the places p, p + P, ...
        turns, numbers = np.divmod(places, len(parts))
        of_whole = np.empty_like(places)
        for number in np.unique(numbers).tolist():
            here, order = numbers == number, parts[number]
            of_whole[here] = number * len(order) + order.at(turns[here])
        return whole.at(of_whole % len(whole))  # parts that are filled up begin again

    return Order(len(parts) * len(parts[0]), at)
