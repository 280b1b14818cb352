"""Joins rows of several datasets into one block, in the order of a draw."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from datasets_cli.schema.tree import TreePlan, entry, leaves_in
from datasets_cli.store.layouts.gathered import GatheredLeaves, GatheredRecords
from datasets_cli.store.layouts.protocol import GatheredRows


class JoinedRows:
    """Joins blocks of rows; each call has blocks of the same datasets in the same order.

        blocks   a0 a1 a2 | b0 b1      the rows of a draw by dataset
        places   0  2  3    1  4       the place of each row in the draw
        joined   a0 b0 a1 a2 b1

    If all records have the same form, one copy moves all of their columns. Otherwise each column is
    copied separately.
    """

    def __init__(self, blocks: Sequence[GatheredRows], key: str) -> None:
        self._key = key
        first = blocks[0]
        self._are_records = isinstance(first, GatheredRecords) and all(
            isinstance(block, GatheredRecords) and block.is_like(first) for block in blocks
        )
        self._keys = [key for key, _ in leaves_in(first.arrays(0, 0))]
        self._plan = TreePlan([*self._keys, (key,)])
        self._slots = [self._plan.slots[name] for name in [*self._keys, (key,)]]

    def join(
        self, blocks: Sequence[GatheredRows], order: np.ndarray, member: np.ndarray
    ) -> GatheredRows:
        """Return the rows of several blocks as one block."""
        # order: the position of each row of the draw in the concatenated blocks, int64 `[B]`.
        # member: the number of the dataset of each row, int64 `[B]`.
        records = [block for block in blocks if isinstance(block, GatheredRecords)]
        if self._are_records:
            return self._joined_records(records, order, member)
        trees = [block.arrays(0, len(block)) for block in blocks]
        leaves = [_joined([entry(tree, key) for tree in trees], order) for key in self._keys]
        return GatheredLeaves(self._plan, self._slots, [*leaves, member], len(order))

    def _joined_records(
        self, blocks: list[GatheredRecords], order: np.ndarray, member: np.ndarray
    ) -> GatheredRecords:
        first = blocks[0]
        others = [block.others for block in blocks]
        columns = zip(*(part.leaves for part in others), strict=True)
        leaves = [_joined(parts, order) for parts in columns]
        beside = GatheredLeaves(others[0].plan, others[0].slots, leaves, len(order))
        packed = _joined([block.packed for block in blocks], order)
        joined = GatheredRecords(first.fields, first.views, packed, beside, first.is_contiguous)
        return joined.with_leaf(self._key, member)


def _joined(parts: Sequence[np.ndarray], order: np.ndarray) -> np.ndarray:
    """Return rows of concatenated arrays ``[n, ...]`` in an order int64 ``[B]``."""
    in_order: np.ndarray = np.concatenate(parts).take(order, 0)
    return in_order
