"""An order: which item comes at which place; and the share of it that a process reads."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch


class Order(Protocol):
    """Some items, each at one place."""

    def __len__(self) -> int:
        """Return how many items there are."""

    def at(self, places: np.ndarray) -> np.ndarray:
        """Return the items int64 ``[n]`` at places int64 ``[n]``, each from 0 to the length - 1."""


class StorageOrder:
    """Every item at the place of its number."""

    def __init__(self, num_items: int) -> None:
        self._num_items = num_items

    def __len__(self) -> int:
        return self._num_items

    def at(self, places: np.ndarray) -> np.ndarray:
        """Return the items int64 ``[n]`` at places int64 ``[n]``."""
        return places


class ListedOrder:
    """Items in an order that is kept as a whole."""

    # items: int64 `[N]`.

    def __init__(self, items: np.ndarray) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def at(self, places: np.ndarray) -> np.ndarray:
        """Return the items int64 ``[n]`` at places int64 ``[n]``."""
        items: np.ndarray = self._items[places]
        return items


READ_ITEMS = 8192
"""Items worked out at once: for each batch alone they would cost several times as much."""


class Share:
    """Every k-th item of an order, from a place on; after the last item of the order its first."""

    def __init__(self, order: Order, num_items: int, begin: int = 0, step: int = 1) -> None:
        self._order = order
        self._num_items = num_items
        self._begin = begin
        self._step = step
        self._read = torch.empty(0, dtype=torch.int64)
        self._read_begin = 0  # the number in the share of the first item that was read

    def __len__(self) -> int:
        return self._num_items

    def take(self, start: int, count: int) -> torch.Tensor:
        """Return the items int64 ``[count]`` from number ``start`` on, fewer at the end."""
        count = min(count, self._num_items - start)
        skipped = start - self._read_begin
        if not 0 <= skipped <= len(self._read) - count:
            self._read_from(start, count)
            skipped = 0
        return self._read[skipped : skipped + count].clone()

    def _read_from(self, start: int, count: int) -> None:
        """Work out some thousand items, in whole batches of ``count``."""
        many = max(1, READ_ITEMS // count) * count
        stop = min(start + many, self._num_items)
        places = self._begin + self._step * np.arange(start, stop)
        if places[-1] >= (num_places := len(self._order)):
            places %= num_places
        self._read, self._read_begin = torch.from_numpy(self._order.at(places)), start
