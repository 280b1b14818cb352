"""The rows of the ``ted`` layout: one mapped file a leaf, one gather a leaf."""

from __future__ import annotations

from pathlib import Path

import torch

from datasets_cli.store.columns import Column, Key
from datasets_cli.store.compact import successor_of
from datasets_cli.store.mapping import load_file
from datasets_cli.store.tree import Tree, TreePlan


class LeafRows:
    """The leaf files of a dataset.

    Args:
        folder: the dataset folder.
        columns: every leaf.
        num_rows: transitions N.
        device: where the leaves are to live; None maps the files.
    """

    def __init__(
        self,
        folder: Path,
        columns: tuple[Column, ...],
        num_rows: int,
        device: torch.device | None = None,
    ) -> None:
        self.device = device
        self._plan = TreePlan(column.key for column in columns)
        self._leaves = [
            (
                load_file(
                    folder / column.filename,
                    getattr(torch, column.dtype),
                    (num_rows, *column.shape),
                    device,
                ),
                *self._plan.place(column.key),
            )
            for column in columns
        ]

    def tree(self, index: torch.Tensor) -> Tree:
        """Return copies ``[B, ...]`` of the rows ``index`` int64 ``[B]``, as a nested dict."""
        if self.device is not None:
            index = index.to(self.device)
        nodes = self._plan.new()
        for leaf, node, name in self._leaves:
            nodes[node][name] = leaf.index_select(0, index)
        return nodes[0]

    def history(
        self, key: Key, index: torch.Tensor, age: torch.Tensor, length: int
    ) -> torch.Tensor:
        """Return the last steps of a leaf and the one that follows; see ``dataset.Rows``."""
        if self.device is not None:
            index, age = index.to(self.device), age.to(self.device)
        back = torch.arange(length - 1, -1, -1, device=index.device)
        steps = index.unsqueeze(1) - torch.minimum(back, age.unsqueeze(1))
        leaf, following = self._leaf(key), self._leaf(successor_of(key))
        run = leaf.new_empty((len(index), length + 1, *leaf.shape[1:]))
        run[:, :-1] = leaf.index_select(0, steps.view(-1)).view(len(index), length, *leaf.shape[1:])
        run[:, -1] = following.index_select(0, index)
        return run

    def _leaf(self, key: Key) -> torch.Tensor:
        place = self._plan.place(key)
        return next(leaf for leaf, *found in self._leaves if tuple(found) == place)
