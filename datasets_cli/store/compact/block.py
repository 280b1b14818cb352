"""Rows of the ``compact`` layout that were gathered together; batches are views of them."""

from __future__ import annotations

import numpy as np

from datasets_cli.store.compact.records import Record
from datasets_cli.store.schema.arrays import numpy_dtype
from datasets_cli.store.schema.columns import Key
from datasets_cli.store.schema.tree import Slot, Tree, TreePlan


class PairFields:
    """The columns that a pair of records holds, as the fields of one structured type of numpy.

        two records of 16 bytes    o (float32 [2])  r (float32)  t (bool)  3 bytes of padding
        fields                     o at 0, r at 8, t at 12, next.o at 16

    Args:
        record: how records are laid out.
        plan: where each key is in a nested dict.
        others: where the leaves are that records do not hold.
        is_contiguous: whether each leaf of a batch has memory of its own.
    """

    def __init__(
        self, record: Record, plan: TreePlan, others: list[Slot], *, is_contiguous: bool
    ) -> None:
        found: list[tuple[Key, np.dtype, int]] = []
        for field in record.fields:
            dtype = np.dtype((numpy_dtype(field.column.dtype), field.column.shape))
            found.append((field.column.key, dtype, field.offset))
            if field.successor:  # the same field of the pair's second record
                found.append((field.successor, dtype, record.size + field.offset))
        self.plan = plan
        self.others = others
        self.is_contiguous = is_contiguous
        self.slots = [(str(number), *plan.slot(key)) for number, (key, _, _) in enumerate(found)]
        self.dtype = np.dtype(
            {
                "names": [name for name, _, _ in self.slots],
                "formats": [dtype for _, dtype, _ in found],
                "offsets": [offset for _, _, offset in found],
                "itemsize": 2 * record.size,
            }
        )


class Block:
    """Gathered rows: pairs of records, and one array for each leaf that records do not hold.

    Args:
        fields: the columns of a pair, and where all leaves are.
        packed: the pairs, uint8 ``[B, 2 * record]``, in memory of their own.
        leaves: ``episode``, constants and frames, each ``[B, ...]``, as ``fields.others``.
    """

    def __init__(self, fields: PairFields, packed: np.ndarray, leaves: list[np.ndarray]) -> None:
        self.fields = fields
        self.packed = packed
        self.leaves = leaves

    def __len__(self) -> int:
        return len(self.packed)

    def arrays(self, start: int, stop: int) -> Tree:
        """Return the rows ``start`` to ``stop - 1`` as a nested dict of views.

        Those of what records hold are strided, unless leaves are to have memory of their own.
        """
        fields = self.fields
        nodes = fields.plan.new()
        if fields.slots:  # a type without fields is none
            pairs = np.ndarray((stop - start,), fields.dtype, self.packed[start:stop])
            for field, node, name in fields.slots:
                nodes[node][name] = pairs[field]
                if fields.is_contiguous:
                    nodes[node][name] = np.ascontiguousarray(pairs[field])
        for (node, name), leaf in zip(fields.others, self.leaves, strict=True):
            nodes[node][name] = leaf[start:stop]
        return nodes[0]
