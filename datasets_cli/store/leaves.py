"""The rows of the ``ted`` layout: one mapped file a leaf, one gather a leaf."""

from __future__ import annotations

from pathlib import Path

import torch

from datasets_cli.store.columns import Column
from datasets_cli.store.mapping import map_file
from datasets_cli.store.tree import Tree, TreePlan


class LeafRows:
    """The leaf files of a dataset.

    Args:
        folder: the dataset folder.
        columns: every leaf.
        num_rows: transitions N.
    """

    def __init__(self, folder: Path, columns: tuple[Column, ...], num_rows: int) -> None:
        self._plan = TreePlan(column.key for column in columns)
        self._leaves = [
            (
                map_file(
                    folder / column.filename,
                    getattr(torch, column.dtype),
                    (num_rows, *column.shape),
                ),
                *self._plan.place(column.key),
            )
            for column in columns
        ]

    def tree(self, index: torch.Tensor) -> Tree:
        """Return copies ``[B, ...]`` of the rows ``index`` int64 ``[B]``, as a nested dict."""
        nodes = self._plan.new()
        for leaf, node, name in self._leaves:
            nodes[node][name] = leaf.index_select(0, index)
        return nodes[0]
