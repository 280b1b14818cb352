"""The sampler for datasets larger than the memory: whole blocks of rows in random order, shuffled.

rows in the storage        0 1 2 3 | 4 5 6 7 | 8 9 10 11 | 12 13          blocks of 4
``block_order``            8 9 10 11 | 12 13 | 0 1 2 3 | 4 5 6 7
two ``parts``              8 9 10 11 12 13 0   1 2 3 4 5 6 7
``window_order`` of each   10 8 9 11   0 12 13     3 1 4 2   6 7 5        windows of one block
``shared_parts``           10 3 8 1 9 4 11 2 0 6 12 7 13 5
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from datasets_cli.errors import UsageError
from datasets_cli.options import takes_fields
from datasets_cli.replay.arguments import StateDict, whole_number
from datasets_cli.replay.draws.distributed import SharedEpochOptions, SharedEpochs, SharedSampler
from datasets_cli.replay.draws.orders import Order, permutation, random_words, storage_order
from datasets_cli.replay.draws.rows import of_draw

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
    block_len, window = map(of_draw, ("block_len", "window"))

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
