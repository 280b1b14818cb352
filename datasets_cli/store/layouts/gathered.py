"""Gathered rows: one array for each leaf, or pairs of records. Batches are views of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import torch

from datasets_cli.schema.bits import to_tensor, torch_dtype
from datasets_cli.schema.columns import Column
from datasets_cli.schema.element_types import ITEM_BYTES
from datasets_cli.schema.tree import Slot, Tree, TreePlan
from datasets_cli.store.layouts.record_arrays import PairFields, planned_fields
from datasets_cli.store.layouts.records import Record

AsTensor = Callable[[np.ndarray], torch.Tensor]
"""``to_tensor``, or the faster ``torch.from_numpy`` if numpy has all dtypes of the leaves."""


def as_tensor_of(dtypes: Iterable[np.dtype]) -> AsTensor:
    """Return the function that converts leaves of these dtypes to tensors."""
    return to_tensor if any(dtype.names for dtype in dtypes) else torch.from_numpy


class GatheredLeaves:
    """Gathered rows as one array for each leaf; copies of the stored rows."""

    # leaves: each `[B, ...]`; see `element_types` for dtypes that numpy lacks.

    def __init__(
        self,
        plan: TreePlan,
        slots: Sequence[Slot],
        leaves: Sequence[np.ndarray],
        num_rows: int,
        as_tensor: AsTensor = to_tensor,
    ) -> None:
        self.plan = plan
        self.slots = slots
        self.leaves = leaves
        self.as_tensor = as_tensor
        self._num_rows = num_rows

    def __len__(self) -> int:
        return self._num_rows

    def with_leaf(self, name: str, leaf: np.ndarray) -> GatheredLeaves:
        """Return the rows with one more leaf ``[B, ...]``, at the root."""
        # The root is the plan's first dict.
        return GatheredLeaves(self.plan, [*self.slots, (0, name)], [*self.leaves, leaf], len(leaf))

    def arrays(self, start: int, stop: int) -> Tree:
        """Return the rows ``start`` to ``stop - 1`` as a nested dict of views."""
        return self.nodes(start, stop)[0]

    def tree(self, start: int, stop: int) -> Tree:
        """Return the rows ``start`` to ``stop - 1`` as a nested dict of tensors."""
        # A tensor has only the memory of these rows, so its pickle is not the whole block.
        return self.nodes(start, stop, self.as_tensor)[0]

    def nodes(
        self, start: int, stop: int, form: Callable[[np.ndarray], Any] = np.asarray
    ) -> list[Tree]:
        """Return the dicts of the plan, filled with these rows; the first is the root."""
        nodes = self.plan.new()
        for (node, name), leaf in zip(self.slots, self.leaves, strict=True):
            nodes[node][name] = form(leaf[start:stop])
        return nodes


class DtypeView(NamedTuple):
    """The fields of one dtype within a pair of records.

    two records of 16 bytes      o (float32 [2])  r (float32)  t (bool)  3 bytes of padding
    bytes 0 to 24, as float32    o o  r  .   o o
    sizes                        2    1  1   2       o, r and next.o are the splits 0, 1, 3
    """

    dtype: torch.dtype
    begin: int
    end: int
    sizes: list[int]
    leaves: list[tuple[int, tuple[int, ...] | None, int, str]]


class DtypeViews:
    """The columns in a pair of records, as tensors."""

    def __init__(self, record: Record, plan: TreePlan) -> None:
        self._plan = plan
        by_dtype: dict[str, list[tuple[int, Column]]] = {}
        for offset, column in sorted(planned_fields(record, plan), key=itemgetter(0)):
            by_dtype.setdefault(column.dtype, []).append((offset, column))
        self._views = [self._view(dtype, fields) for dtype, fields in by_dtype.items()]

    def put(
        self, nodes: list[Tree], packed: np.ndarray | torch.Tensor, is_contiguous: bool
    ) -> None:
        """Put the columns of pairs uint8 ``[B, 2 * record]`` into a plan's dicts."""
        if not len(packed) and isinstance(packed, np.ndarray):  # torch has other strides for it
            packed = torch.empty(packed.shape, dtype=torch.uint8)
        for dtype, begin, end, sizes, leaves in self._views:
            part_of = packed[:, begin:end]
            fields = part_of if isinstance(part_of, torch.Tensor) else torch.from_numpy(part_of)
            # "Unsafe", which saves a fifth of the time: autograd ignores changes of the whole, but
            # no other code has that tensor.
            parts = fields.view(dtype).unsafe_split_with_sizes(sizes, 1)
            for part, shape, node, name in leaves:
                leaf = parts[part] if shape is None else parts[part].view(shape)
                nodes[node][name] = leaf.contiguous() if is_contiguous else leaf

    def _view(self, dtype: str, fields: list[tuple[int, Column]]) -> DtypeView:
        """Return the view of the columns of one dtype, ordered by their offset in the pair."""
        item = ITEM_BYTES[dtype]
        sizes: list[int] = []
        leaves: list[tuple[int, tuple[int, ...] | None, int, str]] = []
        begin = end = fields[0][0]
        for offset, column in fields:
            if gap := offset - end:
                sizes.append(gap // item)
            shape = None if len(column.shape) == 1 else (-1, *column.shape)
            leaves.append((len(sizes), shape, *self._plan.slots[column.key]))
            sizes.append(column.row_bytes // item)
            end = offset + column.row_bytes
        return DtypeView(torch_dtype(dtype), begin, end, sizes, leaves)


class GatheredRecords:
    """Gathered rows as pairs of records, and one array for each leaf outside the records."""

    # packed: the pairs, uint8 `[B, 2 * record]`, copies of the stored records.

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

    def with_leaf(self, name: str, leaf: np.ndarray) -> GatheredRecords:
        """Return the rows with one more leaf ``[B, ...]``, at the root."""
        others = self.others.with_leaf(name, leaf)
        return GatheredRecords(self.fields, self.views, self.packed, others, self.is_contiguous)

    def is_like(self, other: GatheredRecords) -> bool:
        """Return whether the records of another dataset have the same columns at the same bytes."""
        return (
            self.fields.dtype == other.fields.dtype
            and self.fields.slots == other.fields.slots
            and list(self.others.slots) == list(other.others.slots)
            and self.is_contiguous == other.is_contiguous
        )

    def arrays(self, start: int, stop: int) -> Tree:
        """Return the rows ``start`` to ``stop - 1`` as a nested dict of views."""
        # Leaves from records are strided, or copied if they must be contiguous.
        nodes = self.others.nodes(start, stop)
        if self.fields.slots:  # numpy has no structured dtype without fields
            pairs = np.ndarray((stop - start,), self.fields.dtype, self.packed[start:stop])
            for field, node, name in self.fields.slots:
                leaf = pairs[field]
                nodes[node][name] = np.ascontiguousarray(leaf) if self.is_contiguous else leaf
        return nodes[0]

    def tree(self, start: int, stop: int) -> Tree:
        """Return the rows ``start`` to ``stop - 1`` as a nested dict of tensors; see ``arrays``."""
        nodes = self.others.nodes(start, stop, self.others.as_tensor)
        self.views.put(nodes, self.packed[start:stop], self.is_contiguous)
        return nodes[0]
