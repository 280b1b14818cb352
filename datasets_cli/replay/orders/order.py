"""An order: which item comes at which place."""

from __future__ import annotations

from typing import Protocol

import numpy as np


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
