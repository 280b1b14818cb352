"""Rows of the ``ted`` layout that were gathered together; batches are views of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from datasets_cli.store.schema.tree import Slot, Tree, TreePlan


class Block:
    """Gathered rows: one array per leaf, in memory of their own.

    Args:
        plan: where each key is in a nested dict.
        slots: which of the plan's dicts holds each leaf, and under which name.
        leaves: each ``[B, ...]``; see ``element_types`` for what numpy does not have.
        num_rows: B.
    """

    def __init__(
        self,
        plan: TreePlan,
        slots: Sequence[Slot],
        leaves: Sequence[np.ndarray],
        num_rows: int,
    ) -> None:
        self.plan = plan
        self.slots = slots
        self.leaves = leaves
        self._num_rows = num_rows

    def __len__(self) -> int:
        return self._num_rows

    def arrays(self, start: int, stop: int) -> Tree:
        """Return the rows ``start`` to ``stop - 1`` as a nested dict of views."""
        nodes = self.plan.new()
        for (node, name), leaf in zip(self.slots, self.leaves, strict=True):
            nodes[node][name] = leaf[start:stop]
        return nodes[0]


def take_rows(leaf: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Return copies of the rows ``index`` int64 ``[B]`` of a leaf, numbers that ``check_rows`` saw.

    The mode keeps numpy from checking them once more, through a copy of what it takes.
    """
    return leaf.take(index, axis=0, mode="clip")


def check_rows(index: np.ndarray, num_rows: int) -> None:
    """Check that rows exist.

    Raises:
        IndexError: one does not, a negative one among them.
    """
    # As unsigned numbers the negative ones are huge, so one comparison finds both.
    if len(index) and int(index.astype(np.int64, copy=False).view(np.uint64).max()) >= num_rows:
        wrong = index[(index < 0) | (index >= num_rows)]
        raise IndexError(f"Rows are whole numbers from 0 to {num_rows - 1}, not {wrong[0]}.")
