"""Orders of items by their position, and the share of an order that a process reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from datasets_cli.schema.shapes import ItemArray, Items


@dataclass(frozen=True)
class Order:
    """An order of items; the item at a position is computed on demand."""

    # at: maps positions, each from 0 to the length - 1, to their items.

    num_items: int
    at: Callable[[ItemArray], ItemArray]

    def __len__(self) -> int:
        return self.num_items


def storage_order(num_items: int) -> Order:
    """Return the order in which the position of every item is its number."""
    return Order(num_items, lambda positions: positions)


def listed_order(items: ItemArray) -> Order:
    """Return the order of an array of items."""
    return Order(len(items), items.__getitem__)


READ_ITEMS = 8192
"""Items computed at once: computing them batch by batch costs several times as much."""


class Share:
    """The items of one process in the rest of an order: every ``step``-th item.

    begin 2, step 3     position   0 1 2 3 4 5 6 7 8 ...
                        process        0 1 2 0 1 2 0       offset 0 reads positions 2, 5, 8, ...
    """

    # begin: the position in the order at which the processes start.
    # offset: the position of this process in each round of `step` items.
    # num_items: items in this share; after the last item of the order, its first items repeat.

    def __init__(self, order: Order, num_items: int, begin: int, offset: int, step: int) -> None:
        self.num_items = num_items
        self.begin = begin
        self.step = step
        self._order = order
        self._offset = offset
        self._read = torch.empty(0, dtype=torch.int64)
        self._read_begin = 0  # the number in the share of the first item of `_read`

    def take(self, start: int, count: int) -> Items:
        """Return ``count`` items from number ``start`` of the share, fewer at the end."""
        count = min(count, self.num_items - start)
        skipped = start - self._read_begin
        if not 0 <= skipped <= len(self._read) - count:
            self._read_from(start, count)
            skipped = 0
        return self._read[skipped : skipped + count].clone()

    def _read_from(self, start: int, count: int) -> None:
        """Compute several thousand items, in whole batches of ``count``."""
        many = max(1, READ_ITEMS // count) * count
        stop = min(start + many, self.num_items)
        # Round n of all processes starts at position `begin + n * step`.
        positions = self.begin + self._offset + self.step * np.arange(start, stop)
        if positions[-1] >= (num_positions := len(self._order)):
            positions %= num_positions
        self._read, self._read_begin = torch.from_numpy(self._order.at(positions)), start


SORTED_ITEMS = 4096
"""Up to this number of items, every order is equally likely, and is stored as an array."""

ROUNDS = 4
"""Rounds of the network, of two steps each. With 4 rounds, items one table row apart are as random
as any two if there are 500 items or more; with 3 if there are 1,000; with 2 not even for 65,000."""


def permutation(num_items: int, key: int) -> Order:
    """Return a random order of the items 0 ... N - 1."""
    if num_items <= SORTED_ITEMS:
        return listed_order(random_words(key, num_items).argsort(kind="stable"))
    return Order(num_items, FeistelOrder(num_items, key).at)


class FeistelOrder:
    """A random order of many items, by a Feistel network (Luby and Rackoff, 1988).

    The items are cells of a table, which has at least one cell more than there are items:

        cell = left * width + right                 left < height, right < width
        left = (left + to_left[right]) % height     to_left: a random number for each right
        right = right ^ to_right[left]              to_right: a random number for each left

    Both steps are invertible, so that they permute the cells. A cell that is not an item is
    permuted again until it is one. Every position costs the same. Memory holds random numbers for
    each row and column of the table, not for each item.
    """

    def __init__(self, num_items: int, key: int) -> None:
        self._num_items = num_items
        self._shift = num_items.bit_length() // 2
        # An even height: an odd one reaches only permutations of one sign.
        width, height = 1 << self._shift, (num_items >> self._shift) // 2 * 2 + 2
        self._mask, self._height = width - 1, height
        # The upper halves of words: a product with the height then fits into 64 bits.
        words = random_words(key, ROUNDS * (width + height)) >> np.uint64(32)
        to_left, to_right = np.split(words, [ROUNDS * width])
        below_height = (to_left * np.uint64(height)) >> np.uint64(32)
        below_width = to_right & np.uint64(self._mask)
        # Minus the height: a sum below 0 in `_permuted` is one that was below the height.
        self._to_left = below_height.astype(np.int64).reshape(ROUNDS, width) - height
        self._to_right = below_width.astype(np.int64).reshape(ROUNDS, height)

    def at(self, positions: ItemArray) -> ItemArray:
        """Return the items at positions."""
        items = self._permuted(positions)
        outside = np.flatnonzero(items >= self._num_items)
        while len(outside):
            items[outside] = self._permuted(items[outside])
            outside = outside[items[outside] >= self._num_items]
        return items

    def _permuted(self, cells: ItemArray) -> ItemArray:
        """Apply the Feistel network to ``cells`` and return the resulting cells."""
        left, right = cells >> self._shift, cells & self._mask
        change = np.empty_like(left)  # steps work in place: memory takes half of their time
        for to_left, to_right in zip(self._to_left, self._to_right, strict=True):
            # left = (left + to_left[right]) % height, where `to_left` has the height subtracted:
            left += to_left.take(right, out=change, mode="clip")
            np.right_shift(left, 63, out=change)  # all bits set if negative, otherwise 0
            change &= self._height
            left += change  # plus the height if negative
            right ^= to_right.take(left, out=change, mode="clip")
        left <<= self._shift  # cell = left * width + right
        left |= right
        return left


# SplitMix64: Steele, Lea and Flood, 2014, "Fast splittable pseudorandom number generators".
_STEP = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)


def random_words(key: int, count: int) -> np.ndarray:
    """Return random words uint64 ``[count]``."""
    # Mix the key: otherwise the words of key 1 equal the words of key 0, shifted by one word.
    start = _mix(np.array([key % 2**64], np.uint64))
    return _mix(start + _STEP * np.arange(1, count + 1, dtype=np.uint64))


def _mix(words: np.ndarray) -> np.ndarray:
    """Return hashes of words: each bit depends on all bits of the word."""
    mixed: np.ndarray = words ^ (words >> _SHIFTS[0])
    mixed *= _FACTORS[0]
    mixed ^= mixed >> _SHIFTS[1]
    mixed *= _FACTORS[1]
    mixed ^= mixed >> _SHIFTS[2]
    return mixed
