"""Rows of the ``compact`` layout that were gathered together; batches are views of them."""

from __future__ import annotations

import numpy as np

from datasets_cli.store.compact.dtype_views import DtypeViews
from datasets_cli.store.compact.records import Record
from datasets_cli.store.schema.columns import Key
from datasets_cli.store.schema.element_types import numpy_dtype
from datasets_cli.store.schema.gathered_leaves import GatheredLeaves
from datasets_cli.store.schema.tree import Tree, TreePlan


class PairFields:
    """The columns that a pair of records holds, as the fields of one structured type of numpy.

    two records of 16 bytes    o (float32 [2])  r (float32)  t (bool)  3 bytes of padding
    fields                     o at 0, r at 8, t at 12, next.o at 16
    """

    def __init__(self, record: Record, plan: TreePlan) -> None:
        found: list[tuple[Key, np.dtype, int]] = []
        for field in record.fields:
            dtype = np.dtype((numpy_dtype(field.column.dtype), field.column.shape))
            found.append((field.column.key, dtype, field.offset))
            if field.successor:  # the same field of the pair's second record
                found.append((field.successor, dtype, record.size + field.offset))
        self.slots = [(str(number), *plan.slots[key]) for number, (key, _, _) in enumerate(found)]
        self.dtype = np.dtype(
            {
                "names": [name for name, _, _ in self.slots],
                "formats": [dtype for _, dtype, _ in found],
                "offsets": [offset for _, _, offset in found],
                "itemsize": 2 * record.size,
            }
        )


class GatheredRecords:
    """Gathered rows: pairs of records, and one array for each leaf that records do not hold."""

    # packed: the pairs, uint8 `[B, 2 * record]`, in memory of their own.

    def __init__(
        self,
        fields: PairFields,
        views: DtypeViews,
        packed: np.ndarray,
        others: GatheredLeaves,
        is_contiguous: bool,
    ) -> None:
        self.fields = fields
        self.views = views
        self.packed = packed
        self.others = others
        self.is_contiguous = is_contiguous

    def __len__(self) -> int:
        return len(self.packed)

    def is_like(self, other: GatheredRecords) -> bool:
        """Tell whether the rows of another dataset have the same bytes for the same columns."""
        return (
            self.fields.dtype == other.fields.dtype
            and self.fields.slots == other.fields.slots
            and list(self.others.slots) == list(other.others.slots)
            and self.is_contiguous == other.is_contiguous
        )

    def arrays(self, start: int, stop: int) -> Tree:
        """Return the rows ``start`` to ``stop - 1`` as a nested dict of views."""
        # Those of what records hold are strided, unless leaves are to have memory of their own.
        nodes = self.others.new_arrays(start, stop)
        if self.fields.slots:  # a type without fields is none
            pairs = np.ndarray((stop - start,), self.fields.dtype, self.packed[start:stop])
            for field, node, name in self.fields.slots:
                leaf = pairs[field]
                nodes[node][name] = np.ascontiguousarray(leaf) if self.is_contiguous else leaf
        return nodes[0]

    def tree(self, start: int, stop: int) -> Tree:
        """Return the rows ``start`` to ``stop - 1`` as a nested dict of tensors; see ``arrays``."""
        nodes = self.others.new_tree(start, stop)
        self.views.put(nodes, self.packed[start:stop], self.is_contiguous)
        return nodes[0]
