"""Rows that were gathered together, one array per leaf; batches are views of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from datasets_cli.schema.bits import to_tensor
from datasets_cli.schema.tree import Slot, Tree, TreePlan


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
        return self.nodes(start, stop)[0]

    def tree(self, start: int, stop: int) -> Tree:
        """Return the rows ``start`` to ``stop - 1`` as a nested dict of tensors."""
        # Each has the memory of these rows alone, so that what is pickled is not the whole block.
        return self.nodes(start, stop, to_tensor)[0]

    def nodes(
        self, start: int, stop: int, form: Callable[[np.ndarray], Any] = np.asarray
    ) -> list[Tree]:
        """Return the plan's dicts with these rows in them; the first is the root."""
        nodes = self.plan.new()
        for (node, name), leaf in zip(self.slots, self.leaves, strict=True):
            nodes[node][name] = form(leaf[start:stop])
        return nodes
