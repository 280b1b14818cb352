"""Rows that were gathered together, one array per leaf; batches are views of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from datasets_cli.store.schema.bits import to_tensor
from datasets_cli.store.schema.tree import Slot, Tree, TreePlan


class GatheredLeaves:
    """Gathered rows: one array per leaf, in memory of their own."""

    # leaves: each `[B, ...]`; see `element_types` for what numpy does not have.

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
        return self.new_arrays(start, stop)[0]

    def tree(self, start: int, stop: int) -> Tree:
        """Return the rows ``start`` to ``stop - 1`` as a nested dict of tensors."""
        # Each has the memory of these rows alone, so that what is pickled is not the whole block.
        return self.new_tree(start, stop)[0]

    def new_arrays(self, start: int, stop: int) -> list[Tree]:
        """Return the plan's dicts with the leaves in them; the first is the root."""
        nodes = self.plan.new()
        for (node, name), leaf in zip(self.slots, self.leaves, strict=True):
            nodes[node][name] = leaf[start:stop]
        return nodes

    def new_tree(self, start: int, stop: int) -> list[Tree]:
        """Return the plan's dicts with tensors in them; the first is the root."""
        nodes = self.plan.new()
        for (node, name), leaf in zip(self.slots, self.leaves, strict=True):
            nodes[node][name] = to_tensor(leaf[start:stop])
        return nodes
