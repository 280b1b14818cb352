"""Joins rows of several datasets into one block, in the order of a draw."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import torch

from datasets_cli.schema.bits import to_tensor, torch_dtype
from datasets_cli.schema.columns import ITEM_BYTES, Column
from datasets_cli.schema.tree import Slot, Tree, TreePlan, entry, leaves_in
from datasets_cli.store.layouts.protocol import GatheredRows
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
