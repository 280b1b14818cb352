"""Rows in blocks: whole blocks in random order, rows shuffled within windows of some blocks.

rows in the storage      0 1 2 3 | 4 5 6 7 | 8 9 10 11 | 12 13          blocks of 4
``BlockOrder``           8 9 10 11 | 12 13 | 0 1 2 3 | 4 5 6 7
two ``parts``            8 9 10 11 12 13 0   1 2 3 4 5 6 7
``WindowOrder`` of each  10 8 9 11   0 12 13     3 1 4 2   6 7 5        windows of one block
``SharedParts``          10 3 8 1 9 4 11 2 0 6 12 7 13 5
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from datasets_cli.replay.orders.order import Order
from datasets_cli.replay.orders.permutation import permutation, random_words


class BlockOrder:
    """Blocks of consecutive items in random order; the last, which may be shorter, among them."""

    def __init__(self, num_items: int, block_len: int, key: int) -> None:
        self._num_items = num_items
        self._block_len = min(block_len, num_items)
        num_blocks, self._num_short = divmod(num_items, self._block_len)
        block_key, place_key = random_words(key, 2).tolist()
        self._blocks = permutation(num_blocks, block_key)
        # The short block is put before any of the whole ones, or after them all.
        self._short_begin = place_key % (num_blocks + 1) * self._block_len

    def __len__(self) -> int:
        return self._num_items

    def at(self, places: np.ndarray) -> np.ndarray:
        """Return the items int64 ``[n]`` at places int64 ``[n]``."""
        after_short = places >= self._short_begin + self._num_short
        is_short = (places >= self._short_begin) & ~after_short
        among_whole = np.where(is_short, 0, places - self._num_short * after_short)
        block, offset = np.divmod(among_whole, self._block_len)
        items = self._blocks.at(block) * self._block_len + offset
        from_end = self._short_begin + self._num_short - places  # of the short block
        return np.where(is_short, self._num_items - from_end, items)


class WindowOrder:
    """Items shuffled within windows: each stays among some items that follow one another."""

    def __init__(self, num_items: int, window_len: int, key: int) -> None:
        self._num_items = num_items
        self._window_len = min(window_len, max(1, num_items))  # numpy counts to 2**63
        self._key = key
        self._latest: tuple[int, Order] = -1, permutation(0, key)

    def __len__(self) -> int:
        return self._num_items

    def at(self, places: np.ndarray) -> np.ndarray:
        """Return the items int64 ``[n]`` at places int64 ``[n]``."""
        windows = places // self._window_len
        items = np.empty_like(places)
        for window in np.unique(windows).tolist():
            here = windows == window
            begin = window * self._window_len
            items[here] = begin + self._order_in(window).at(places[here] - begin)
        return items

    def _order_in(self, window: int) -> Order:
        """Return the order of the items of a window."""
        if self._latest[0] != window:
            left = self._num_items - window * self._window_len
            self._latest = window, permutation(min(left, self._window_len), self._key + window)
        return self._latest[1]


class SharedParts:
    """An order cut into equal parts, from which items are taken in turn: one part a process."""

    def __init__(self, whole: Order, parts: Sequence[Order]) -> None:
        self._whole = whole
        self._parts = parts

    def __len__(self) -> int:
        return len(self._parts) * len(self._parts[0])

    def at(self, places: np.ndarray) -> np.ndarray:
        """Return the items int64 ``[n]`` at places int64 ``[n]``."""
        turns, parts = np.divmod(places, len(self._parts))
        of_whole = np.empty_like(places)
        for part in np.unique(parts).tolist():
            here, order = parts == part, self._parts[part]
            of_whole[here] = part * len(order) + order.at(turns[here])
        return self._whole.at(of_whole % len(self._whole))
