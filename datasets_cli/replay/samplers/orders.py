"""An order: which item comes at which place; and the share of it that a process reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class Order:
    """Some items, each at one place: which are at places is worked out when it is asked for."""

    # at: takes places int64 `[n]`, each from 0 to the length - 1, and returns their items.

    num_items: int
    at: Callable[[np.ndarray], np.ndarray]

    def __len__(self) -> int:
        return self.num_items


def storage_order(num_items: int) -> Order:
    """Return the order in which every item is at the place of its number."""
    return Order(num_items, lambda places: places)


def listed_order(items: np.ndarray) -> Order:
    """Return an order of items int64 ``[N]`` that is kept as a whole."""
    return Order(len(items), items.__getitem__)


READ_ITEMS = 8192
"""Items worked out at once: for each batch alone they would cost several times as much."""


class Share:
    """One process's share of what is left of an order: every ``step``-th item from a place on."""

    # begin: the place in the order from which on items are shared out.
    # offset: this process's place in each round of `step` items.
    # num_items: items in this share; after the last item of the order come its first ones again.

    def __init__(self, order: Order, num_items: int, begin: int, offset: int, step: int) -> None:
        self.num_items = num_items
        self.begin = begin
        self.step = step
        self._order = order
        self._offset = offset
        self._read = torch.empty(0, dtype=torch.int64)
        self._read_begin = 0  # the number in the share of the first item that was read

    def take(self, start: int, count: int) -> torch.Tensor:
        """Return the items int64 ``[count]`` from number ``start`` on, fewer at the end."""
        count = min(count, self.num_items - start)
        skipped = start - self._read_begin
        if not 0 <= skipped <= len(self._read) - count:
            self._read_from(start, count)
            skipped = 0
        return self._read[skipped : skipped + count].clone()

    def _read_from(self, start: int, count: int) -> None:
        """Work out some thousand items, in whole batches of ``count``."""
        many = max(1, READ_ITEMS // count) * count
        stop = min(start + many, self.num_items)
        # The n-th round of all processes is the `step` places from `begin + n * step` on.
        places = self.begin + self._offset + self.step * np.arange(start, stop)
        if places[-1] >= (num_places := len(self._order)):
            places %= num_places
        self._read, self._read_begin = torch.from_numpy(self._order.at(places)), start


SORTED_ITEMS = 4096
"""Up to this number of items, every order is equally likely, and kept as a whole."""

ROUNDS = 4
"""Of two steps each. Of 4, items a row of the table apart are as random as others from 500 items
on; of 3 from 1,000 on, and of 2 not even among 65,000."""


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

    Both steps can be undone, so that every cell becomes another one. A cell that is not an item is
    permuted again until it is one. All places cost the same, and what is kept are some random
    numbers for each row and column of the table, not for each item.
    """

    def __init__(self, num_items: int, key: int) -> None:
        self._num_items = num_items
        self._shift = num_items.bit_length() // 2
        # Even, as otherwise only permutations of one sign are reached.
        width, height = 1 << self._shift, (num_items >> self._shift) // 2 * 2 + 2
        self._mask, self._height = width - 1, height
        # Upper halves of words, so that a product with the height fits into 64 bits.
        words = random_words(key, ROUNDS * (width + height)) >> np.uint64(32)
        to_left, to_right = np.split(words, [ROUNDS * width])
        below_height = (to_left * np.uint64(height)) >> np.uint64(32)
        below_width = to_right & np.uint64(self._mask)
        # Less the height, so that what is below 0 after the addition was below the height.
        self._to_left = below_height.astype(np.int64).reshape(ROUNDS, width) - height
        self._to_right = below_width.astype(np.int64).reshape(ROUNDS, height)

    def at(self, places: np.ndarray) -> np.ndarray:
        """Return the items int64 ``[n]`` at places int64 ``[n]``."""
        items = self._permuted(places)
        outside = np.flatnonzero(items >= self._num_items)
        while len(outside):
            items[outside] = self._permuted(items[outside])
            outside = outside[items[outside] >= self._num_items]
        return items

    def _permuted(self, cells: np.ndarray) -> np.ndarray:
        """Return the cells int64 ``[n]`` that cells int64 ``[n]`` become."""
        left, right = cells >> self._shift, cells & self._mask
        change = np.empty_like(left)  # all steps are done in place: half of their time is memory
        for to_left, to_right in zip(self._to_left, self._to_right, strict=True):
            left += to_left.take(right, out=change, mode="clip")
            np.right_shift(left, 63, out=change)  # all bits where it is below 0, and none elsewhere
            change &= self._height
            left += change
            right ^= to_right.take(left, out=change, mode="clip")
        left <<= self._shift
        left |= right
        return left


# SplitMix64: Steele, Lea and Flood, 2014, "Fast splittable pseudorandom number generators".
_STEP = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)


def random_words(key: int, count: int) -> np.ndarray:
    """Return random words uint64 ``[count]``."""
    # Mixed first, because the words of key 1 would otherwise be those of key 0 one word later.
    start = _mix(np.array([key % 2**64], np.uint64))
    return _mix(start + _STEP * np.arange(1, count + 1, dtype=np.uint64))


def _mix(words: np.ndarray) -> np.ndarray:
    """Return words of which each bit depends on all bits of the word that was given."""
    mixed: np.ndarray = words ^ (words >> _SHIFTS[0])
    mixed *= _FACTORS[0]
    mixed ^= mixed >> _SHIFTS[1]
    mixed *= _FACTORS[1]
    mixed ^= mixed >> _SHIFTS[2]
    return mixed
