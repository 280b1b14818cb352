"""The columns of gathered records as tensors: views of their bytes, one split per element type."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from datasets_cli.store.compact.records import Record
from datasets_cli.store.schema.bits import torch_dtype
from datasets_cli.store.schema.columns import Column, Key
from datasets_cli.store.schema.element_types import ITEM_BYTES
from datasets_cli.store.schema.tree import Tree, TreePlan


class DtypeView(NamedTuple):
    """The fields of one element type within a pair of records.

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
    """The columns that a pair of records holds, as tensors."""

    def __init__(self, record: Record, plan: TreePlan) -> None:
        self._plan = plan
        by_dtype: dict[str, list[tuple[int, Column, Key]]] = {}
        for field in record.fields:
            fields = by_dtype.setdefault(field.column.dtype, [])
            fields.append((field.offset, field.column, field.column.key))
            if field.successor:  # the same field of the pair's second record
                fields.append((record.size + field.offset, field.column, field.successor))
        # Each with its fields in the order of their bytes.
        self._views = [self._view(dtype, sorted(fields)) for dtype, fields in by_dtype.items()]

    def put(
        self, nodes: list[Tree], packed: np.ndarray | torch.Tensor, is_contiguous: bool
    ) -> None:
        """Put the columns of pairs uint8 ``[B, 2 * record]`` into a plan's dicts."""
        if not len(packed):  # without rows numpy has no strides that torch could view
            packed = torch.empty(packed.shape, dtype=torch.uint8)
        for dtype, begin, end, sizes, leaves in self._views:
            part_of = packed[:, begin:end]
            fields = part_of if isinstance(part_of, torch.Tensor) else torch.from_numpy(part_of)
            # "Unsafe" is to change the whole behind the back of a graph that has its parts; nobody
            # has the whole. It takes a fifth less time.
            parts = fields.view(dtype).unsafe_split_with_sizes(sizes, 1)
            for part, shape, node, name in leaves:
                leaf = parts[part] if shape is None else parts[part].view(shape)
                nodes[node][name] = leaf.contiguous() if is_contiguous else leaf

    def _view(self, dtype: str, fields: list[tuple[int, Column, Key]]) -> DtypeView:
        """Return one view, of fields ``(first byte in the pair, column, key)``."""
        item = ITEM_BYTES[dtype]
        sizes: list[int] = []
        leaves: list[tuple[int, tuple[int, ...] | None, int, str]] = []
        begin = end = fields[0][0]
        for offset, column, key in fields:
            if gap := offset - end:
                sizes.append(gap // item)
            shape = None if len(column.shape) == 1 else (-1, *column.shape)
            leaves.append((len(sizes), shape, *self._plan.slots[key]))
            sizes.append(column.row_bytes // item)
            end = offset + column.row_bytes
        return DtypeView(torch_dtype(dtype), begin, end, sizes, leaves)
